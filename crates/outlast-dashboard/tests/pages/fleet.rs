//! Queues, workflows and the audit on pages.

use outlast_core::WorkflowSummary;
use outlast_core::definition::DEFINITIONS;

use crate::screens::check_page;
use crate::setup::{Shop, approval, nap};

#[tokio::test]
async fn a_queue_that_nobody_serves_says_so() {
    let shop = Shop::open().await;
    shop.client.start(nap, ()).queue("live").await.unwrap();
    shop.client.start(nap, ()).queue("later").after("1h").await.unwrap();
    let list = shop.get("/queues").await.body;
    assert_eq!(list.matches("nobody serves this queue").count(), 2, "{list}");
    let page = shop.get("/queues/live").await;
    check_page("/queues/live", &page);
    assert!(
        page.body.contains("Nobody serves this queue") && page.body.contains("<dd>1</dd>"),
        "{}",
        page.body
    );
    assert!(!shop.get("/queues/default").await.body.contains("Nobody serves"));
    assert_eq!(shop.get("/queues/none").await.status, 404);
}

#[tokio::test]
async fn the_audit_names_who_changed_something_on_a_page() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(approval, ()).await.unwrap()).await;
    let path = format!("/runs/{run}/cancel");
    let token = shop.get(&path).await.token();
    let sent = shop.post(&path, &format!("token={token}&reason=not+needed")).await;
    assert_eq!(sent.status, 303, "{}", sent.body);
    let audit = shop.get("/audit").await;
    check_page("/audit", &audit);
    for text in ["local", "cancel", "done", "not needed"] {
        assert!(audit.body.contains(text), "{text} in {}", audit.body);
    }
    assert!(shop.get("/audit?outcome=refused").await.body.contains("No records"));
    shop.post(&path, &format!("token={token}")).await;
    assert!(shop.get("/audit").await.body.contains("unchanged"), "the second time there is nothing to do");
}

#[tokio::test]
async fn a_form_is_made_of_a_stored_schema() {
    let shop = Shop::open().await;
    let mut order = WorkflowSummary::new("order", 2, "b1", &[], &[]);
    order.input = Some(serde_json::json!({
        "type": "object", "required": ["cents"],
        "properties": { "cents": { "type": "integer", "minimum": 1 }, "note": { "type": "string" } },
    }));
    shop.client.world().put_records(DEFINITIONS, vec![order.to_record()]).await.unwrap();
    assert!(shop.get("/runs/new").await.body.contains("With a form:"));
    let page = shop.get("/runs/new?workflow=order").await;
    check_page("/runs/new?workflow=order", &page);
    assert!(page.body.contains("name=\"in.cents\"") && page.body.contains("at least 1"), "{}", page.body);
    assert!(shop.get("/runs/new?workflow=order&input=json").await.body.contains("name=\"input\""));
    let token = page.token();
    let post = async |cents: &str| {
        shop.post("/runs/new", &format!("token={token}&fields=true&workflow=order&in.cents={cents}")).await
    };
    assert!(post("0").await.body.contains("out of range"));
    assert_eq!(post("42").await.status, 303);
    let run = shop.client.newest(&[], 1).await.unwrap().remove(0);
    assert_eq!((&*run.workflow, run.version), ("order", 2));
    let list = shop.get("/workflows").await.body;
    assert!(list.contains("no worker has its code"), "{list}");
    assert!(shop.get("/workflows/order").await.body.contains("JSON Schema of the input"));
}
