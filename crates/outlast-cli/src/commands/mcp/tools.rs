//! The tools: what an assistant may ask for.

use outlast_api::{
    CancelRequest, OperationFilter, PageRequest, Problem, QueryPairs, RunFilter, SendRequest, StartRequest,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::protocol::RpcError;
use crate::exit::CommandError;
use crate::naming::find_run;
use crate::surface::{Control, Surface};

/// How many runs a list has unless asked for more, and at most: an answer must fit into a conversation.
const LIST_DEFAULT: u64 = 20;
const LIST_MAX: u64 = 100;

/// How many operations of a run are shown.
const OPERATIONS_MAX: usize = 100;

/// The tools of a connection.
#[derive(Debug)]
pub(super) struct ToolBox {
    surface: Box<dyn Surface>,
    allow_actions: bool,
}

/// A tool.
struct Tool {
    name: &'static str,
    description: &'static str,
    /// Whether it changes something.
    is_action: bool,
    is_destructive: bool,
    /// The properties of its arguments, and which of them are required.
    properties: fn() -> Value,
    required: &'static [&'static str],
}

/// The request to call a tool.
#[derive(Debug)]
pub(super) struct ToolCall {
    name: String,
    arguments: Map<String, Value>,
}

impl ToolCall {
    pub(super) fn read(params: Value) -> Result<Self, RpcError> {
        let Value::Object(mut params) = params else {
            return Err(RpcError::invalid_params("`params` is not an object"));
        };
        let Some(Value::String(name)) = params.remove("name") else {
            return Err(RpcError::invalid_params("`name` is missing: which tool?"));
        };
        match params.remove("arguments") {
            None | Some(Value::Null) => Ok(Self { name, arguments: Map::new() }),
            Some(Value::Object(arguments)) => Ok(Self { name, arguments }),
            Some(_) => Err(RpcError::invalid_params("`arguments` is not an object")),
        }
    }
}

/// Why a tool did not do it: the assistant reads the text and can correct itself.
struct ToolFailure(String);

impl From<Problem> for ToolFailure {
    fn from(problem: Problem) -> Self {
        let fields = problem.errors.iter().map(|error| format!("\n{}: {}", error.pointer, error.message));
        Self(format!("{}: {}{}", problem.code, problem.detail, fields.collect::<String>()))
    }
}

impl From<CommandError> for ToolFailure {
    fn from(error: CommandError) -> Self {
        Self(error.to_string())
    }
}

const RUN: &str = "The run: its id, its key, the end of its id, @last, @last:WORKFLOW or @failed";

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn of_run() -> Value {
    json!({ "run": text(RUN) })
}

static TOOLS: [Tool; 8] = [
    Tool {
        name: "counts",
        description: "The number of runs in each status, and of those with marks and flags. Begin here.",
        is_action: false,
        is_destructive: false,
        properties: || json!({}),
        required: &[],
    },
    Tool {
        name: "list_runs",
        description: "Runs, the newest first, without payloads. Filters are combined.",
        is_action: false,
        is_destructive: false,
        properties: || {
            json!({
                "status": { "type": "string", "description": "Only this status",
                    "enum": ["pending", "running", "waiting", "stuck", "completed", "failed", "cancelled"] },
                "workflow": text("Only runs of this workflow"),
                "queue": text("Only runs of this queue"),
                "text": text("Only runs with this text in their id, workflow or key"),
                "limit": { "type": "integer", "minimum": 1, "maximum": LIST_MAX, "description": "20 unless set" },
                "cursor": text("`next` of the page before"),
            })
        },
        required: &[],
    },
    Tool {
        name: "show_run",
        description: "A run and its operations: steps with their attempts, timers, hooks and children.",
        is_action: false,
        is_destructive: false,
        properties: of_run,
        required: &["run"],
    },
    Tool {
        name: "explain_run",
        description: "Why a run is in its state: what it waits for, why it failed or is stuck, and what to do.",
        is_action: false,
        is_destructive: false,
        properties: of_run,
        required: &["run"],
    },
    Tool {
        name: "list_workers",
        description: "The joined workers: their builds, queues, workflows and load.",
        is_action: false,
        is_destructive: false,
        properties: || json!({}),
        required: &[],
    },
    Tool {
        name: "start_run",
        description: "Start a run of a workflow. With a key, a repeated start returns the same run.",
        is_action: true,
        is_destructive: false,
        properties: || {
            json!({
                "workflow": text("The workflow"),
                "input": { "description": "Its input; several parameters are an array" },
                "key": text("A key that makes the start idempotent"),
                "queue": text("The queue"),
            })
        },
        required: &["workflow"],
    },
    Tool {
        name: "send",
        description: "Send a payload to a hook of a run, which the run may wait for.",
        is_action: true,
        is_destructive: false,
        properties: || {
            json!({
                "run": text(RUN),
                "hook": text("The hook"),
                "payload": { "description": "The payload" },
                "key": text("A key: a payload with the same key is delivered once"),
                "reply_within": text("How long to wait for the reply of the run, such as 10s"),
            })
        },
        required: &["run", "hook"],
    },
    Tool {
        name: "cancel_run",
        description: "Ask a run to stop. It can clean up, and ends as cancelled. This cannot be undone.",
        is_action: true,
        is_destructive: true,
        properties: || json!({ "run": text(RUN), "reason": text("Why; the history shows it") }),
        required: &["run"],
    },
];

impl Tool {
    fn description(&self) -> Value {
        json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": {
                "type": "object",
                "properties": (self.properties)(),
                "required": self.required,
                "additionalProperties": false,
            },
            "annotations": {
                "readOnlyHint": !self.is_action,
                "destructiveHint": self.is_destructive,
                "openWorldHint": false,
            },
        })
    }

    /// Refuses arguments that the tool does not have, and missing ones.
    fn check(&self, arguments: &Map<String, Value>) -> Result<(), RpcError> {
        let properties = (self.properties)();
        for name in arguments.keys() {
            if properties.get(name).is_none() {
                return Err(RpcError::invalid_params(format!("`{}` has no argument `{name}`", self.name)));
            }
        }
        match self.required.iter().find(|name| !arguments.contains_key(**name)) {
            Some(missing) => Err(RpcError::invalid_params(format!("`{}` needs `{missing}`", self.name))),
            None => Ok(()),
        }
    }
}

impl ToolBox {
    pub(super) fn new(surface: Box<dyn Surface>, allow_actions: bool) -> Self {
        Self { surface, allow_actions }
    }

    fn tools(&self) -> impl Iterator<Item = &'static Tool> {
        let allow_actions = self.allow_actions;
        TOOLS.iter().filter(move |tool| allow_actions || !tool.is_action)
    }

    pub(super) fn list(&self) -> Vec<Value> {
        self.tools().map(Tool::description).collect()
    }

    /// What the assistant should know.
    pub(super) fn instructions(&self) -> String {
        let rights = match self.allow_actions {
            true => "Tools that change runs are available: ask the person before you use one.",
            false => "All tools only read. Ask the person to change runs with the program `outlast`.",
        };
        format!(
            "Durable workflows of Outlast: runs, their operations, and why they are where they are. {rights}"
        )
    }

    /// Calls a tool. What the tool refuses is a result with `isError`.
    pub(super) async fn call(&self, call: ToolCall) -> Result<Value, RpcError> {
        let Some(tool) = self.tools().find(|tool| tool.name == call.name) else {
            let is_action = TOOLS.iter().any(|tool| tool.name == call.name);
            return Err(RpcError::invalid_params(match is_action {
                true => format!("`{}` changes something; start the server with `--allow-actions`", call.name),
                false => format!("there is no tool `{}`", call.name),
            }));
        };
        tool.check(&call.arguments)?;
        Ok(match self.answer(tool.name, call.arguments).await {
            Ok(value) => {
                let content = [json!({ "type": "text", "text": value.to_string() })];
                json!({ "content": content, "structuredContent": value, "isError": false })
            }
            Err(ToolFailure(message)) => {
                json!({ "content": [{ "type": "text", "text": message }], "isError": true })
            }
        })
    }

    async fn answer(&self, tool: &str, mut arguments: Map<String, Value>) -> Result<Value, ToolFailure> {
        let surface = &*self.surface;
        match tool {
            "counts" => written(&surface.counts().await?),
            "list_workers" => written(&surface.workers().await?),
            "list_runs" => self.runs(&arguments).await,
            "show_run" => self.show(&arguments).await,
            "explain_run" => {
                let run = find_run(surface, argument(&arguments, "run")?).await?;
                written(&surface.explain(run).await?)
            }
            "start_run" => {
                let request: StartRequest = read(Value::Object(arguments))?;
                let started = surface.start(request).await?;
                Ok(json!({ "run": started.run, "is_new": started.is_new }))
            }
            "send" => {
                let run = find_run(surface, argument(&arguments, "run")?).await?;
                let hook = argument(&arguments, "hook")?.to_owned();
                arguments.retain(|name, _| name != "run" && name != "hook");
                let request: SendRequest = read(Value::Object(arguments))?;
                written(&surface.send(run, &hook, request).await?)
            }
            _ => {
                let run = find_run(surface, argument(&arguments, "run")?).await?;
                let reason = arguments.get("reason").and_then(Value::as_str).map(str::to_owned);
                written(&surface.control(run, &Control::Cancel(CancelRequest { reason })).await?)
            }
        }
    }

    async fn runs(&self, arguments: &Map<String, Value>) -> Result<Value, ToolFailure> {
        let mut writer = outlast_api::QueryWriter::default();
        for (name, value) in arguments {
            match value {
                Value::String(text) => writer.set(name, Some(text)),
                Value::Number(number) => writer.set(name, Some(number)),
                _ => return Err(ToolFailure(format!("`{name}` is neither text nor a number"))),
            }
        }
        let mut filter = RunFilter::from_query(&writer.finish())?;
        let limit = arguments.get("limit").and_then(Value::as_u64).unwrap_or(LIST_DEFAULT);
        filter.page.limit = usize::try_from(limit.clamp(1, LIST_MAX)).ok();
        written(&self.surface.runs(&filter).await?)
    }

    async fn show(&self, arguments: &Map<String, Value>) -> Result<Value, ToolFailure> {
        let run = find_run(&*self.surface, argument(arguments, "run")?).await?;
        let page = PageRequest { limit: Some(OPERATIONS_MAX), cursor: None };
        let filter = OperationFilter { page, ..OperationFilter::default() };
        let (shown, operations) =
            (self.surface.run(run).await?, self.surface.operations(run, &filter).await?);
        Ok(
            json!({ "run": shown, "operations": operations.items, "has_more_operations": operations.next.is_some() }),
        )
    }
}

fn argument<'a>(arguments: &'a Map<String, Value>, name: &str) -> Result<&'a str, ToolFailure> {
    arguments.get(name).and_then(Value::as_str).ok_or_else(|| ToolFailure(format!("`{name}` is not text")))
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolFailure> {
    // Through text: raw values in a request cannot be read from a tree.
    serde_json::from_str(&arguments.to_string()).map_err(|error| ToolFailure(error.to_string()))
}

fn written<T: Serialize>(answer: &T) -> Result<Value, ToolFailure> {
    // Through text for the same reason.
    let text = serde_json::to_string(answer).map_err(|error| ToolFailure(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| ToolFailure(error.to_string()))
}
