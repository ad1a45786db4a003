//! Parameters of queries and headers.

use serde_json::{Value, json};

/// A parameter of a query or header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    kind: Kind,
    is_required: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    Texts,
    Time,
    Number,
    SignedNumber,
    Flag,
    OneOf(&'static [&'static str]),
    AnyOf(&'static [&'static str]),
}

impl Parameter {
    const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, is_required: false }
    }

    pub(crate) fn to_json(self, place: &str) -> Value {
        let schema = match self.kind {
            Kind::Text => json!({ "type": "string" }),
            Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Kind::Time => json!({ "type": "string", "format": "date-time" }),
            Kind::Number => json!({ "type": "integer", "minimum": 0 }),
            Kind::SignedNumber => json!({ "type": "integer" }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::OneOf(names) => json!({ "type": "string", "enum": names }),
            Kind::AnyOf(names) => json!({ "type": "array", "items": { "type": "string", "enum": names } }),
        };
        json!({ "name": self.name, "in": place, "required": self.is_required, "schema": schema })
    }

    /// A valid value, for tests.
    #[cfg(test)]
    pub(crate) fn example(self) -> &'static str {
        match (self.name, self.kind) {
            ("parent" | "root" | "run", _) => "run_00000000000000000000000001",
            ("tag", _) => "name:value",
            ("topics", _) => "counts,runs",
            ("window" | "bucket", _) => "1h",
            (_, Kind::Time) => "2026-11-18T04:26:31Z",
            (_, Kind::Number | Kind::SignedNumber) => "7",
            (_, Kind::Flag) => "true",
            (_, Kind::OneOf(names) | Kind::AnyOf(names)) => names[0],
            (_, Kind::Text | Kind::Texts) => "text",
        }
    }
}

const STATUSES: &[&str] = &["pending", "running", "waiting", "stuck", "completed", "failed", "cancelled"];
const MARKS: &[&str] = &["paused", "compensating", "compensated", "quarantined"];
const AMOUNTS: Kind = Kind::OneOf(&["none", "preview", "full"]);
const ORDER: Parameter = Parameter::new("order", Kind::OneOf(&["newest", "oldest"]));
const RUN: Parameter = Parameter::new("run", Kind::Text);
const LIMIT: Parameter = Parameter::new("limit", Kind::Number);
const CURSOR: Parameter = Parameter::new("cursor", Kind::Text);
const FROM: Parameter = Parameter::new("from", Kind::Number);

pub(crate) const PAGE: &[Parameter] = &[LIMIT, CURSOR];

pub(crate) const STATS: &[Parameter] =
    &[Parameter::new("window", Kind::Text), Parameter::new("bucket", Kind::Text)];

pub(crate) const AUDIT: &[Parameter] = &[
    Parameter::new("actor", Kind::Text),
    Parameter::new("action", Kind::Text),
    RUN,
    Parameter::new("outcome", Kind::OneOf(&["intended", "done", "refused", "failed"])),
    Parameter::new("from", Kind::Time),
    Parameter::new("to", Kind::Time),
    LIMIT,
    CURSOR,
];

pub(crate) const RUNS: &[Parameter] = &[
    Parameter::new("status", Kind::AnyOf(STATUSES)),
    Parameter::new("open", Kind::Flag),
    Parameter::new("mark", Kind::AnyOf(MARKS)),
    Parameter::new("workflow", Kind::Text),
    Parameter::new("queue", Kind::Text),
    Parameter::new("key", Kind::Text),
    Parameter::new("parent", Kind::Text),
    Parameter::new("root", Kind::Text),
    Parameter::new("tag", Kind::Texts),
    Parameter::new("created_from", Kind::Time),
    Parameter::new("created_before", Kind::Time),
    Parameter::new("text", Kind::Text),
    Parameter::new("queued_steps", Kind::Flag),
    ORDER,
    LIMIT,
    CURSOR,
    Parameter::new("flag", Kind::OneOf(&["retrying", "cancelling"])),
    Parameter::new("built_in", Kind::Flag),
    Parameter::new("ended_from", Kind::Time),
    Parameter::new("ended_before", Kind::Time),
];

pub(crate) const HOOKS: &[Parameter] = &[
    Parameter::new("name", Kind::Text),
    Parameter::new("workflow", Kind::Text),
    Parameter::new("kind", Kind::OneOf(&["name", "token", "webhook"])),
    Parameter::new("opened_before", Kind::Time),
    LIMIT,
    CURSOR,
];

pub(crate) const FAILURES: &[Parameter] =
    &[Parameter::new("workflow", Kind::Text), Parameter::new("since", Kind::Time)];

pub(crate) const SCHEDULES: &[Parameter] =
    &[Parameter::new("workflow", Kind::Text), Parameter::new("paused", Kind::Flag), LIMIT, CURSOR];

pub(crate) const LIVE: &[Parameter] = &[
    Parameter::new("topics", Kind::Text),
    RUNS[0],
    RUNS[1],
    RUNS[2],
    RUNS[3],
    RUNS[4],
    RUNS[5],
    RUNS[6],
    RUNS[7],
    RUNS[8],
    RUNS[9],
    RUNS[10],
    RUNS[12],
    RUNS[16],
    RUNS[17],
    ORDER,
    LIMIT,
];

pub(crate) const OPERATIONS: &[Parameter] = &[
    Parameter::new("kind", Kind::Text),
    Parameter::new("status", Kind::Text),
    Parameter::new("name", Kind::Text),
    Parameter::new("payloads", AMOUNTS),
    LIMIT,
    CURSOR,
];

pub(crate) const EVENTS: &[Parameter] = &[
    FROM,
    Parameter::new("kind", Kind::Text),
    Parameter::new("op", Kind::Number),
    ORDER,
    Parameter::new("payloads", AMOUNTS),
    LIMIT,
    CURSOR,
];

pub(crate) const CHUNKS: &[Parameter] = &[
    Parameter::new("from", Kind::SignedNumber),
    LIMIT,
    Parameter::new("attempts", Kind::OneOf(&["surviving", "all"])),
    Parameter::new("payloads", AMOUNTS),
];

pub(crate) const RUN_LIVE: &[Parameter] = &[FROM];

pub(crate) const OUTPUT: &[Parameter] = &[Parameter::new("wait", Kind::Text)];

pub(crate) const RESOLVE: &[Parameter] = &[Parameter { name: "q", kind: Kind::Text, is_required: true }];

pub(crate) const LAST_EVENT_ID: &[Parameter] = &[Parameter::new("Last-Event-ID", Kind::Text)];

pub(crate) const IF_MATCH: &[Parameter] = &[Parameter::new("If-Match", Kind::Text)];

pub(crate) const IDEMPOTENCY_KEY: &[Parameter] = &[Parameter::new("Idempotency-Key", Kind::Text)];

#[cfg(test)]
mod tests {
    use outlast_api::{
        ChunkFilter, EventFilter, FailureFilter, HookFilter, LiveFilter, OperationFilter, OutputQuery,
        PageRequest, QueryPairs, ResolveQuery, RunFilter, ScheduleFilter,
    };

    use super::*;

    /// The parameters that a type reads are those that the document lists.
    fn are_read_by<T: QueryPairs>(parameters: &[Parameter]) {
        for parameter in parameters {
            let query = format!("{}={}", parameter.name, parameter.example());
            if let Err(problem) = T::from_query(&query) {
                panic!("{query}: {problem}");
            }
        }
        assert!(T::from_query("unknown=1").is_err());
    }

    #[test]
    fn documented_parameters_are_read() {
        are_read_by::<RunFilter>(RUNS);
        are_read_by::<LiveFilter>(LIVE);
        are_read_by::<HookFilter>(HOOKS);
        are_read_by::<FailureFilter>(FAILURES);
        are_read_by::<ScheduleFilter>(SCHEDULES);
        are_read_by::<OperationFilter>(OPERATIONS);
        are_read_by::<EventFilter>(EVENTS);
        are_read_by::<ChunkFilter>(CHUNKS);
        are_read_by::<OutputQuery>(OUTPUT);
        are_read_by::<ResolveQuery>(RESOLVE);
        are_read_by::<PageRequest>(PAGE);
    }
}
