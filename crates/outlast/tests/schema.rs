//! Schemas of workflows and steps, by function and by handle.

#![allow(missing_docs, reason = "tests explain themselves by their names")]

use outlast::prelude::*;
use outlast::schema_of;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Serialize, Deserialize, JsonSchema)]
struct Order {
    id: u64,
    #[serde(default)]
    note: Option<String>,
}

#[step(name = "charge-card")]
async fn charge(_cx: StepContext, order: Order, cents: u32) -> Result<bool, StepError> {
    Ok(order.id > 0 && cents > 0)
}

#[workflow(version = 3)]
async fn checkout(ctx: Context, order: Order) -> Result<Vec<bool>, Error> {
    Ok(vec![ctx.step(charge, (order, 1)).await?])
}

#[test]
fn a_workflow_has_the_schema_of_its_types() {
    let schema = schema_of(checkout);
    assert_eq!((schema.name, schema.version), ("checkout", Some(3)));
    assert_eq!(schema.input["title"], "Order");
    assert_eq!(schema.input["required"], json!(["id"]), "a field with a default may be left out");
    assert_eq!(schema.input["properties"]["id"]["type"], "integer");
    assert_eq!(schema.output["items"], json!({ "type": "boolean" }));
}

#[test]
fn a_step_with_several_parameters_takes_an_array() {
    let schema = schema_of(charge);
    assert_eq!((schema.name, schema.version), ("charge-card", None));
    assert_eq!((&schema.input["type"], &schema.input["maxItems"]), (&json!("array"), &json!(2)));
    assert_eq!(schema.input["prefixItems"][0]["$ref"], "#/$defs/Order");
}

#[test]
fn a_handle_has_the_same_schema() {
    const CHECKOUT: Workflow<Order, Vec<bool>> = Workflow::new("checkout").at_version(3);
    const CHARGE: Step<(Order, u32), bool> = Step::new("charge-card");
    assert_eq!(schema_of(CHECKOUT), schema_of(checkout));
    assert_eq!(schema_of(CHARGE), schema_of(charge));
    let text = serde_json::to_value(schema_of(CHARGE)).expect("it is JSON");
    assert_eq!(text["name"], "charge-card");
}
