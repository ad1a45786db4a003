use std::time::Duration;

use expect_test::expect;
use outlast_api::{AttemptJson, OperationJson, WaitJson};

use super::*;
use crate::fixtures::{before, failed_attempt, now, operation, run};

fn retried() -> OperationJson {
    let due = now().plus(Duration::from_secs(8)).into();
    let next = AttemptJson { number: 3, due_at: due, ended_at: None, failure: None, build: None };
    let attempts =
        vec![failed_attempt(1, before(100), before(80)), failed_attempt(2, before(40), before(20)), next];
    OperationJson {
        attempts,
        attempt_count: 3,
        retry_at: Some(due),
        ..operation(1, "step", "charge", before(100), None)
    }
}

#[test]
fn operations_have_bars_on_the_time_of_their_run() {
    let operations = [
        operation(0, "step", "reserve", before(182), Some(before(150))),
        retried(),
        operation(2, "timer", "3d", before(100), None),
        operation(3, "hook", "rating", before(60), Some(before(30))),
    ];
    let text = operations_table(Look::plain(96), now(), &run("waiting"), &operations).join("\n");
    expect![[r#"
        #  OPERATION     STATUS           TOOK  ATTEMPTS
        0  step reserve  ✓ completed    32.0 s         1  █████
        1  step charge   ⧗ retry      1 m 40 s         2              ████╌╌╌╌╌████╌╌▷
        2  timer 3d      ⧗ open       1 m 40 s                        ───────────────▷
        3  hook rating   ✓ completed    30.0 s                              ─────"#]]
    .assert_eq(&text);
    let ascii = Look { has_unicode: false, ..Look::plain(96) };
    let text = operations_table(ascii, now(), &run("waiting"), &operations).join("\n");
    assert!(text.is_ascii(), "{text}");
    expect![[r#"
        #  OPERATION     STATUS           TOOK  ATTEMPTS
        0  step reserve  + completed    32.0 s         1  #####
        1  step charge   ~ retry      1 m 40 s         2              xxxx-----xxxx-->
        2  timer 3d      ~ open       1 m 40 s                        --------------->
        3  hook rating   + completed    30.0 s                              -----"#]]
    .assert_eq(&text);
}

#[test]
fn a_reason_is_wrapped_beside_its_label() {
    let text = paragraph(
        Look::plain(40),
        "why",
        "Step `charge` failed twice: bank does not answer. The next attempt is due.",
    );
    expect![[r#"
        why   Step `charge` failed twice: bank
              does not answer. The next attempt
              is due."#]]
    .assert_eq(&text.join("\n"));
}

#[test]
fn the_columns_of_a_divergence_stay_below_each_other() {
    let sentence = "Stuck (diverged): deploy a build that matches.\n\n   op  history has   | code asked for\n\
                    >   0  step `charge` | step `refund`";
    let text = paragraph(Look::plain(40), "why", sentence);
    expect![[r#"
        why   Stuck (diverged): deploy a build
              that matches.

                 op  history has   | code asked for
              >   0  step `charge` | step `refund`"#]]
    .assert_eq(&text.join("\n"));
}

#[test]
fn the_next_command_fits_the_state() {
    let next = |run: &RunJson| {
        let look = Look { is_terminal: true, ..Look::plain(80) };
        next::suggestions(look, "outlast", run)
            .into_iter()
            .map(|(command, _)| command)
            .collect::<Vec<_>>()
            .join("; ")
    };
    let wait = |on: &str, name: Option<&str>| WaitJson {
        on: on.into(),
        op: 4,
        name: name.map(Into::into),
        queue: None,
        run: None,
        until: None,
    };
    let waiting = |wait: WaitJson| RunJson { waits: vec![wait], ..run("waiting") };
    let ended = |status: &str| RunJson { ended_at: Some(now().into()), ..run(status) };
    let lines = [
        next(&waiting(wait("hook", Some("it's")))),
        next(&waiting(wait("timer", None))),
        next(&RunJson { marks: vec!["paused".into()], ..run("waiting") }),
        next(&run("stuck")),
        next(&run("pending")),
        next(&run("running")),
        next(&ended("completed")),
        next(&ended("failed")),
        next(&RunJson { marks: vec!["compensated".into()], ..ended("failed") }),
    ];
    expect![[r#"
        outlast send 938NKR 'it'\''s' JSON
        outlast run wake 938NKR --op 4
        outlast run resume 938NKR
        outlast run resume 938NKR
        outlast worker list
        outlast watch 938NKR
        outlast run output 938NKR
        outlast run output 938NKR; outlast run retry 938NKR --dry-run; outlast run restart 938NKR
        outlast run output 938NKR; outlast run restart 938NKR"#]]
    .assert_eq(&lines.join("\n"));
}
