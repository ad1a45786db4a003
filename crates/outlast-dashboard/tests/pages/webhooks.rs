//! Webhooks, and hooks that reply.

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use outlast_api::{Caller, Role};
use outlast_dashboard::DashboardConfig;

use crate::screens::check_page;
use crate::setup::{Shop, get, notified, quoting};

#[tokio::test]
async fn webhooks_show_their_terms_to_all_and_their_url_to_operators() {
    let shop = Shop::open_with(DashboardConfig::callers()).await;
    let run = shop.settle(&shop.client.start(notified, ()).await.unwrap()).await;
    let with_role = |role: Role| {
        shop.app.clone().layer(from_fn(move |mut request: Request, next: Next| async move {
            let caller = Caller { actor: "ada".into(), scope: "ada".into(), role };
            request.extensions_mut().insert(caller);
            next.run(request).await
        }))
    };
    let operations = shop.client.operations(run).await.unwrap();
    let opened = operations.iter().find(|operation| operation.webhook.is_some()).unwrap();
    let (op, token) = (opened.op, opened.token.clone().unwrap());
    let pages = ["/hooks".to_owned(), format!("/runs/{run}/ops/{op}"), format!("/runs/{run}?op={op}")];
    for path in &pages {
        for (role, is_shown) in [(Role::Read, false), (Role::Operate, true)] {
            let page = get(&with_role(role), path).await;
            check_page(path, &page);
            assert!(page.body.contains("Standard Webhooks, secret bank"), "{path}");
            assert_eq!(
                page.body.contains(&format!("https://out.example/webhooks/{token}")),
                is_shown,
                "{path} {role}"
            );
        }
    }
    for path in [format!("/runs/{run}"), format!("/runs/{run}/events"), format!("/runs/{run}/data")] {
        let page = get(&with_role(Role::Read), &path).await;
        assert!(!page.body.contains(&*token), "{path}");
    }
    assert!(get(&with_role(Role::Operate), &format!("/runs/{run}/data")).await.body.contains(&*token));
}

#[tokio::test]
async fn a_hook_is_answered_and_the_page_shows_the_reply() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(quoting, ()).await.unwrap()).await;
    let form = format!("/runs/{run}/send?op=0");
    let page = shop.get(&form).await;
    check_page(&form, &page);
    let send = async |payload: &str| {
        let body = format!("token={}&op=0&payload={payload}&reply=true", page.token());
        shop.post(&format!("/runs/{run}/send"), &body).await
    };
    let rejected = send("%22many%22").await;
    assert!(rejected.status == 200 && rejected.body.contains("rejected"), "{}", rejected.body);
    let replied = send("7").await;
    check_page("reply", &replied);
    assert!(replied.body.contains("7 euros"), "{}", replied.body);
}
