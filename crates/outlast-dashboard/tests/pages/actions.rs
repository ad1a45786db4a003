//! Actions: a form states the effect, and only a form of this dashboard can be sent.

use axum::body::Body;
use axum::http::{Request, header};
use outlast::Status;
use tower::ServiceExt;

use crate::screens::check_page;
use crate::setup::{Reply, Shop, approval, checkout, nap, patient, peer};

#[tokio::test]
async fn a_run_is_cancelled_after_confirmation() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(nap, ()).await.unwrap()).await;
    let path = format!("/runs/{run}/cancel");
    let page = shop.get(&path).await;
    check_page(&path, &page);
    assert!(page.body.contains("Cancel run …"));
    assert_eq!(shop.client.run(run).await.unwrap().status, Status::Waiting);
    let done = shop.post(&path, &format!("token={}&reason=ordered+twice", page.token())).await;
    assert_eq!((done.status, done.header("location")), (303, format!("/runs/{run}?did=requested").as_str()));
    let error = shop.client.handle::<()>(run).output().await.unwrap_err();
    assert!(error.is_cancelled() && error.to_string().contains("ordered twice"), "{error}");
}

#[tokio::test]
async fn every_control_has_a_page_and_does_what_it_says() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(nap, ()).await.unwrap()).await;
    let send = async |action: &str| {
        let path = format!("/runs/{run}/{action}");
        let page = shop.get(&path).await;
        check_page(&path, &page);
        let done = shop.post(&path, &format!("token={}", page.token())).await;
        assert_eq!(done.status, 303, "{action}: {}", done.body);
    };
    send("pause").await;
    assert!(shop.client.run(run).await.unwrap().marks.is_paused());
    send("resume").await;
    send("quarantine").await;
    assert!(shop.client.run(run).await.unwrap().marks.is_quarantined());
    send("release").await;
    send("restart").await;
    send("wake").await;
    shop.client.handle::<()>(run).output().await.unwrap();
    send("delete").await;
    assert!(shop.client.run(run).await.is_err());
    let other = shop.client.list().await.unwrap().runs[0].id;
    let path = format!("/runs/{other}/terminate");
    let token = shop.get(&path).await.token();
    assert_eq!(shop.post(&path, &format!("token={token}&compensating=true")).await.status, 303);
    assert!(shop.client.handle::<()>(other).output().await.is_err());
}

#[tokio::test]
async fn a_retry_lists_what_runs_again() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(nap, ()).await.unwrap()).await;
    shop.client.cancel(run, "by mistake").await.unwrap();
    assert!(shop.client.handle::<()>(run).output().await.is_err());
    let path = format!("/runs/{run}/retry");
    let page = shop.get(&path).await;
    check_page(&path, &page);
    assert!(page.body.contains("It continues from operation 0"), "{}", page.body);
    let done = shop.post(&path, &format!("token={}&reason=again", page.token())).await;
    assert_eq!((done.status, done.header("location")), (303, format!("/runs/{run}?did=requested").as_str()));
    assert!(shop.client.run(run).await.unwrap().ended_at.is_none());
}

#[tokio::test]
async fn a_waiting_attempt_is_made_now() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(patient, ()).await.unwrap()).await;
    let path = format!("/runs/{run}/wake?op=0");
    let page = shop.get(&path).await;
    assert!(page.body.contains("name=\"op\" value=\"0\""));
    assert_eq!(
        shop.post(&format!("/runs/{run}/wake"), &format!("token={}&op=0", page.token())).await.status,
        303
    );
}

#[tokio::test]
async fn a_hook_is_answered_and_what_is_not_json_is_shown_again() {
    let shop = Shop::open().await;
    let run = shop.client.start(approval, ()).await.unwrap();
    let id = shop.settle(&run).await;
    let path = format!("/runs/{id}/send");
    let page = shop.get(&format!("{path}?op=0")).await;
    check_page(&path, &page);
    let again = shop.post(&path, &format!("token={}&op=0&payload=%7Bno", page.token())).await;
    assert_eq!(again.status, 200);
    assert!(again.body.contains("This is not JSON") && again.body.contains("{no"));
    let sent = shop.post(&path, &format!("token={}&op=0&payload=true", page.token())).await;
    assert_eq!(sent.status, 303, "{}", sent.body);
    assert!(run.output().await.unwrap());
}

#[tokio::test]
async fn a_run_is_started_with_its_key_and_tags() {
    let shop = Shop::open().await;
    let page = shop.get("/runs/new?workflow=checkout").await;
    assert!(page.body.contains("<option value=\"checkout\" selected>"));
    let form = format!("token={}&workflow=checkout&input=4200&key=order-9&tags=shop:berlin", page.token());
    let started = shop.post("/runs/new", &form).await;
    assert_eq!(started.status, 303, "{}", started.body);
    let run = shop.client.find::<String>("order-9").await.unwrap().unwrap();
    assert_eq!(started.header("location"), format!("/runs/{}?did=started", run.id()));
    assert_eq!(run.output().await.unwrap(), "4200 charged");
    assert_eq!(run.view().await.unwrap().tags["shop"], "berlin");
    let wrong = shop.post("/runs/new", &format!("token={}&workflow=checkout&input=%7B", page.token())).await;
    assert_eq!(wrong.status, 200);
    assert!(wrong.body.contains("role=\"alert\"") && wrong.body.contains("not JSON"));
}

#[tokio::test]
async fn a_form_without_the_token_or_from_another_site_does_nothing() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(nap, ()).await.unwrap()).await;
    let path = format!("/runs/{run}/terminate");
    let token = shop.get(&path).await.token();
    assert_eq!(shop.post(&path, "token=").await.status, 403);
    assert_eq!(shop.post(&path, &format!("token={}", "0".repeat(64))).await.status, 403);
    for (name, value) in
        [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")]
    {
        let request =
            Request::post(&path).extension(peer()).header(header::HOST, "127.0.0.1:4700").header(name, value);
        let request = request.body(Body::from(format!("token={token}"))).unwrap();
        let refused = Reply::of(shop.app.clone().oneshot(request).await.unwrap()).await;
        assert_eq!(refused.status, 403, "{name}: {value}");
    }
    assert_eq!(shop.client.run(run).await.unwrap().status, Status::Waiting);
}

#[tokio::test]
async fn an_action_that_does_not_apply_has_no_form() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(checkout, 1).await.unwrap()).await;
    shop.client.handle::<String>(run).output().await.unwrap();
    let page = shop.get(&format!("/runs/{run}/cancel")).await;
    check_page("cancel", &page);
    assert!(!page.body.contains("method=\"post\""));
}

#[tokio::test]
async fn the_page_that_deletes_old_runs_says_how_many() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(checkout, 1).await.unwrap()).await;
    shop.client.handle::<String>(run).output().await.unwrap();
    let month = shop.get("/settings/prune").await;
    assert!(month.body.contains("0 runs ended before") && !month.body.contains("button danger"));
    let later = "/settings/prune?ended_before=2999-01-01T00:00:00Z";
    let page = shop.get(later).await;
    check_page(later, &page);
    assert!(page.body.contains("1 run ended before") && page.body.contains("Delete 1 run"), "{}", page.body);
    assert_eq!(shop.client.list().await.unwrap().runs.len(), 1, "nothing is deleted yet");
    let form = format!("token={}&ended_before=2999-01-01T00:00:00Z", page.token());
    assert!(shop.post("/settings/prune", &form).await.body.contains("1 run deleted"));
    assert_eq!(shop.get("/settings/prune?ended_before=yesterday").await.status, 400);
}

#[tokio::test]
async fn only_what_ends_runs_is_marked_as_dangerous() {
    let shop = Shop::open().await;
    shop.settle(&shop.client.start(approval, ()).await.unwrap()).await;
    for (action, is_dangerous) in
        [("pause", false), ("resume", false), ("restart", false), ("cancel", true), ("terminate", true)]
    {
        let page = shop.get(&format!("/runs/bulk?bulk={action}&workflow=approval")).await;
        assert_eq!(page.status, 200, "{}", page.body);
        assert_eq!(page.body.contains("button danger"), is_dangerous, "{action}");
    }
    for action in ["retry", "delete"] {
        assert_eq!(shop.get(&format!("/runs/bulk?bulk={action}&workflow=approval")).await.status, 200);
    }
}

#[tokio::test]
async fn a_fork_explains_what_runs_again() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(nap, ()).await.unwrap()).await;
    let events = shop.client.events(run).await.unwrap();
    let path = format!("/runs/{run}/fork");
    check_page(&path, &shop.get(&path).await);
    let page = shop.get(&format!("{path}?event={}", events.len())).await;
    check_page(&path, &page);
    assert!(
        page.body.contains("In progress there; these begin again:") && page.body.contains("#0 timer"),
        "{}",
        page.body
    );
    let before = shop.get(&format!("{path}?before=0")).await;
    assert!(before.body.contains("Dropped; the workflow may request these again:"), "{}", before.body);
    let refused = shop.get(&format!("{path}?event=99")).await;
    assert!(refused.body.contains("It will be refused: "), "{}", refused.body);
    let wrong = shop.post(&path, &format!("token={}&outputs=3", page.token())).await;
    assert!(wrong.status == 200 && wrong.body.contains("This is not an object"), "{}", wrong.body);
    let explained = shop.post(&path, &format!("token={}&event=1&do=explain", page.token())).await;
    assert_eq!(explained.status, 200);
    assert_eq!(shop.client.list().await.unwrap().runs.len(), 1);
    let done = shop.post(&path, &format!("token={}&event=1&do=fork", page.token())).await;
    assert_eq!(done.status, 303, "{}", done.body);
    let fork = done.header("location").trim_start_matches("/runs/").split('?').next().unwrap().to_owned();
    let shown = shop.get(&format!("/runs/{fork}")).await;
    assert!(shown.body.contains("forked from"), "{}", shown.body);
    let listed = shop.get(&format!("/runs/{run}/events")).await;
    assert!(listed.body.contains("Fork before this event"), "{}", listed.body);
}

#[tokio::test]
async fn every_action_that_is_not_headless_has_a_form() {
    use outlast_api::Action;
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(approval, ()).await.unwrap()).await;
    let token = shop.get("/schedules/new").await.token();
    shop.post("/schedules/new", &format!("token={token}&id=s&every=1h&workflow=nap&input=null")).await;
    for action in Action::ALL.into_iter().filter(|action| !action.is_headless()) {
        let path = match action {
            Action::Start => "/runs/new".to_owned(),
            Action::Send => format!("/runs/{run}/send?op=0"),
            Action::Bulk => format!("/runs/selected?action=cancel&run={run}"),
            Action::StopBulk => format!("/bulk/{}/stop", bulk(&shop).await),
            Action::Prune => "/settings/prune".to_owned(),
            Action::CreateSchedule => "/schedules/new".to_owned(),
            Action::UpdateSchedule => "/schedules/s/edit".to_owned(),
            other if other.as_str().ends_with("_schedule") => {
                format!("/schedules/s/{}", other.as_str().trim_end_matches("_schedule"))
            }
            other => format!("/runs/{run}/{other}"),
        };
        let page = shop.get(&path).await;
        assert_eq!(page.status, 200, "{action}: {path}");
        let has_form = page.body.contains("method=\"post\"") || page.body.contains("does not apply");
        assert!(has_form, "{action}: {path}");
        if !page.body.contains("does not apply") {
            let has_both =
                page.body.contains("data-copy=\"outlast ") || page.body.contains("data-copy=\"for run ");
            assert!(has_both && page.body.contains("curl -X "), "{action} has no command or request: {path}");
        }
    }
}

/// Starts an action on all runs of a workflow, and returns its run.
async fn bulk(shop: &Shop) -> String {
    let page = shop.get("/runs/bulk?bulk=pause&workflow=approval").await;
    check_page("bulk", &page);
    assert!(page.body.contains("Pause 1 run"), "{}", page.body);
    let form = format!("token={}&bulk=pause&filter=workflow%3Dapproval&at_most=1", page.token());
    let started = shop.post("/runs/bulk", &form).await;
    assert_eq!(started.status, 303, "{}", started.body);
    let path = started.header("location").to_owned();
    check_page(&path, &shop.get(&path).await);
    path.trim_start_matches("/bulk/").to_owned()
}

#[tokio::test]
async fn selected_runs_have_the_actions_that_the_guide_names() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(checkout, 1).await.unwrap()).await;
    let list = shop.get("/runs").await.body;
    let buttons = list.split("name=\"action\" value=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let buttons: Vec<&str> = buttons.collect();
    assert_eq!(buttons, ["cancel", "pause", "resume", "retry", "restart", "delete"]);
    let page = shop.get(&format!("/runs/selected?action=delete&run={run}")).await;
    check_page("delete", &page);
    let form = format!("token={}&action=delete&run={run}", page.token());
    check_page("deleted", &shop.post("/runs/selected", &form).await);
    assert_eq!(shop.get(&format!("/runs/{run}")).await.status, 404);
}
