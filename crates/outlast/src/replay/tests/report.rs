//! What a divergence says besides its first line: history and code side by side.

use expect_test::{Expect, expect};
use serde_json::Value;

use super::{Case, history};
use crate::WorkflowFn;
use crate::prelude::*;

fn check_report<F, Args>(workflow: F, text: &str, expected: Expect)
where
    F: WorkflowFn<Args>,
{
    let case = Case::new(workflow, Value::Null);
    let mut turns = history::parse(text);
    turns[0].events.insert(0, case.started());
    let stuck = case.replay(turns).map(drop).unwrap_err();
    let (_, report) = stuck.message.split_once("\n\n").unwrap();
    expected.assert_eq(&format!("{report}\n"));
}

#[step]
async fn charge(cents: u32) -> Result<(), StepError> {
    assert!(cents > 0);
    Ok(())
}

#[workflow]
async fn order(ctx: Context) -> Result<(), Error> {
    let quote: u32 = ctx.record("quote", || 4200)?;
    ctx.step(charge, quote).await?;
    ctx.sleep("1h").await?;
    let parcel = ctx.hook::<u32>("parcel");
    let refused = ctx.hook::<u32>("refused");
    let _ = select! {
        weight = parcel => weight?,
        reason = refused => reason?,
    };
    Ok(())
}

#[test]
fn what_differs_stands_between_what_was_before_and_what_comes_after() {
    check_report(
        order,
        "
        0 value_recorded quote 1
        1 step_started   charge
        1 step_completed
        2 timer_started  1d
        2 timer_fired
        3 hook_opened    letter
        4 hook_opened    refused
        - hook_received  letter 1
        4 hook_closed
        - run_completed
        ",
        expect![[r#"
               op  history has                  | code asked for
                0  value `quote`                | value `quote`   crates/outlast/src/replay/tests/report.rs:30
                1  step `charge`                | step `charge`   crates/outlast/src/replay/tests/report.rs:31
                2  timer 1d                     | timer 1h        crates/outlast/src/replay/tests/report.rs:32
            >   3  hook `letter`                | hook `parcel`   crates/outlast/src/replay/tests/report.rs:33
                4  hook `refused`               | hook `refused`  crates/outlast/src/replay/tests/report.rs:34
                4  the drop of hook operation 4 | -
        "#]],
    );
}

#[test]
fn code_that_asks_for_nothing_has_an_empty_side() {
    check_report(
        order,
        "
        0 value_recorded quote 1
        1 step_started   charge
        2 timer_started  1d
        ",
        expect![[r#"
               op  history has   | code asked for
                0  value `quote` | value `quote`   crates/outlast/src/replay/tests/report.rs:30
                1  step `charge` | step `charge`   crates/outlast/src/replay/tests/report.rs:31
            >   2  timer 1d      | -
        "#]],
    );
}

#[test]
fn history_that_has_nothing_more_has_an_empty_side() {
    check_report(
        order,
        "0 value_recorded quote 1",
        expect![[r#"
               op  history has   | code asked for
                0  value `quote` | value `quote`   crates/outlast/src/replay/tests/report.rs:30
            >   1  -             | step `charge`   crates/outlast/src/replay/tests/report.rs:31
        "#]],
    );
}

#[test]
fn long_words_are_cut_and_stay_on_their_line() {
    check_report(
        order,
        "- run_failed error a message that is long: so long that it goes on, and on, and on",
        expect![[r#"
               op  history has                                                   | code asked for
            >   0  the run's failure (a message that is long: so long that it g… | value `quote`   crates/outlast/src/replay/tests/report.rs:30
        "#]],
    );
}
