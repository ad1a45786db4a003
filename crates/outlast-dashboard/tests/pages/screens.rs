//! Every screen answers with a complete page.

use axum::body::Body;
use axum::http::Request;
use outlast::{RunId, Secret};
use outlast_dashboard::{Caller, DashboardConfig, Role};
use tower::ServiceExt;
use tracing_subscriber::layer::SubscriberExt;

use crate::screen_paths::{self, SCHEDULE};
use crate::setup::{Reply, Shop, approval, checkout, family, nap, patient, secretive};

/// Checks what every page has.
pub(crate) fn check_page(path: &str, page: &Reply) {
    assert_eq!(page.status, 200, "{path}: {}", page.body);
    assert!(page.header("content-security-policy").contains("script-src 'self'; style-src 'self'"), "{path}");
    assert_eq!(page.header("x-content-type-options"), "nosniff", "{path}");
    for inline in [" style=\"", "<style", "javascript:", " onclick", "data:"] {
        assert!(!page.body.contains(inline), "{path} contains {inline}");
    }
    let scripts = page.body.matches("<script").count();
    assert_eq!(scripts, page.body.matches("<script type=\"module\" src=\"").count(), "{path}");
    assert_eq!(page.body.matches("<h1").count(), 1, "{path} has one heading");
    assert!(page.body.contains("<main"), "{path}");
}

pub(crate) async fn runs(shop: &Shop) -> [RunId; 6] {
    let client = &shop.client;
    let completed = client.start(checkout, 4200).key("order-1").await.unwrap();
    let failed = client.start(checkout, 0).key("order-2").await.unwrap();
    let sleeping = client.start(nap, ()).await.unwrap();
    let waiting = client.start(approval, ()).await.unwrap();
    let retrying = client.start(patient, ()).await.unwrap();
    let parent = client.start(family, ()).await.unwrap();
    [
        shop.settle(&completed).await,
        shop.settle(&failed).await,
        shop.settle(&sleeping).await,
        shop.settle(&waiting).await,
        shop.settle(&retrying).await,
        shop.settle(&parent).await,
    ]
}

#[tokio::test]
async fn every_screen_is_complete_without_runs() {
    let shop = Shop::open().await;
    // A schedule is a run.
    let without_schedule = screen_paths::paths(&[]).into_iter().filter(|path| !path.contains(SCHEDULE));
    for path in without_schedule.chain(["/_kit".to_owned()]) {
        check_page(&path, &shop.get(&path).await);
    }
    assert!(shop.get("/runs").await.body.contains("No runs yet"));
}

#[tokio::test]
async fn every_view_of_a_run_is_complete() {
    let shop = Shop::open().await;
    for run in runs(&shop).await {
        for part in ["?zoom=0-1000", "?expand=0", "?all=1", "?status=failed"] {
            let path = format!("/runs/{run}{part}");
            check_page(&path, &shop.get(&path).await);
        }
    }
    let worker = shop.client.workers().await.unwrap()[0].session;
    check_page("worker", &shop.get(&format!("/workers/{worker}")).await);
}

#[tokio::test]
async fn a_list_shows_what_runs_wait_for_and_failed_with() {
    let shop = Shop::open().await;
    runs(&shop).await;
    let list = shop.get("/runs").await.body;
    for text in
        ["card_declined", "the card was declined", "retries", "unreachable", "sleeps", "decision", "order-1"]
    {
        assert!(list.contains(text), "{text}");
    }
    let failures = shop.get("/failures").await.body;
    assert!(failures.contains("charge") && failures.contains("card_declined"));
    assert!(failures.contains("action=retry&amp;run=") && failures.contains("Retry 1 run"), "{failures}");
    assert!(shop.get("/hooks").await.body.contains("decision"));
}

#[tokio::test]
async fn the_page_of_a_run_explains_its_state() {
    let shop = Shop::open().await;
    let [completed, failed, sleeping, waiting, retrying, parent] = runs(&shop).await;
    let page = async |run: RunId| shop.get(&format!("/runs/{run}")).await.body;
    assert!(page(completed).await.contains("It completed at"));
    assert!(page(failed).await.contains("Compensations"));
    assert!(page(sleeping).await.contains("It waits for a timer"));
    assert!(page(waiting).await.contains(&format!("/runs/{waiting}/send?op=0")));
    assert!(page(retrying).await.contains("Attempt now"));
    assert!(page(parent).await.contains("child"));
    shop.client.quarantine(failed).await.unwrap();
    let quarantined = page(failed).await;
    assert!(quarantined.contains("released with <code>Release</code>") && !quarantined.contains("client."));
    assert!(quarantined.contains(&format!("href=\"/runs/{failed}/release\"")), "{quarantined}");
    let data = shop.get(&format!("/runs/{completed}/data")).await.body;
    assert!(data.contains("charging") && data.contains("4200"));
}

#[tokio::test]
async fn a_step_shows_what_it_has_logged() {
    let lines = tracing_subscriber::registry().with(outlast::AttemptLogLayer::new());
    let _subscriber = tracing::subscriber::set_default(lines);
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(checkout, 7).await.unwrap()).await;
    let panel = shop.get(&format!("/runs/{run}?op=0")).await.body;
    let log = panel.split_once("<section class=\"log\">").unwrap().1.split_once("</section>").unwrap().0;
    assert_eq!(log.matches("<li").count(), 1, "only its own lines: {log}");
    assert!(log.contains("data-level=\"WARN\"") && log.contains("asking the &lt;bank&gt;"), "{log}");
    assert!(log.contains("cents=</span>100"), "{log}");
    let last = shop.client.operations(run).await.unwrap().last().unwrap().op;
    let alone = shop.get(&format!("/runs/{run}/ops/{last}")).await.body;
    assert!(alone.contains("cents=</span>7"), "{alone}");
    assert!(!shop.get(&format!("/runs/{run}")).await.body.contains("class=\"log\""));
}

#[tokio::test]
async fn only_people_with_the_role_see_payloads() {
    let shop = Shop::open_with(DashboardConfig::callers().payload_role(Role::Operate)).await;
    let run = shop.settle(&shop.client.start(checkout, 4_242).await.unwrap()).await;
    shop.client.schedule("hourly").every("1h").start_json("checkout", 1, "4242").await.unwrap();
    let page = async |role: Role, path: &str| {
        let caller = Caller { actor: "ada".into(), scope: "ada".into(), role };
        let mut request = Request::get(path).header("host", "ops.example").body(Body::empty()).unwrap();
        request.extensions_mut().insert(caller);
        Reply::of(shop.app.clone().oneshot(request).await.unwrap()).await
    };
    let mut seen = 0;
    for path in screen_paths::of_run(run).chain(["/schedules/hourly".into(), "/schedules".into()]) {
        let page_of_reader = page(Role::Read, &path).await;
        assert!(!page_of_reader.body.contains("4242"), "{path}: {}", page_of_reader.body);
        seen += usize::from(page(Role::Operate, &path).await.body.contains("4242"));
    }
    assert!(seen >= 5, "who has the role sees them: {seen}");
    assert_eq!(page(Role::Read, &format!("/runs/{run}/export")).await.status, 403);
    assert_eq!(page(Role::Operate, &format!("/runs/{run}/export")).await.status, 200);
}

#[tokio::test]
async fn a_secret_is_on_no_page() {
    let shop = Shop::open().await;
    let started = shop.client.start(secretive, Secret::new("open sesame".to_owned())).await.unwrap();
    let run = shop.settle(&started).await;
    let pages = async || {
        let mut text = String::new();
        for path in screen_paths::of_run(run).chain([format!("/runs/{run}/export"), "/runs".into()]) {
            let page = shop.get(&path).await;
            assert_eq!(page.status, 200, "{path}");
            assert!(!page.body.contains("sesame"), "{path}: {}", page.body);
            text += &page.body;
        }
        text
    };
    pages().await;
    started.send("password", &Secret::new("open sesame".to_owned())).await.unwrap();
    assert_eq!(started.output().await.unwrap().expose(), "open sesame");
    // The input, the payload, the value, the state, the chunk and the output.
    assert!(pages().await.matches("•••").count() >= 6);
}

#[tokio::test]
async fn a_sleep_of_three_days_is_compressed_and_can_be_shown_to_scale() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(nap, ()).await.unwrap()).await;
    let compressed = shop.get(&format!("/runs/{run}")).await.body;
    assert!(compressed.contains("class=\"gap\""), "{compressed}");
    let linear = shop.get(&format!("/runs/{run}?axis=linear")).await.body;
    assert!(!linear.contains("class=\"gap\""));
}

#[tokio::test]
async fn a_fork_shows_what_it_copied_and_where_it_began() {
    let shop = Shop::open().await;
    let other = shop.settle(&shop.client.start(checkout, 4200).await.unwrap()).await;
    // Both runs last a moment only. Times are counted in whole milliseconds.
    let (clock, begun) = (shop.client.world().clock(), shop.client.world().clock().now());
    while clock.now().since(begun).as_millis() < 20 {
        tokio::task::yield_now().await;
    }
    let second_step = shop
        .client
        .events(other)
        .await
        .unwrap()
        .into_iter()
        .filter(|event| event.event.kind() == "step_started");
    let at = second_step.last().unwrap().number;
    let fork = shop.client.fork::<String>(other).at(at).await.unwrap();
    let run = shop.settle(&fork).await;
    let page = shop.get(&format!("/runs/{run}?axis=linear")).await.body;
    let row = |key: &str| {
        let row = page.split_once(&format!("<li id=\"{key}\"")).unwrap().1;
        row.split_once("</li>").unwrap().0.to_owned()
    };
    let begin_of_bar = |key: &str| -> i64 {
        let row = row(key);
        row.split_once("data-f=\"").unwrap().1.split_once('"').unwrap().0.parse().unwrap()
    };
    assert_eq!(begin_of_bar("op-0"), 0, "the axis begins with the copied step: {page}");
    assert!(row("op-0").contains("copied"), "{page}");
    assert!(page.contains("forked from") && !page.contains("outlast:forked_from"), "{page}");
    assert!(begin_of_bar("run") >= 20_000, "the run begins later: {page}");
    assert!(row("run").contains("<title>forked: everything before is a copy"), "{page}");
    let last = shop.client.operations(run).await.unwrap().last().unwrap().op.0;
    assert!(!row(&format!("op-{last}")).contains("copied"), "{page}");
    let table = shop.get(&format!("/runs/{run}?view=table")).await.body;
    assert!(table.contains("forked: everything before is a copy of run"), "{table}");
    let events = shop.get(&format!("/runs/{run}/events")).await.body;
    assert!(events.contains(">\u{2212}") && events.contains(">+"), "{events}");
}

#[tokio::test]
async fn a_page_that_does_not_exist_says_so() {
    let shop = Shop::open().await;
    for path in
        ["/nothing", "/runs/run_0", "/runs/01J8", "/workflows/nothing", "/workers/x", "/assets/0/page.js"]
    {
        assert_eq!(shop.get(path).await.status, 404, "{path}");
    }
    let problem = shop.get("/runs?workflow=a&cursor=x").await;
    assert_eq!(problem.status, 400);
    assert!(problem.body.contains("role=\"alert\""));
}

#[tokio::test]
async fn a_search_opens_the_only_run_that_fits() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(nap, ()).key("order/7").await.unwrap()).await;
    let found = shop.get("/search?q=order%2F7").await;
    assert_eq!((found.status, found.header("location")), (303, format!("/runs/{run}").as_str()));
    let several = shop.get("/search?q=nothing+fits").await;
    assert_eq!(several.header("location"), "/runs?text=nothing%20fits");
}

#[tokio::test]
async fn assets_are_small_and_kept_by_browsers() {
    let shop = Shop::open().await;
    let page = shop.get("/runs").await;
    let style = page.attributes("href").into_iter().find(|href| href.ends_with("outlast.css")).unwrap();
    let reply = shop.get(&style).await;
    assert_eq!(reply.status, 200);
    assert!(reply.header("cache-control").contains("immutable"));
    assert!(!reply.body.contains("url(/") && !reply.body.contains("http"), "no address in the style sheet");
    for script in page.attributes("src") {
        let text = shop.get(&script).await.body;
        let is_path = |rest: &str| rest.starts_with(|first: char| first.is_ascii_alphabetic());
        assert!(!text.split("\"/").skip(1).any(is_path), "no absolute path in {script}");
    }
}

#[tokio::test]
async fn a_read_only_dashboard_has_no_form_that_changes_runs() {
    let shop = Shop::open_with(DashboardConfig::local().read_only()).await;
    let run = shop.settle(&shop.client.start(approval, ()).await.unwrap()).await;
    shop.client.schedule("hourly").every("1h").start_json("nap", 1, "null").await.unwrap();
    let of_run = ["", "?op=0", "?view=table", "/events", "/data", "/children", "/ops/0"];
    let of_run = of_run.map(|part| format!("/runs/{run}{part}"));
    let screens = [
        "/runs",
        "/runs?open=true",
        "/hooks",
        "/workflows",
        "/workflows/approval",
        "/failures",
        "/failures?tab=stuck",
        "/schedules",
        "/schedules/hourly",
        "/queues",
        "/workers",
        "/settings",
    ];
    for path in screens.into_iter().map(str::to_owned).chain(of_run) {
        let path = path.as_str();
        let page = shop.get(path).await;
        check_page(path, &page);
        assert!(!page.body.contains("method=\"post\""), "{path}");
        for link in ["/cancel", "/send", "/runs/new", "/terminate", "/schedules/new", "/pause", "/prune"] {
            assert!(!page.body.contains(link), "{path} links to {link}");
        }
        assert!(page.body.contains("Read-only"), "{path}");
    }
    assert_eq!(shop.get(&format!("/runs/{run}/cancel")).await.status, 403);
    assert_eq!(shop.post(&format!("/runs/{run}/cancel"), "token=x").await.status, 403);
    assert_eq!(shop.post("/runs/new", "token=x").await.status, 403);
}

#[tokio::test]
async fn the_environment_is_named_and_production_has_a_colour_of_its_own() {
    for (name, kind) in
        [("production", Some("prod")), ("prod-eu", Some("prod")), ("Staging", Some("stag")), ("test", None)]
    {
        let shop = Shop::open_with(DashboardConfig::local().environment(name)).await;
        let page = shop.get("/runs").await;
        assert!(page.body.contains(&format!(">{name}</span>")), "{name}");
        assert_eq!(page.attributes("data-kind").first().map(String::as_str), kind, "{name}");
    }
}

#[tokio::test]
async fn a_theme_is_a_cookie_of_the_browser() {
    let shop = Shop::open_with(DashboardConfig::local().read_only()).await;
    let chosen = shop.get("/settings/theme?theme=dark").await;
    assert_eq!((chosen.status, chosen.header("location")), (303, "/settings"));
    assert!(chosen.header("set-cookie").starts_with("outlast_theme=dark; Path=/"));
    let unknown = shop.get("/settings/theme?theme=%22%3E").await;
    assert!(unknown.header("set-cookie").starts_with("outlast_theme=system;"));
}
