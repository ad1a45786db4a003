//! The durable format, frozen by the files in `golden/`: one per event kind and version.
//!
//! `v1` is what runs with rules 1 write, `v2` what runs with rules 2 write, and `v3` what runs write that use newer
//! features. This build reads and writes all of them.
//!
//! A file holds an array with an event per line. Without the line breaks it is what the writer writes.
//! `UPDATE_EXPECT=1` writes the files anew, for a kind that no release has written yet.

mod children;
mod compensations;
mod control;
mod generations;
mod iterations;
mod reading;
mod retried;
mod tokens;
mod transactional;

use std::path::PathBuf;
use std::time::Duration;

use expect_test::expect_file;
use proptest::prelude::*;
use serde_json::{Value, json};

use self::control::{ada, any_actor, control_examples};
use self::generations::{any_run_continued, generation_examples, plain_start};
use self::transactional::{step_started, transactional_examples};
use super::*;
use crate::failure::{ErrorClass, FailureKind};
use crate::queue::default_queue;
use crate::retry::Retry;

/// The versions of the format that have golden files.
const VERSIONS: [u32; 3] = [1, 2, 3];

/// One event of each kind of a version, with and without what is optional.
fn examples(version: u32) -> Vec<Event> {
    if version == 3 {
        // Format 3 adds kinds and fields; it has no rules of its own.
        let examples = compensations::compensation_examples().into_iter().chain(generation_examples());
        let examples = examples.chain(compensations::ending_examples());
        let examples = examples.chain(iterations::iteration_examples()).chain(tokens::token_examples());
        let examples = examples.chain(retried::retried_examples()).chain(retried::forked_examples());
        return examples.chain(retried::forked_starts()).chain(transactional_examples()).collect();
    }
    examples_of_rules(version)
}

/// One event of each kind that runs with these rules have, with and without what is optional.
fn examples_of_rules(rules: u32) -> Vec<Event> {
    let mut examples = run_examples(rules);
    examples.extend(step_examples(rules));
    examples.extend(wait_examples(rules));
    examples.extend(control_examples());
    examples.extend(children::child_examples());
    if rules >= 2 {
        examples.push(Event::OperationCancelled { op: OpNumber(4) });
    }
    // From rules 2 on tags have no event.
    examples.retain(|event| rules == 1 || !matches!(event, Event::TagsSet { .. }));
    examples
}

/// The examples of all versions.
fn all_examples() -> Vec<Event> {
    VERSIONS.into_iter().flat_map(examples).collect()
}

fn run_examples(rules: u32) -> Vec<Event> {
    let started = plain_start(rules);
    let parent =
        Parent { run: RunId::from_bits(7), op: OpNumber(2), root: RunId::from_bits(5), awaits: true };
    let policy = Policy { timeout: Some(Duration::from_secs(30)), retry: Retry::api(), ..Policy::DEFAULT };
    let headers = [("traceparent", "00-4bf9-00f0-01"), ("who", "Zoë \"z\" \u{1}")];
    let requested = RunStarted {
        workflow: "step:charge".into(),
        requester: Some(Box::new(Requester {
            workflow: "checkout".into(),
            tags: [("tier".into(), "gold".into())].into(),
        })),
        ..started.clone()
    };
    let mut examples = vec![
        Event::from(started.clone()),
        Event::from(RunStarted {
            workflow: "naïve \"flow\"".into(),
            version: 7,
            key: Some("order-42/ü\\\n".into()),
            input: plain(json!({"cents": 4200, "note": "a\u{0}b", "CamelCase": [null, false, 0, ""]})),
            headers: headers.map(|(name, value)| (name.into(), value.into())).into(),
            ..started.clone()
        }),
        Event::from(RunStarted {
            tags: [("customer".into(), "Zoë \"z\"".into()), ("tier".into(), String::new())].into(),
            parent: Some(parent),
            deadline: Some(moment()),
            queue: "gpu \"1\"".into(),
            priority: 9,
            policy: Some(Box::new(policy)),
            ..started.clone()
        }),
        Event::from(RunStarted { input: Payload::coded("aes-1", vec![0, 127, 255]), ..started }),
        Event::RunCompleted { output: Payload::null() },
        Event::RunCompleted { output: plain(json!({"receipt": "🦀"})) },
        Event::RunCompleted { output: Payload::coded("aes-1", vec![]) },
        Event::RunFailed { failure: Failure::new(FailureKind::Error, "not approved") },
        Event::RunFailed { failure: full_failure() },
        Event::RunCancelled { failure: Failure::new(FailureKind::Cancelled, "cancelled: too late") },
        Event::RunTerminated {
            failure: Failure::new(FailureKind::Cancelled, "terminated: no code"),
            actor: None,
        },
    ];
    if rules >= 2 {
        examples.push(Event::from(requested));
    }
    examples
}

fn queued_step(op: OpNumber, queue: Arc<str>, priority: u8) -> Event {
    let queued = Some(Box::new(Queued { run: RunId::from_bits(9), queue, priority }));
    step_started(op, "resize", plain(json!({"image": 7})), queued)
}

fn step_examples(rules: u32) -> Vec<Event> {
    let op = OpNumber(3);
    let failed = |kind| Event::StepFailed { op, failure: Failure::new(kind, "no").of_step("charge", 1) };
    let mut examples = vec![
        step_started(OpNumber(0), "charge", Payload::null(), None),
        step_started(OpNumber(u64::from(u32::MAX)), "a\tb", plain(json!([1, "two", {}])), None),
        step_started(op, "charge", Payload::coded("zip", vec![1, 2, 3]), None),
        queued_step(op, default_queue(), 0),
        queued_step(op, "g\"pu".into(), 3),
        Event::StepCompleted { op: OpNumber(0), output: plain(json!("paid")) },
        Event::StepCompleted { op, output: Payload::coded("zip", vec![202, 254]) },
        Event::StepFailed { op, failure: full_failure() },
        Event::StepRetried {
            op,
            attempt: 2,
            failure: Failure::new(FailureKind::Timeout, "the attempt took longer than its timeout of 30s")
                .of_step("charge", 2),
            retry_at: moment(),
            details: None,
        },
        Event::StepRetried {
            op,
            attempt: 1,
            failure: Failure::new(FailureKind::Error, "no").of_step("charge", 1),
            retry_at: moment(),
            details: Some(Box::new(plain(json!({"rows": 700})))),
        },
        Event::StepRetried {
            op,
            attempt: 1,
            failure: Failure::new(FailureKind::Error, "no").of_step("charge", 1),
            retry_at: moment(),
            details: Some(Box::new(Payload::coded("aes-1", vec![7, 8]))),
        },
        Event::StepDropped { op },
    ];
    examples.extend(failure_kinds(rules).map(failed));
    examples.extend(error_classes().map(|class| {
        let failure = Failure::new(FailureKind::Error, "no").with_code("bank_closed").of_step("charge", 3);
        Event::StepFailed { op, failure: Failure { class: Some(class), is_exhausted: true, ..failure } }
    }));
    examples
}

fn wait_examples(rules: u32) -> Vec<Event> {
    let op = OpNumber(4);
    let message = MessageId::from_bits(0x0190_0000_0000_0000_0000_0000_0000_002a);
    let mut examples = vec![
        Event::TimerStarted { op, fire_at: moment() },
        Event::TimerStarted { op, fire_at: Timestamp::NEVER },
        Event::TimerFired { op },
        Event::TimerWoken { message, ops: vec![], actor: None },
        Event::TimerWoken { message, ops: vec![OpNumber(0), op], actor: None },
        Event::TimerCancelled { op },
        Event::HookOpened { op, name: "review".into(), timeout_at: None, of: None },
        Event::HookOpened { op, name: "review".into(), timeout_at: Some(moment()), of: None },
        Event::HookClosed { op },
        Event::ValueRecorded { op, name: "quote".into(), value: Ok(plain(json!({"cents": 4200}))) },
        Event::ValueRecorded { op, name: "quote".into(), value: Ok(Payload::null()) },
        Event::ValueRecorded { op, name: "quote".into(), value: Ok(Payload::coded("aes-1", vec![7])) },
        Event::ValueRecorded {
            op,
            name: "quote".into(),
            value: Err(Failure::new(FailureKind::Limit, "the payload is nested 65 levels deep")),
        },
        Event::VersionChosen { name: "new \"tax\"".into() },
    ];
    examples.extend(tokens::hook_examples(rules, message, op));
    examples.extend(cancel_examples(rules, message, op));
    examples
}

fn cancel_examples(rules: u32, message: MessageId, op: OpNumber) -> Vec<Event> {
    let cancel = |message, reason: &str, ops: Vec<OpNumber>, maybe_attempted| {
        let (pauses, ends) = if rules == 1 { (ops, Vec::new()) } else { (Vec::new(), ops) };
        Event::CancelRequested { message, reason: reason.into(), actor: None, pauses, ends, maybe_attempted }
    };
    let mut examples = vec![
        cancel(Some(message), "", vec![], vec![]),
        cancel(None, "its deadline passed", vec![], vec![]),
        cancel(Some(message), "the customer \"left\"", vec![OpNumber(0), op], vec![]),
    ];
    if rules > 1 {
        examples.push(cancel(Some(message), "stop", vec![OpNumber(0), OpNumber(3), op], vec![OpNumber(3)]));
    }
    examples
}

fn full_failure() -> Failure {
    Failure {
        details: Some(Box::new(json!({"code": 402, "nul": "\u{0}", "parts": [null, true]}))),
        causes: ["the bank said no".into(), "line\nbreak".into()].into(),
        ..Failure::new(FailureKind::Fatal, "no money").of_step("charge", 3)
    }
}

fn plain(value: Value) -> Payload {
    Payload::json(&value).unwrap()
}

fn moment() -> Timestamp {
    Timestamp::from_micros(1_767_225_600_000_001)
}

fn written(events: &[Event]) -> String {
    let mut text = String::new();
    Event::write_all(events, &mut text);
    text
}

/// The file of a kind in a version. A kind without a line here does not compile.
fn golden(version: u32, event: &Event) -> PathBuf {
    let file = match event {
        Event::RunStarted(_) => "run_started",
        Event::RunContinued(_) => "run_continued",
        Event::RunCompleted { .. } => "run_completed",
        Event::RunFailed { .. } => "run_failed",
        Event::RunCancelled { .. } => "run_cancelled",
        Event::RunTerminated { .. } => "run_terminated",
        Event::StepStarted { .. } => "step_started",
        Event::StepCompleted { .. } => "step_completed",
        Event::StepFailed { .. } => "step_failed",
        Event::StepRetried { .. } => "step_retried",
        Event::StepDropped { .. } => "step_dropped",
        Event::TimerStarted { .. } => "timer_started",
        Event::TimerFired { .. } => "timer_fired",
        Event::TimerWoken { .. } => "timer_woken",
        Event::TimerCancelled { .. } => "timer_cancelled",
        Event::HookOpened { .. } => "hook_opened",
        Event::HookReceived { .. } => "hook_received",
        Event::HookTaken { .. } => "hook_taken",
        Event::HookRejected { .. } => "hook_rejected",
        Event::HookClosed { .. } => "hook_closed",
        Event::ChildStarted(_) => "child_started",
        Event::ChildDetached { .. } => "child_detached",
        Event::ChildCompleted { .. } => "child_completed",
        Event::ChildFailed { .. } => "child_failed",
        Event::ChildCancelled { .. } => "child_cancelled",
        Event::ChildDropped { .. } => "child_dropped",
        Event::OperationCancelled { .. } => "operation_cancelled",
        Event::TagsSet { .. } => "tags_set",
        Event::ValueRecorded { .. } => "value_recorded",
        Event::VersionChosen { .. } => "version_chosen",
        Event::CancelRequested { .. } => "cancel_requested",
        Event::RunRetried(_) => "run_retried",
        Event::RunForked(_) => "run_forked",
        other => tokens::file_name(other),
    };
    folder(version).join(file).with_extension("json")
}

fn folder(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/v{version}"))
}

fn any_judgement() -> impl Strategy<Value = Judgement> {
    prop_oneof![
        Just(Judgement::Kept),
        (0..u64::from(u32::MAX)).prop_map(|op| Judgement::TakenBy(OpNumber(op))),
        any_text().prop_map(Judgement::Rejected),
    ]
}

/// Every kind of failure that runs with these rules have. One that is missing here does not compile.
fn failure_kinds(rules: u32) -> impl Iterator<Item = FailureKind> {
    let next = move |kind: &FailureKind| {
        Some(match kind {
            FailureKind::Error => FailureKind::Fatal,
            FailureKind::Fatal => FailureKind::Panic,
            FailureKind::Panic => FailureKind::Timeout,
            FailureKind::Timeout => FailureKind::Cancelled,
            FailureKind::Cancelled => FailureKind::Limit,
            FailureKind::Limit => FailureKind::Invalid,
            FailureKind::Invalid => FailureKind::Conflict,
            FailureKind::Conflict => FailureKind::Unknown,
            FailureKind::Unknown if rules == 1 => return None,
            FailureKind::Unknown => FailureKind::MaybeAttempted,
            FailureKind::MaybeAttempted => return None,
        })
    };
    std::iter::successors(Some(FailureKind::Error), next)
}

/// Every class of errors. One that is missing here does not compile.
fn error_classes() -> impl Iterator<Item = ErrorClass> {
    let next = |class: &ErrorClass| {
        Some(match class {
            ErrorClass::Network => ErrorClass::RateLimit,
            ErrorClass::RateLimit => ErrorClass::Server,
            ErrorClass::Server => ErrorClass::Transient,
            ErrorClass::Transient => return None,
        })
    };
    std::iter::successors(Some(ErrorClass::Network), next)
}

#[test]
fn the_writer_writes_what_the_golden_files_hold() {
    for version in VERSIONS {
        let mut rest = examples(version);
        while let Some(first) = rest.first() {
            let path = golden(version, first);
            let kind = first.kind();
            let (events, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|event| event.kind() == kind);
            rest = others;
            let lines: Vec<_> = events.iter().map(|event| written(std::slice::from_ref(event))).collect();
            let lines: Vec<_> = lines.iter().map(|line| &line[1..line.len() - 1]).collect();
            let text = format!("[\n{}\n]\n", lines.join(",\n"));
            assert_eq!(text.replace('\n', ""), written(&events), "line breaks stand between events alone");
            expect_file![&path].assert_eq(&text);
            assert_eq!(Event::read_all(&text), Ok(events), "{}", path.display());
        }
    }
}

#[test]
fn every_kind_has_a_golden_file_and_every_file_a_kind() {
    for version in VERSIONS {
        let files = std::fs::read_dir(folder(version)).unwrap();
        let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let mut kinds: Vec<_> = examples(version).iter().map(|event| golden(version, event)).collect();
        kinds.sort();
        kinds.dedup();
        assert_eq!(files, kinds);
        for event in examples(version) {
            assert!(golden(version, &event).ends_with(format!("{}.json", event.kind())));
        }
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_]{0,8}", any::<String>(), "[\\x00-\\x20\"\\\\/\\x7f\u{2028}\u{ffff}]{0,6}"]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any_text(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        3 => any_json().prop_map(plain),
        1 => (any_text(), any::<Vec<u8>>()).prop_map(|(codec, bytes)| Payload::coded(codec, bytes)),
    ]
}

fn any_failure() -> impl Strategy<Value = Failure> {
    let kinds: Vec<_> = failure_kinds(RULES).collect();
    let step = prop::option::of((any_text(), any::<u32>()));
    // `null` as details is no details: both read back as none.
    let details = prop::option::of(any_json().prop_filter("null", |json| !json.is_null()));
    let causes = prop::collection::vec(any_text(), 0..3);
    let classes = prop::sample::select(error_classes().collect::<Vec<_>>());
    let marks = (prop::option::of(any_text()), prop::option::of(classes), any::<bool>());
    (prop::sample::select(kinds), any_text(), step, details, causes, marks).prop_map(
        |(kind, message, step, details, causes, (code, class, is_exhausted))| {
            let (step, attempts) = step.map_or((None, 0), |(step, attempts)| (Some(step.into()), attempts));
            let (code, causes, details) = (code.map(Into::into), causes.into(), details.map(Box::new));
            let failure = Failure::new(kind, message);
            Failure { code, class, step, attempts, is_exhausted, details, causes, ..failure }
        },
    )
}

fn any_run() -> impl Strategy<Value = RunId> {
    any::<u128>().prop_map(RunId::from_bits)
}

fn any_words() -> impl Strategy<Value = Tags> {
    prop::collection::btree_map(any_text(), any_text(), 0..3)
}

fn any_run_started() -> impl Strategy<Value = Event> {
    let name = any_text().prop_map(Arc::<str>::from);
    let parent = (any_run(), any::<u32>(), any_run(), any::<bool>())
        .prop_map(|(run, op, root, awaits)| Parent { run, op: OpNumber(op.into()), root, awaits });
    let deadline = any::<i64>().prop_map(Timestamp::from_micros);
    let numbers = (any::<u32>(), 1..u32::MAX, any::<u8>());
    let queue = prop_oneof![Just(default_queue()), any_text().prop_map(Arc::<str>::from)];
    let words = (any_words(), any_words(), queue, prop::option::of(any_policy()));
    let links = (prop::option::of(parent), prop::option::of(deadline));
    (name, numbers, prop::option::of(any_text()), any_payload(), words, links).prop_map(
        |(workflow, numbers, key, input, (headers, tags, queue, policy), (parent, deadline))| {
            let (version, rules, priority) = numbers;
            Event::from(RunStarted {
                workflow,
                version,
                rules,
                queue,
                priority,
                key,
                input,
                headers,
                tags,
                parent,
                deadline,
                policy,
                requester: None,
                ending: None,
                forked: None,
            })
        },
    )
}

fn any_policy() -> impl Strategy<Value = Box<Policy>> {
    let times = (prop::option::of(any::<Duration>()), prop::option::of(any::<Duration>()));
    (1..u32::MAX, any::<Duration>(), times, any::<bool>()).prop_map(
        |(attempts, initial, (timeout, heartbeat_timeout), is_at_most_once)| {
            let retry = Retry::api().only(&[ErrorClass::Network]).attempts(attempts).initial(initial);
            Box::new(Policy { retry, timeout, heartbeat_timeout, is_at_most_once, ..Policy::DEFAULT })
        },
    )
}

fn any_queued() -> impl Strategy<Value = Box<Queued>> {
    (any_run(), any_text(), any::<u8>())
        .prop_map(|(run, queue, priority)| Box::new(Queued { run, queue: queue.into(), priority }))
}

fn any_child_started() -> impl Strategy<Value = Event> {
    let name = any_text().prop_map(Arc::<str>::from);
    let at = any::<i64>().prop_map(Timestamp::from_micros);
    let ends = prop::sample::select(vec![ParentEnd::Cancel, ParentEnd::Wait, ParentEnd::Abandon]);
    let numbers = (any::<u32>(), any::<u32>(), any_run(), any::<u8>());
    let queue = prop_oneof![Just(default_queue()), any_text().prop_map(Arc::<str>::from)];
    let ends = (ends, any::<bool>(), queue);
    (name, numbers, prop::option::of(any_text()), any_payload(), prop::option::of(at), ends).prop_map(
        |(
            workflow,
            (op, version, run, priority),
            key,
            input,
            timeout_at,
            (on_parent_end, is_detached, queue),
        )| {
            let op = OpNumber(op.into());
            Event::ChildStarted(Box::new(ChildStarted {
                op,
                run,
                workflow,
                version,
                key,
                input,
                timeout_at,
                queue,
                priority,
                on_parent_end,
                is_detached,
            }))
        },
    )
}

/// Any event of the kind of `example`: each part that is not fixed is drawn.
fn redrawn(example: &Event) -> BoxedStrategy<Event> {
    let op = (0..=i64::MAX as u64).prop_map(OpNumber);
    let at = any::<i64>().prop_map(Timestamp::from_micros);
    let name = any_text().prop_map(Arc::<str>::from);
    let message = any::<u128>().prop_map(MessageId::from_bits);
    match example {
        Event::RunStarted(_) => any_run_started().boxed(),
        Event::RunContinued(_) => any_run_continued().boxed(),
        Event::RunCompleted { .. } => any_payload().prop_map(|output| Event::RunCompleted { output }).boxed(),
        Event::RunFailed { .. } => any_failure().prop_map(|failure| Event::RunFailed { failure }).boxed(),
        Event::RunCancelled { .. } => {
            any_failure().prop_map(|failure| Event::RunCancelled { failure }).boxed()
        }
        Event::RunTerminated { .. } => {
            let event = (any_failure(), any_actor());
            event.prop_map(|(failure, actor)| Event::RunTerminated { failure, actor }).boxed()
        }
        Event::TimerStarted { .. } => {
            (op, at).prop_map(|(op, fire_at)| Event::TimerStarted { op, fire_at }).boxed()
        }
        Event::TimerFired { .. } => op.prop_map(|op| Event::TimerFired { op }).boxed(),
        Event::TimerWoken { .. } => (message, prop::collection::vec(op, 0..4), any_actor())
            .prop_map(|(message, ops, actor)| Event::TimerWoken { message, ops, actor })
            .boxed(),
        Event::TagsSet { .. } => (op, any_words()).prop_map(|(op, tags)| Event::TagsSet { op, tags }).boxed(),
        Event::TimerCancelled { .. } => op.prop_map(|op| Event::TimerCancelled { op }).boxed(),
        Event::HookOpened { .. } => (op, name, prop::option::of(at))
            .prop_map(|(op, name, timeout_at)| Event::HookOpened { op, name, timeout_at, of: None })
            .boxed(),
        Event::HookReceived { .. } => {
            (name, message, any_payload(), any_words(), prop::option::of(at), any_judgement())
                .prop_map(|(name, message, payload, headers, at, judgement)| Event::HookReceived {
                    name,
                    message,
                    payload,
                    headers,
                    at,
                    judgement,
                    to: HookAddress::default(),
                })
                .boxed()
        }
        Event::HookTaken { .. } => {
            (op, message).prop_map(|(op, message)| Event::HookTaken { op, message }).boxed()
        }
        Event::HookRejected { .. } => (name, message, any_text())
            .prop_map(|(name, message, reason)| Event::HookRejected { name, message, reason })
            .boxed(),
        Event::HookClosed { .. } => op.prop_map(|op| Event::HookClosed { op }).boxed(),
        Event::ValueRecorded { value: Ok(_), .. } => (op, name, any_payload())
            .prop_map(|(op, name, value)| Event::ValueRecorded { op, name, value: Ok(value) })
            .boxed(),
        Event::ValueRecorded { value: Err(_), .. } => (op, name, any_failure())
            .prop_map(|(op, name, failure)| Event::ValueRecorded { op, name, value: Err(failure) })
            .boxed(),
        Event::VersionChosen { .. } => name.prop_map(|name| Event::VersionChosen { name }).boxed(),
        Event::CancelRequested { .. } => {
            let ops = || prop::collection::vec(op.clone(), 0..4);
            (prop::option::of(message), any_text(), any_actor(), ops(), ops(), ops())
                .prop_map(|(message, reason, actor, pauses, ends, maybe_attempted)| Event::CancelRequested {
                    message,
                    reason,
                    actor,
                    pauses,
                    ends,
                    maybe_attempted,
                })
                .boxed()
        }
        work => redrawn_work(work),
    }
}

/// Any event of a step's or child's kind.
fn redrawn_work(example: &Event) -> BoxedStrategy<Event> {
    let op = (0..=i64::MAX as u64).prop_map(OpNumber);
    let at = any::<i64>().prop_map(Timestamp::from_micros);
    match example {
        Event::StepStarted { .. } => transactional::any_step_started(),
        Event::StepCompleted { .. } => {
            (op, any_payload()).prop_map(|(op, output)| Event::StepCompleted { op, output }).boxed()
        }
        Event::StepFailed { .. } => {
            (op, any_failure()).prop_map(|(op, failure)| Event::StepFailed { op, failure }).boxed()
        }
        Event::StepRetried { .. } => (op, any::<u32>(), any_failure(), at, prop::option::of(any_payload()))
            .prop_map(|(op, attempt, failure, retry_at, details)| Event::StepRetried {
                op,
                attempt,
                failure,
                retry_at,
                details: details.map(Box::new),
            })
            .boxed(),
        Event::StepDropped { .. } => op.prop_map(|op| Event::StepDropped { op }).boxed(),
        Event::ChildStarted(_) => any_child_started().boxed(),
        Event::ChildDetached { .. } => {
            (op, any_run()).prop_map(|(op, run)| Event::ChildDetached { op, run }).boxed()
        }
        Event::ChildCompleted { .. } => {
            (op, any_payload()).prop_map(|(op, output)| Event::ChildCompleted { op, output }).boxed()
        }
        Event::ChildFailed { .. } => {
            (op, any_failure()).prop_map(|(op, failure)| Event::ChildFailed { op, failure }).boxed()
        }
        Event::ChildCancelled { .. } => {
            (op, any_failure()).prop_map(|(op, failure)| Event::ChildCancelled { op, failure }).boxed()
        }
        Event::ChildDropped { .. } => op.prop_map(|op| Event::ChildDropped { op }).boxed(),
        Event::OperationCancelled { .. } => op.prop_map(|op| Event::OperationCancelled { op }).boxed(),
        Event::RunRetried(_) => retried::any_run_retried().boxed(),
        Event::RunForked(_) => retried::any_run_forked().boxed(),
        other => tokens::redrawn(other),
    }
}

proptest! {
    #[test]
    fn any_events_read_back_as_they_were_written(
        events in prop::collection::vec(prop::sample::select(all_examples()).prop_flat_map(|event| redrawn(&event)), 0..6),
    ) {
        let text = written(&events);
        prop_assert_eq!(Event::read_all(&text).unwrap(), events, "{}", text);
    }
}

#[test]
fn an_event_that_cannot_be_read_is_named_by_its_number_and_kind() {
    let check = |events: &str, expected: &str| {
        let error = Event::read_turn(events, 7).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    let fired = r#"{"kind":"timer_fired","op":3}"#;
    check(
        &format!(r#"[{fired},{{"kind":"timer_fired"}}]"#),
        "event 8 (`timer_fired`) is damaged: it has no field `op`",
    );
    check(&format!(r#"[{fired},{{"kind":"timer_fired","op":"x"}}]"#), "event 8 (`timer_fired`) is damaged: ");
    check(&format!(r#"[{fired},17]"#), "event 8 (`unknown kind`) is damaged: ");
    check(r#"[{"kind":"#, "the events from number 7 on are damaged: ");
    check(
        r#"[{"kind":"from_the_future"}]"#,
        "unknown event kind `from_the_future`; a newer build wrote this history",
    );
}
