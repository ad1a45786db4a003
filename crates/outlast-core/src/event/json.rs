//! The JSON of events.
//!
//! Events are written by hand, because a payload is already JSON and must be inserted unchanged. They are read through
//! one flat struct of borrowed fields, because a tagged enum would copy every payload twice.

mod children;
mod compensations;
mod generations;
mod hex;
mod hooks;
mod iterations;
mod retried;
mod tokens;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

pub(crate) use hex::{bytes_of_hex, hex_into};

use super::{Event, OpNumber, Queued, RunStarted};
use crate::cut::{CarriedChild, EventPlace};
use crate::failure::Failure;
use crate::forked::ForkOrigin;
use crate::id::{MessageId, RunId};
use crate::iteration::IterationCut;
use crate::limits::QUEUE_DEFAULT;
use crate::payload::Payload;
use crate::queue::default_queue;
use crate::retried::{AdoptableChild, RenewedWait, RestartedRun};
use crate::retry::Policy;
use crate::run::{Parent, ParentEnd, Requester, Status};
use crate::strategy::EndPlan;
use crate::time::Timestamp;
use crate::token::{CarriedToken, WebhookTerms};

/// The part of an error text that says that a newer build is needed, not a backup.
pub const NEWER_BUILD: &str = "a newer build wrote this history";

/// A stored event that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The kind is not known to this build.
    #[error("unknown event kind `{0}`; {NEWER_BUILD}, run that build or a later one")]
    UnknownKind(String),
    /// A required field is missing.
    #[error("event `{kind}` has no field `{field}`")]
    MissingField {
        /// The event's kind.
        kind: String,
        /// The field.
        field: &'static str,
    },
    /// The text is not valid.
    #[error("a stored event is damaged: {0}")]
    Damaged(String),
    /// An event of a turn cannot be read.
    #[error("event {number} (`{kind}`) is damaged: {reason}")]
    DamagedEvent {
        /// Its number in the history.
        number: u64,
        /// Its kind, if it can be read.
        kind: String,
        /// The problem.
        reason: String,
    },
    /// No event of a turn can be read.
    #[error("the events from number {first} on are damaged: {reason}")]
    DamagedTurn {
        /// The number of the turn's first event.
        first: u64,
        /// The problem.
        reason: String,
    },
}

pub(super) fn write_all(events: &[Event], out: &mut String) {
    out.push('[');
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(event, out);
    }
    out.push(']');
}

fn write(event: &Event, out: &mut String) {
    let mut object = Object::begin(out, event.kind());
    event.op().iter().for_each(|op| object.number("op", op.0 as i64));
    match event {
        Event::RunStarted(started) => write_run_started(started, &mut object),
        Event::RunContinued(continued) => generations::write(continued, &mut object),
        Event::RunRetried(retried) => retried::write(retried, &mut object),
        Event::RunForked(forked) => retried::write_forked(forked, &mut object),
        Event::IterationEnded(ended) => iterations::write(ended, &mut object),
        Event::RunCompleted { output }
        | Event::StepCompleted { output, .. }
        | Event::ChildCompleted { output, .. } => object.payload("output", output),
        Event::RunFailed { failure }
        | Event::RunCancelled { failure }
        | Event::ChildFailed { failure, .. }
        | Event::ChildCancelled { failure, .. }
        | Event::StepFailed { failure, .. } => {
            object.json("failure", failure);
        }
        Event::StepStarted { name, input, queued, is_once, is_transactional, .. } => {
            object.text("name", name);
            object.flag("once", *is_once);
            queued.iter().for_each(|queued| write_queued(queued, &mut object));
            object.flag("transactional", *is_transactional);
            object.payload("input", input);
        }
        Event::StepRetried { attempt, failure, retry_at, details, .. } => {
            object.number("attempt", i64::from(*attempt));
            object.json("failure", failure);
            object.number("retry_at", retry_at.as_micros());
            if let Some(details) = details {
                object.payload("details", details);
            }
        }
        Event::ChildStarted(child) => children::write(child, &mut object),
        Event::CompensationRegistered(_)
        | Event::CompensationsKept { .. }
        | Event::CompensationStarted { .. }
        | Event::RunCompensating { .. }
        | Event::RunRetrying(_) => compensations::write(event, &mut object),
        Event::TokenRequested(_)
        | Event::TokenTaken { .. }
        | Event::TokenRefused { .. }
        | Event::TokenClosed { .. }
        | Event::ReplySent { .. }
        | Event::ReplyDropped { .. } => tokens::write(event, &mut object),
        Event::ChildDetached { run, .. } => object.json("run", run),
        Event::TagsSet { tags, .. } => object.json("tags", tags),
        Event::VersionChosen { name } | Event::LoopStarted { name, .. } => object.text("name", name),
        Event::StepDropped { .. }
        | Event::TimerFired { .. }
        | Event::TimerCancelled { .. }
        | Event::ChildDropped { .. }
        | Event::OperationCancelled { .. }
        | Event::HookClosed { .. } => {}
        wait => write_wait(wait, &mut object),
    }
    object.end();
}

/// Events of waits and deliveries.
fn write_wait(event: &Event, object: &mut Object<'_>) {
    match event {
        Event::RunTerminated { failure, actor } => {
            object.json("failure", failure);
            object.optional_text("actor", actor.as_deref());
        }
        Event::TimerStarted { fire_at, .. } => object.number("fire_at", fire_at.as_micros()),
        Event::ValueRecorded { name, value, .. } => {
            object.text("name", name);
            match value {
                Ok(value) => object.payload("value", value),
                Err(failure) => object.json("failure", failure),
            }
        }
        Event::TimerWoken { message, ops, actor } => {
            object.json("message", message);
            object.numbers("ops", ops);
            object.optional_text("actor", actor.as_deref());
        }
        Event::CancelRequested { message, reason, actor, pauses, ends, maybe_attempted } => {
            if let Some(message) = message {
                object.json("message", message);
            }
            object.text("reason", reason);
            object.optional_text("actor", actor.as_deref());
            object.numbers("pauses", pauses);
            object.numbers("ends", ends);
            object.numbers("maybe_attempted", maybe_attempted);
        }
        hook => hooks::write(hook, object),
    }
}

fn write_run_started(started: &RunStarted, object: &mut Object<'_>) {
    object.text("workflow", &started.workflow);
    object.number("version", i64::from(started.version));
    object.number("format", i64::from(started.format()));
    write_start(started, object);
}

fn write_start(started: &RunStarted, object: &mut Object<'_>) {
    if started.rules > 1 {
        object.number("rules", i64::from(started.rules));
    }
    write_line(&started.queue, started.priority, object);
    if let Some(key) = &started.key {
        object.text("key", key);
    }
    object.payload("input", &started.input);
    if !started.headers.is_empty() {
        object.json("headers", &started.headers);
    }
    if !started.tags.is_empty() {
        object.json("tags", &started.tags);
    }
    if let Some(Parent { run, op, root, awaits }) = &started.parent {
        object.json("parent", run);
        object.number("parent_op", op.0 as i64);
        object.json("root", root);
        object.json("parent_awaits", awaits);
    }
    if let Some(deadline) = started.deadline {
        object.number("deadline", deadline.as_micros());
    }
    if let Some(policy) = &started.policy {
        object.json("policy", policy);
    }
    if let Some(requester) = &started.requester {
        object.json("requester", requester);
    }
    if let Some(ending) = &started.ending {
        object.json("ending", ending);
    }
    if let Some(forked) = &started.forked {
        object.json("forked", forked);
    }
}

fn write_queued(queued: &Queued, object: &mut Object<'_>) {
    object.json("run", &queued.run);
    // Always written, even if it is the default queue: its presence marks a queued step.
    object.text("queue", &queued.queue);
    if queued.priority != 0 {
        object.number("priority", i64::from(queued.priority));
    }
}

/// The queue and priority of a run, if they are not the defaults.
fn write_line(queue: &str, priority: u8, object: &mut Object<'_>) {
    if queue != QUEUE_DEFAULT {
        object.text("queue", queue);
    }
    if priority != 0 {
        object.number("priority", i64::from(priority));
    }
}

/// A JSON object that is being written.
struct Object<'a> {
    out: &'a mut String,
}

impl<'a> Object<'a> {
    /// Kinds are plain words, so they need no escaping.
    fn begin(out: &'a mut String, kind: &str) -> Self {
        out.push_str("{\"kind\":\"");
        out.push_str(kind);
        out.push('"');
        Self { out }
    }

    fn field(&mut self, name: &str) {
        self.out.push_str(",\"");
        self.out.push_str(name);
        self.out.push_str("\":");
    }

    fn number(&mut self, name: &str, value: i64) {
        use std::fmt::Write;
        self.field(name);
        // Writing to a String cannot fail.
        let _ = write!(self.out, "{value}");
    }

    /// Omits the field when there are none.
    fn numbers(&mut self, name: &str, ops: &[OpNumber]) {
        if !ops.is_empty() {
            self.json(name, &ops.iter().map(|op| op.0).collect::<Vec<_>>());
        }
    }

    fn text(&mut self, name: &str, value: &str) {
        self.field(name);
        if value.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
            self.out.push('"');
            self.out.push_str(value);
            self.out.push('"');
        } else {
            self.out.push_str(&serde_json::Value::from(value).to_string());
        }
    }

    /// Writes a field that is left out if it is false.
    fn optional_text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    fn flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            self.json(name, &true);
        }
    }

    fn json(&mut self, name: &str, value: &impl serde::Serialize) {
        self.field(name);
        // Only types of this crate, which can all be serialized.
        self.out.push_str(&serde_json::to_string(value).unwrap_or_else(|_| "null".into()));
    }

    fn payload(&mut self, name: &str, payload: &Payload) {
        match (payload.codec(), std::str::from_utf8(payload.bytes())) {
            (None, Ok(json)) => {
                self.field(name);
                self.out.push_str(json);
            }
            (codec, _) => {
                self.text("codec", codec.unwrap_or_default());
                self.field(name);
                self.out.push('"');
                hex_into(payload.bytes(), self.out);
                self.out.push('"');
            }
        }
    }

    fn end(self) {
        self.out.push('}');
    }
}

/// All fields of events. Unknown fields are ignored, because a later build may add some.
#[derive(Default, Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    op: Option<u64>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    codec: Option<Cow<'a, str>>,
    // `default` without `Option`'s null-to-None: the payload `null` is a value.
    #[serde(borrow, default, deserialize_with = "present")]
    input: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    output: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    details: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'a RawValue>,
    failure: Option<Failure>,
    attempt: Option<u32>,
    retry_at: Option<Timestamp>,
    fire_at: Option<Timestamp>,
    timeout_at: Option<Timestamp>,
    message: Option<MessageId>,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    at: Option<Timestamp>,
    taken_by: Option<u64>,
    rejected: Option<String>,
    pauses: Option<Vec<u64>>,
    ends: Option<Vec<u64>>,
    maybe_attempted: Option<Vec<u64>>,
    #[serde(borrow)]
    workflow: Option<Cow<'a, str>>,
    version: Option<u32>,
    rules: Option<u32>,
    #[serde(borrow)]
    queue: Option<Cow<'a, str>>,
    priority: Option<u8>,
    key: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    tags: Option<BTreeMap<String, String>>,
    ops: Option<Vec<u64>>,
    of: Option<u64>,
    ends_as: Option<Status>,
    run: Option<RunId>,
    parent: Option<RunId>,
    parent_op: Option<u64>,
    parent_awaits: Option<bool>,
    root: Option<RunId>,
    deadline: Option<Timestamp>,
    on_parent_end: Option<ParentEnd>,
    detached: Option<bool>,
    transactional: Option<bool>,
    // Boxed, because every event is read through this struct and few have this field.
    policy: Option<Box<Policy>>,
    requester: Option<Box<Requester>>,
    ending: Option<Box<EndPlan>>,
    forked: Option<Box<ForkOrigin>>,
    skips_from: Option<u64>,
    generation: Option<u64>,
    next_op: Option<u64>,
    children: Option<Vec<CarriedChild>>,
    kept: Option<Vec<EventPlace>>,
    previous: Option<Vec<u64>>,
    failed_tries: Option<u32>,
    iteration: Option<u64>,
    cut: Option<Box<IterationCut>>,
    once: Option<bool>,
    from: Option<u64>,
    reopens: Option<u64>,
    restarts: Option<Vec<RestartedRun>>,
    renews: Option<Vec<RenewedWait>>,
    adoptable: Option<Vec<AdoptableChild>>,
    actor: Option<String>,
    #[serde(borrow)]
    token: Option<Cow<'a, str>>,
    reply: Option<bool>,
    generated: Option<bool>,
    keep_for_us: Option<u64>,
    webhook: Option<Box<WebhookTerms>>,
    tokens: Option<Vec<CarriedToken>>,
}

fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

pub(super) fn read_all(text: &str) -> Result<Vec<Event>, EventError> {
    let fields: Vec<Fields<'_>> = serde_json::from_str(text).map_err(|error| why(text, &error))?;
    fields.into_iter().map(read).collect()
}

/// The events of a turn whose first event has this number. An error names the damaged event.
pub(super) fn read_turn(text: &str, first: u64) -> Result<Vec<Event>, EventError> {
    read_all(text).map_err(|error| damaged_of(text, first, error))
}

/// The error of the event that makes a turn unreadable.
fn damaged_of(text: &str, first: u64, error: EventError) -> EventError {
    if matches!(error, EventError::UnknownKind(_)) {
        return error;
    }
    let events: Vec<&RawValue> = match serde_json::from_str(text) {
        Ok(events) => events,
        Err(error) => return EventError::DamagedTurn { first, reason: error.to_string() },
    };
    let reason_of = |event: &str| {
        let fields: Fields<'_> = serde_json::from_str(event).map_err(|error| error.to_string())?;
        read(fields).map(drop).map_err(|error| match error {
            EventError::MissingField { field, .. } => format!("it has no field `{field}`"),
            other => other.to_string(),
        })
    };
    let unreadable = (first..).zip(&events).find_map(|(number, event)| {
        let reason = reason_of(event.get()).err()?;
        Some(EventError::DamagedEvent { number, kind: kind_of(event.get()), reason })
    });
    unreadable.unwrap_or(error)
}

/// The kind of a stored event, whatever its other fields are.
#[derive(Deserialize)]
struct EventKind {
    kind: String,
}

fn kind_of(event: &str) -> String {
    serde_json::from_str::<EventKind>(event).map_or_else(|_| "unknown kind".into(), |event| event.kind)
}

/// Why a text cannot be read. An unknown kind is reported first, because it may use a field with another type.
fn why(text: &str, error: &serde_json::Error) -> EventError {
    let kinds: Vec<EventKind> = serde_json::from_str(text).unwrap_or_default();
    let bare = |EventKind { kind }| read(Fields { kind: Cow::Owned(kind), ..Fields::default() });
    let unknown = |error: &EventError| matches!(error, EventError::UnknownKind(_));
    let damaged = || EventError::Damaged(error.to_string());
    kinds.into_iter().filter_map(|kind| bare(kind).err()).find(unknown).unwrap_or_else(damaged)
}

fn read(mut fields: Fields<'_>) -> Result<Event, EventError> {
    let kind = std::mem::take(&mut fields.kind);
    let need = Need { kind: &kind };
    Ok(match &*kind {
        "run_started" => read_run_started(fields, &need)?.into(),
        "run_continued" => Event::RunContinued(Box::new(generations::read(fields, &need)?)),
        "run_retried" => Event::RunRetried(Box::new(retried::read(fields, &need)?)),
        "run_forked" => Event::RunForked(Box::new(retried::read_forked(fields, &need)?)),
        "run_completed" => {
            Event::RunCompleted { output: need.payload("output", fields.output, &fields.codec)? }
        }
        "run_failed" => Event::RunFailed { failure: need.field("failure", fields.failure)? },
        "run_cancelled" => Event::RunCancelled { failure: need.field("failure", fields.failure)? },
        step if step.starts_with("step_") => read_step(fields, &need)?,
        child if child.starts_with("child_") => children::read(fields, &need)?,
        "tags_set" => Event::TagsSet { op: need.op(fields.op)?, tags: need.field("tags", fields.tags)? },
        "timer_started" => {
            Event::TimerStarted { op: need.op(fields.op)?, fire_at: need.field("fire_at", fields.fire_at)? }
        }
        "timer_fired" => Event::TimerFired { op: need.op(fields.op)? },
        "timer_cancelled" => Event::TimerCancelled { op: need.op(fields.op)? },
        hook if hook.starts_with("hook_") => hooks::read(fields, &need)?,
        "value_recorded" => Event::ValueRecorded {
            op: need.op(fields.op)?,
            name: need.field("name", fields.name)?.into(),
            value: match fields.failure {
                Some(failure) => Err(failure),
                None => Ok(need.payload("value", fields.value, &fields.codec)?),
            },
        },
        compensation if compensation.starts_with("compensation") => {
            compensations::read_compensation(fields, &need)?
        }
        "run_retrying" => Event::RunRetrying(Box::new(compensations::read_retrying(fields, &need)?)),
        "operation_cancelled" => Event::OperationCancelled { op: need.op(fields.op)? },
        token if token.starts_with("token_") || token.starts_with("reply_") => tokens::read(fields, &need)?,
        "loop_started" | "iteration_ended" => iterations::read(fields, &need)?,
        "version_chosen" => Event::VersionChosen { name: need.field("name", fields.name)?.into() },
        "run_terminated" | "run_compensating" | "timer_woken" | "cancel_requested" => {
            read_control(fields, &need)?
        }
        unknown => return Err(EventError::UnknownKind(unknown.into())),
    })
}

/// Reads an event that may record who asked for it.
fn read_control(fields: Fields<'_>, need: &Need<'_>) -> Result<Event, EventError> {
    let actor = fields.actor.map(Into::into);
    Ok(match need.kind {
        "run_terminated" => Event::RunTerminated { failure: need.field("failure", fields.failure)?, actor },
        "run_compensating" => Event::RunCompensating {
            ends_as: need.field("ends_as", fields.ends_as)?,
            failure: need.field("failure", fields.failure)?,
            actor,
        },
        "timer_woken" => {
            Event::TimerWoken { message: need.field("message", fields.message)?, ops: ops(fields.ops), actor }
        }
        _ => Event::CancelRequested {
            message: fields.message,
            reason: need.field("reason", fields.reason)?.into_owned(),
            actor,
            pauses: ops(fields.pauses),
            ends: ops(fields.ends),
            maybe_attempted: ops(fields.maybe_attempted),
        },
    })
}

fn read_step(fields: Fields<'_>, need: &Need<'_>) -> Result<Event, EventError> {
    let op = need.op(fields.op);
    Ok(match need.kind {
        "step_started" => Event::StepStarted {
            op: op?,
            name: need.field("name", fields.name)?.into(),
            input: need.payload("input", fields.input, &fields.codec)?,
            queued: read_queued(fields.run, fields.queue, fields.priority, need)?,
            is_once: fields.once.unwrap_or(false),
            is_transactional: fields.transactional.unwrap_or_default(),
        },
        "step_completed" => {
            Event::StepCompleted { op: op?, output: need.payload("output", fields.output, &fields.codec)? }
        }
        "step_failed" => Event::StepFailed { op: op?, failure: need.field("failure", fields.failure)? },
        "step_retried" => Event::StepRetried {
            op: op?,
            attempt: need.field("attempt", fields.attempt)?,
            failure: need.field("failure", fields.failure)?,
            retry_at: need.field("retry_at", fields.retry_at)?,
            details: match fields.details {
                None => None,
                details => Some(Box::new(need.payload("details", details, &fields.codec)?)),
            },
        },
        "step_dropped" => Event::StepDropped { op: op? },
        unknown => return Err(EventError::UnknownKind(unknown.into())),
    })
}

fn read_queued(
    run: Option<RunId>,
    queue: Option<Cow<'_, str>>,
    priority: Option<u8>,
    need: &Need<'_>,
) -> Result<Option<Box<Queued>>, EventError> {
    let Some(queue) = queue else { return Ok(None) };
    let (run, priority) = (need.field("run", run)?, priority.unwrap_or_default());
    Ok(Some(Box::new(Queued { run, queue: queue.into(), priority })))
}

fn ops(numbers: Option<Vec<u64>>) -> Vec<OpNumber> {
    numbers.unwrap_or_default().into_iter().map(OpNumber).collect()
}

fn read_parent(fields: &Fields<'_>, need: &Need<'_>) -> Result<Option<Parent>, EventError> {
    let Some(run) = fields.parent else { return Ok(None) };
    Ok(Some(Parent {
        run,
        op: OpNumber(need.field("parent_op", fields.parent_op)?),
        root: need.field("root", fields.root)?,
        awaits: fields.parent_awaits.unwrap_or_default(),
    }))
}

fn read_run_started(fields: Fields<'_>, need: &Need<'_>) -> Result<RunStarted, EventError> {
    Ok(RunStarted {
        parent: read_parent(&fields, need)?,
        workflow: need.field("workflow", fields.workflow)?.into(),
        version: need.field("version", fields.version)?,
        rules: fields.rules.unwrap_or(1),
        queue: fields.queue.map_or_else(default_queue, Into::into),
        priority: fields.priority.unwrap_or_default(),
        key: fields.key,
        input: need.payload("input", fields.input, &fields.codec)?,
        headers: fields.headers.unwrap_or_default(),
        tags: fields.tags.unwrap_or_default(),
        deadline: fields.deadline,
        policy: fields.policy,
        requester: fields.requester,
        ending: fields.ending,
        forked: fields.forked,
    })
}

/// Takes a required field, or returns an error that names it.
struct Need<'a> {
    kind: &'a str,
}

impl Need<'_> {
    fn field<T>(&self, field: &'static str, value: Option<T>) -> Result<T, EventError> {
        value.ok_or_else(|| EventError::MissingField { kind: self.kind.into(), field })
    }

    fn op(&self, op: Option<u64>) -> Result<OpNumber, EventError> {
        self.field("op", op).map(OpNumber)
    }

    fn payload(
        &self,
        field: &'static str,
        raw: Option<&RawValue>,
        codec: &Option<Cow<'_, str>>,
    ) -> Result<Payload, EventError> {
        let json = self.field(field, raw)?.get();
        let Some(codec) = codec else {
            return Ok(Payload::from_json_text(json.as_bytes().to_vec()));
        };
        let hex = json.strip_prefix('"').and_then(|json| json.strip_suffix('"'));
        let bytes = hex
            .and_then(bytes_of_hex)
            .ok_or_else(|| EventError::Damaged(format!("`{field}` of `{}` is not hexadecimal", self.kind)))?;
        Ok(Payload::coded(&**codec, bytes))
    }
}
