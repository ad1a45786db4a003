//! Schedules are created, shown, controlled and deleted by forms.

use crate::screens::check_page;
use crate::setup::Shop;

#[tokio::test]
async fn a_schedule_lives_in_the_dashboard() {
    let shop = Shop::open().await;
    let token = shop.get("/schedules/new").await.token();
    let fields = "id=nightly&cron=0+3+*+*+MON-FRI&zone=Europe%2FBerlin&workflow=nap&input=null&overlap=skip&catch_up=last";
    let preview = shop.post("/schedules/new", &format!("token={token}&{fields}&preview=true")).await;
    check_page("preview", &preview);
    assert!(preview.body.contains("class=\"preview\""), "{}", preview.body);
    assert_eq!(
        preview.body.matches(" 03:00 Europe/Berlin<").count(),
        5,
        "instants in the zone of the rule: {}",
        preview.body
    );
    let wrong = shop.post("/schedules/new", &format!("token={token}&id=x&cron=nonsense&workflow=nap")).await;
    assert!(wrong.body.contains("role=\"alert\""));

    let created = shop.post("/schedules/new", &format!("token={token}&{fields}")).await;
    assert_eq!((created.status, created.header("location")), (303, "/schedules/nightly?did=created"));
    let list = shop.get("/schedules").await;
    check_page("/schedules", &list);
    assert!(list.body.contains("nightly") && list.body.contains("0 3 * * MON-FRI"));
    let page = shop.get("/schedules/nightly").await;
    check_page("/schedules/nightly", &page);
    assert_eq!(page.body.matches(" 03:00 Europe/Berlin<").count(), 5, "{}", page.body);
    assert!(page.body.contains("on Monday to Friday"), "{}", page.body);

    for action in ["pause", "resume", "trigger"] {
        let page = shop.get(&format!("/schedules/nightly/{action}")).await;
        check_page(action, &page);
        let done = shop
            .post(&format!("/schedules/nightly/{action}"), &format!("token={}&reason=why", page.token()))
            .await;
        assert_eq!(done.status, 303, "{action}: {}", done.body);
    }
    let page = shop.get("/schedules/nightly/backfill").await;
    let range = "from=2026-01-05T00:00:00Z&to=2026-01-10T00:00:00Z&dry_run=true";
    let counted = shop.post("/schedules/nightly/backfill", &format!("token={}&{range}", page.token())).await;
    assert!(counted.body.contains("5 instants"), "{}", counted.body);

    let edit = shop.get("/schedules/nightly/edit").await;
    check_page("edit", &edit);
    let revision =
        edit.body.split("name=\"revision\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let form = format!("token={}&revision={revision}&every=5m&workflow=nap&input=null", edit.token());
    let saved = shop.post("/schedules/nightly/edit", &form).await;
    assert_eq!(saved.status, 303, "{}", saved.body);
    assert!(shop.get("/schedules/nightly").await.body.contains("every 5m"));

    let page = shop.get("/schedules/nightly/delete").await;
    let deleted = shop.post("/schedules/nightly/delete", &format!("token={}", page.token())).await;
    assert_eq!(deleted.header("location"), "/schedules");
}
