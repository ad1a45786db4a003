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

#[workflow(check = is_small)]
async fn small(_: Context, number: u8) -> u8 {
    number
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "a check takes references")]
fn is_small(number: &u8) -> Result<(), &'static str> {
    if *number < 10 { Ok(()) } else { Err("too large") }
}

#[workflow(check = fits::fit)]
async fn fit(_: Context, left: String, right: u8) -> String {
    format!("{left}{right}")
}

mod fits {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "a check takes references")]
    pub(super) fn fit(left: &str, right: &u8) -> Result<(), String> {
        if left.len() == usize::from(*right) { Ok(()) } else { Err(format!("{left} is not {right}")) }
    }
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

#[test]
fn a_workflow_judges_its_input_where_it_says_how() {
    assert_eq!(__workflow_small::check(&10).unwrap_err().0, "too large");
    assert_eq!(__workflow_fit::check(&("a".to_owned(), 2)).unwrap_err().0, "a is not 2");
    __workflow_fit::check(&("ab".to_owned(), 2)).unwrap();
    __workflow_pair::check(&(1, 2)).unwrap();
    assert_eq!(
        (now(small(Context, 7)).unwrap(), now(fit(Context, "a".into(), 1)).unwrap()),
        (7, "a1".into())
    );
}
