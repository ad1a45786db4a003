//! What is true of every row, whatever the run was and whatever its turn does.

use super::*;
use crate::failed_builds::FailedBuilds;
use crate::limits::FAILED_BUILDS_MAX;
use crate::marks::Marks;
use crate::payload::Payload;
use crate::run::StuckReason;

const SESSION: SessionId = SessionId::from_bits(1);

fn moment(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn stuck(build: &str) -> Stuck {
    Stuck { reason: StuckReason::Diverged, message: "it differs".into(), build: build.into() }
}

/// Every combination of the columns that only the holder changes, for a run whose next event is 5.
fn all_columns() -> Vec<HolderColumns> {
    let mut all = Vec::new();
    for crashes in [0, 1, 2, 4, 5] {
        for (kept, deadline) in [(0, None), (3, Some(moment(100)))] {
            for failed in [0, 1, FAILED_BUILDS_MAX] {
                let failed_builds = (0..failed).fold(FailedBuilds::default(), |list, number| {
                    list.with(&format!("old-{number}"), 5).list
                });
                for stuck in [None, Some(stuck("old-0"))] {
                    let failed_builds = failed_builds.clone();
                    let stuck = stuck.map(Box::new);
                    let marks = if kept > 0 { Marks::OF_HOLDER } else { Marks::NONE };
                    let (replay_from, continued) = (kept, kept);
                    all.push(HolderColumns {
                        crashes,
                        kept,
                        deadline,
                        stuck,
                        failed_builds,
                        marks,
                        replay_from,
                        continued,
                        is_retrying: kept > 0,
                        failure: None,
                    });
                }
            }
        }
    }
    all
}

fn all_turns() -> Vec<Turn> {
    let end = Event::RunCompleted { output: Payload::null() };
    let cancel = Event::CancelRequested {
        message: None,
        reason: "late".into(),
        actor: None,
        pauses: Vec::new(),
        ends: Vec::new(),
        maybe_attempted: Vec::new(),
    };
    let step = Event::StepStarted {
        op: crate::event::OpNumber(4),
        name: "s".into(),
        input: Payload::null(),
        queued: None,
        is_once: false,
        is_transactional: false,
    };
    let wait = |wake_at| Then::Wait { wake_at, waits: Vec::new() };
    let mut all = Vec::new();
    for before in all_columns() {
        for (crashes, kept, deadline) in [(before.crashes, before.kept, before.deadline), (0, 9, None)] {
            for events in [vec![], vec![step.clone()], vec![cancel.clone()]] {
                for then in [
                    Then::Hold,
                    wait(None),
                    wait(Some(moment(60))),
                    Then::Release,
                    Then::End(Status::Completed),
                    Then::Stuck(stuck("new")),
                ] {
                    let is_end = matches!(then, Then::End(_));
                    all.push(Turn {
                        run: RunId::from_bits(1),
                        id: TurnId::from_bits(3),
                        based_on: BasedOn::Turn(TurnId::from_bits(2)),
                        seq: 5,
                        at: moment(1),
                        build: "new".into(),
                        events: events.iter().cloned().chain(is_end.then(|| end.clone())).collect(),
                        consumed: 2,
                        fired_until: None,
                        columns: TurnColumns::changed(
                            Arc::new(before.clone()),
                            HolderColumns { crashes, kept, deadline, ..before.clone() },
                        ),
                        outbox: None,
                        then,
                    });
                }
            }
        }
    }
    all
}

/// When the run is ready, for every sort of unread messages.
fn moments(ready: Readiness) -> [Option<Timestamp>; 3] {
    [(false, false), (true, false), (true, true)]
        .map(|(has_unread, can_end)| ready.choose(has_unread, can_end, Marks::NONE).moment(moment(10)))
}

#[test]
fn a_run_is_held_or_ended_or_can_become_ready() {
    for turn in all_turns() {
        let change = RowChange::of(&turn, SESSION);
        let [if_read, if_unread, if_can_end] = moments(change.ready);
        assert_eq!(change.owner.is_some(), change.status == Status::Running, "{turn:?}");
        if change.owner.is_some() || change.has_ended() {
            assert_eq!([if_read, if_unread, if_can_end], [None; 3], "{turn:?}");
        } else {
            assert!(if_can_end.is_some_and(|at| at <= moment(10)), "{turn:?}");
            assert!(if_unread.is_some(), "{turn:?}");
            assert!(if_read.is_none_or(|read| if_unread.is_some_and(|unread| unread <= read)), "{turn:?}");
        }
        assert!(if_read.is_some() || change.status != Status::Stuck, "{turn:?}");
    }
}

#[test]
fn a_run_is_stuck_when_it_got_stuck_or_was_and_did_not_progress() {
    for turn in all_turns() {
        let change = RowChange::of(&turn, SESSION);
        let got_stuck = matches!(turn.then, Then::Stuck(_));
        let stays_stuck = matches!(turn.then, Then::Release)
            && turn.columns.before.stuck.is_some()
            && turn.events.is_empty();
        assert_eq!(change.status == Status::Stuck, got_stuck || stays_stuck, "{turn:?}");
        if change.status == Status::Stuck {
            assert!(change.columns.stuck.is_some(), "{turn:?}");
        }
        if change.has_ended() || change.status == Status::Waiting {
            assert_eq!(change.columns.stuck, None, "{turn:?}");
        }
        let progressed = change.next_event > turn.seq;
        assert!(!progressed || change.columns.failed_builds.is_empty(), "{turn:?}");
        assert!(
            progressed
                || change.columns.failed_builds.builds().len()
                    >= turn.columns.before.failed_builds.builds().len()
        );
    }
}

#[test]
fn a_stuck_turn_changes_nothing_but_why_and_who_failed() {
    for turn in all_turns().into_iter().filter(|turn| matches!(turn.then, Then::Stuck(_))) {
        let change = RowChange::of(&turn, SESSION);
        assert_eq!((change.next_event, change.consumed), (turn.seq, None), "{turn:?}");
        assert_eq!(
            (change.columns.kept, change.columns.deadline),
            (turn.columns.before.kept, turn.columns.before.deadline),
            "{turn:?}"
        );
        assert!(!change.requests_cancel, "{turn:?}");
        assert!(
            change.columns.failed_builds.contains("new") && change.columns.failed_builds.counts_at(turn.seq),
            "{turn:?}"
        );
    }
}

#[test]
fn a_row_that_is_not_written_is_right_as_it_is() {
    let mut unwritten = 0;
    for turn in all_turns() {
        let change = RowChange::of(&turn, SESSION);
        if !change.must_write(2) {
            unwritten += 1;
            let before = &turn.columns.before;
            assert_eq!(change.owner, Some(SESSION), "{turn:?}");
            assert!(change.next_event > turn.seq, "the history has the turn: {turn:?}");
            assert_eq!(
                (change.columns.crashes, change.columns.kept, change.columns.deadline),
                (before.crashes, before.kept, before.deadline)
            );
            assert_eq!(
                (&change.columns.stuck, &change.columns.failed_builds),
                (&before.stuck, &before.failed_builds)
            );
            assert!(!change.requests_cancel, "{turn:?}");
        }
        assert!(change.must_write(1), "it has consumed a message");
    }
    assert!(unwritten > 0, "a turn that only adds to the history leaves the row alone");
}

#[test]
fn a_freed_run_is_ready_and_stuck_only_if_it_was_or_is_poisoned() {
    for before in all_columns() {
        for why in [
            ReleaseReason::Left,
            ReleaseReason::Crashed {
                held_runs: HeldRuns { runs: 1, highest_class: before.crashes.min(4) },
                build: "b",
            },
            ReleaseReason::Crashed { held_runs: HeldRuns { runs: 2, highest_class: 4 }, build: "b" },
        ] {
            let freed = Released::of(&before, 5, why);
            let is_poisoned =
                freed.columns.stuck.as_ref().is_some_and(|stuck| stuck.reason == StuckReason::Poison);
            assert_eq!(
                freed.status == Status::Stuck,
                before.stuck.is_some() || is_poisoned,
                "{before:?} {why:?}"
            );
            assert_eq!(freed.columns.stuck.is_some(), freed.status == Status::Stuck, "{before:?} {why:?}");
            let [if_read, _, if_can_end] = moments(freed.ready);
            assert!(if_read.is_some() && if_can_end == Some(moment(10)), "{before:?} {why:?}");
            assert_eq!(
                if_read == Some(moment(10)),
                !(is_poisoned && before.failed_builds.builds().len() == 8)
            );
            if why == ReleaseReason::Left {
                assert_eq!(freed.columns.crashes, before.crashes);
            } else {
                assert!(freed.columns.crashes >= before.crashes && freed.columns.crashes <= 5);
            }
        }
    }
}
