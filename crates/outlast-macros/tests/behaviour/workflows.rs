//! What `#[workflow]` leaves.

use outlast_macros::workflow;

use crate::sdk::{Context, Error, WorkflowDefinition, now};

/// Counts down by starting itself.
#[workflow(name = "count-down", was = "count", version = 3)]
#[deprecated = "a function that warns its callers"]
async fn count_down(_ctx: Context, from: u32) -> Result<Vec<u32>, Error> {
    let mut numbers = vec![from];
    if from > 0 {
        #[allow(deprecated)]
        numbers.extend(count_down(Context, from - 1).await?);
    }
    Ok(numbers)
}

#[workflow]
async fn pair(_: Context, left: u8, right: u8) -> (u8, u8) {
    (right, left)
}

#[workflow(unchecked = "the map is never iterated")]
async fn counted(_: Context) -> std::io::Result<usize> {
    let map = std::collections::HashMap::from([(1, 2)]);
    Ok(map.len())
}

#[cfg(any())]
mod left_out {
    pub(super) struct Missing;
}

#[workflow]
#[cfg(any())]
async fn left_out(_ctx: Context, missing: left_out::Missing) {}

#[test]
fn a_workflow_carries_its_definition() {
    assert_eq!(__workflow_count_down::NAME, "count-down");
    assert_eq!(__workflow_count_down::WAS, ["count"]);
    assert_eq!(__workflow_count_down::VERSION, 3);
    assert_eq!((__workflow_pair::NAME, __workflow_pair::VERSION), ("pair", 1));
}

#[test]
fn a_workflow_is_a_plain_function() {
    #[allow(deprecated)]
    let numbers = now(count_down(Context, 2)).unwrap();
    assert_eq!(numbers, [2, 1, 0]);
    assert_eq!(now(pair(Context, 1, 2)).unwrap(), (2, 1));
    assert_eq!(now(counted(Context)).unwrap(), 1);
}

#[test]
fn a_workflow_runs_from_its_input() {
    assert_eq!(now(__workflow_pair::run(Context, (1, 2))).unwrap(), (2, 1));
    assert_eq!(now(__workflow_count_down::run(Context, 0)).unwrap(), [0]);
    assert_eq!(now(__workflow_counted::run(Context, ())).unwrap(), 1);
}
