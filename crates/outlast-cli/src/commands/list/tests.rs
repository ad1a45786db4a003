use std::time::Duration;

use expect_test::expect;
use outlast_api::{RunFailureJson, RunJson, StuckJson, WaitJson};

use super::*;
use crate::fixtures::{before, now, run};

fn wait(on: &str, name: Option<&str>, seconds: Option<u64>) -> WaitJson {
    WaitJson {
        on: on.into(),
        op: 0,
        name: name.map(Into::into),
        queue: Some("reports".into()),
        run: None,
        until: seconds.map(|seconds| now().plus(Duration::from_secs(seconds)).into()),
    }
}

fn declined() -> RunFailureJson {
    RunFailureJson {
        kind: "fatal".into(),
        code: Some("card_declined".into()),
        step: Some("charge".into()),
        message: "the bank said no".into(),
        fingerprint: "0123456789abcdef".into(),
    }
}

fn runs() -> Vec<RunJson> {
    let stuck =
        StuckJson { reason: "diverged".into(), message: "code asked for refund".into(), build: "b".into() };
    vec![
        RunJson {
            key: Some("order-42".into()),
            waits: vec![wait("retry", Some("charge"), Some(8))],
            ..run("waiting")
        },
        RunJson {
            created_at: before(3_700).into(),
            ended_at: Some(before(3_688).into()),
            failure: Some(declined()),
            ..run("failed")
        },
        RunJson {
            waits: vec![wait("hook", Some("rating"), Some(86_400 * 3)), wait("timer", None, Some(5))],
            ..run("waiting")
        },
        RunJson { stuck: Some(stuck), crashes: 2, ..run("stuck") },
        RunJson {
            marks: vec!["paused".into()],
            waits: vec![wait("step", Some("render"), None)],
            ..run("waiting")
        },
        RunJson { flags: vec!["cancelling".into()], ..run("running") },
        RunJson { ended_at: Some(before(180).into()), ..run("completed") },
    ]
}

#[test]
fn a_list_fits_the_terminal() {
    let text = table(Look::plain(96), now(), &runs(), false).lines(Look::plain(96)).join("\n");
    expect![[r#"
        STATUS       RUN          WORKFLOW     KEY       STARTED     TOOK  NOTE
        ⧗ waiting    run_…938NKR  checkout v1  order-42    3 min  3 m 2 s  charge failed, next attempt …
        ✕ failed     run_…938NKR  checkout v1                1 h   12.0 s  charge: the bank said no [ca…
        ⧗ waiting    run_…938NKR  checkout v1              3 min  3 m 2 s  hook rating, times out in 3 …
        ▲ stuck      run_…938NKR  checkout v1              3 min  3 m 2 s  diverged: code asked for ref…
        ‖ paused     run_…938NKR  checkout v1              3 min  3 m 2 s  step render in queue reports
        ● running    run_…938NKR  checkout v1              3 min  3 m 2 s  cancelling
        ✓ completed  run_…938NKR  checkout v1              3 min    2.0 s"#]]
    .assert_eq(&text);
}

#[test]
fn a_terminal_without_unicode_gets_ascii() {
    let look = Look { has_unicode: false, ..Look::plain(60) };
    let text = table(look, now(), &runs()[..3], true).lines(look).join("\n");
    assert!(text.is_ascii());
    expect![[r#"
        STATUS     RUN           WORKFLOW     KEY       STARTED     TOOK  QUEUE    NOTE
        ~ waiting  run_..938NKR  checkout v1  order-42    3 min  3 m 2 s  default  charge fa...
        x failed   run_..938NKR  checkout v1                1 h   12.0 s  default  charge: t...
        ~ waiting  run_..938NKR  checkout v1              3 min  3 m 2 s  default  hook rati..."#]]
    .assert_eq(&text);
}
