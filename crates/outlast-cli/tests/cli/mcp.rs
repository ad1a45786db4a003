//! The Model Context Protocol: a real process, and a client that talks to it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use super::support::{Place, program};

/// A server process and its pipes.
struct Assistant {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next_id: u64,
}

impl Assistant {
    fn start(place: &Place, arguments: &[&str]) -> Self {
        let arguments: Vec<_> = ["mcp"].iter().chain(arguments).copied().collect();
        let mut command = program(place.folder.path(), &arguments, &[("OUTLAST_WORLD", "sqlite:shop.db")]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, input, output, next_id: 1 }
    }

    fn write(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        let answer = self.read();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(id)), "{answer}");
        answer
    }

    fn initialize(&mut self) -> Value {
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": client });
        let answer = self.ask("initialize", params);
        self.write(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        answer["result"].clone()
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    fn tools(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap();
        for tool in tools {
            assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
            assert!(tool["annotations"]["readOnlyHint"].is_boolean(), "{tool}");
        }
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Closes the input, and returns the exit code.
    fn end(mut self) -> i32 {
        drop(self.input.take());
        self.process.wait().unwrap().code().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_assistant_reads_runs_and_cannot_change_them() {
    let place = Place::new().await;
    let run = place.client.start_json("survey", 1, "null").key("survey-1").await.unwrap().id();
    place.suspended(run).await;
    let mut assistant = Assistant::start(&place, &[]);
    let begun = assistant.initialize();
    assert_eq!(begun["protocolVersion"], "2025-03-26");
    assert_eq!(begun["serverInfo"]["name"], "outlast");
    assert!(begun["instructions"].as_str().unwrap().contains("only read"));
    assert_eq!(assistant.tools(), ["counts", "list_runs", "show_run", "explain_run", "list_workers"]);
    assert_eq!(assistant.ask("ping", json!({}))["result"], json!({}));

    let counts = assistant.call("counts", json!({}));
    assert_eq!(counts["result"]["structuredContent"]["counts"]["waiting"], 1, "{counts}");
    let list = assistant.call("list_runs", json!({ "workflow": "survey", "status": "waiting", "limit": 5 }));
    assert_eq!(list["result"]["structuredContent"]["items"][0]["id"], run.to_string(), "{list}");
    let text = list["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), list["result"]["structuredContent"]);
    let shown = assistant.call("show_run", json!({ "run": "survey-1" }));
    assert_eq!(shown["result"]["structuredContent"]["operations"][0]["kind"], "hook", "{shown}");
    let why = assistant.call("explain_run", json!({ "run": "@last" }));
    assert!(why["result"]["structuredContent"]["sentence"].as_str().unwrap().contains("rating"), "{why}");
    let workers = assistant.call("list_workers", json!({}));
    assert_eq!(workers["result"]["structuredContent"]["items"].as_array().unwrap().len(), 1);

    for tool in ["start_run", "send", "cancel_run"] {
        let refused = assistant.call(tool, json!({ "run": run, "workflow": "nap", "hook": "rating" }));
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("--allow-actions"), "{message}");
    }
    assert_eq!(place.client.counts().await.unwrap().values().sum::<u64>(), 1);
    assert_eq!(assistant.end(), 0);
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_assistant_that_may_act_starts_sends_and_cancels() {
    let place = Place::new().await;
    let mut assistant = Assistant::start(&place, &["--allow-actions"]);
    assert!(assistant.initialize()["instructions"].as_str().unwrap().contains("ask the person"));
    assert_eq!(assistant.tools().len(), 8);
    let big = "1970670598291982290";
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{{"name":"start_run","arguments":{{"workflow":"echo","input":{big},"key":"e"}}}}}}"#
    );
    assistant.write(&line);
    let started = assistant.read();
    assert_eq!(started["result"]["structuredContent"]["is_new"], true, "{started}");
    let again = assistant
        .call("start_run", json!({ "workflow": "echo", "input": 1970670598291982290_u64, "key": "e" }));
    assert_eq!(again["result"]["structuredContent"]["is_new"], false, "{again}");

    let survey = assistant.call("start_run", json!({ "workflow": "survey" }));
    let run = survey["result"]["structuredContent"]["run"]["id"].clone();
    let sent = assistant.call("send", json!({ "run": run, "hook": "rating", "payload": { "stars": 5 } }));
    assert_eq!(sent["result"]["isError"], false, "{sent}");
    let id: outlast::RunId = run.as_str().unwrap().parse().unwrap();
    assert_eq!(place.client.handle::<Value>(id).output().await.unwrap(), json!({ "stars": 5 }));

    let nap = assistant.call("start_run", json!({ "workflow": "nap" }));
    let nap = nap["result"]["structuredContent"]["run"]["id"].clone();
    let cancelled = assistant.call("cancel_run", json!({ "run": nap, "reason": "a test" }));
    assert_eq!(cancelled["result"]["structuredContent"]["did"], "requested", "{cancelled}");
    let ended = assistant.call("cancel_run", json!({ "run": run }));
    assert_ne!(ended["result"]["structuredContent"]["did"], "requested", "{ended}");
    assert_eq!(assistant.end(), 0);
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_messages_are_refused_and_the_server_goes_on() {
    let place = Place::new().await;
    let mut assistant = Assistant::start(&place, &[]);
    assistant.initialize();
    let code = |answer: &Value| answer["error"]["code"].as_i64().unwrap();
    for (line, expected) in [("{", -32700), ("[]", -32600), (r#"{"jsonrpc":"2.0","id":1}"#, -32600)] {
        assistant.write(line);
        assert_eq!(code(&assistant.read()), expected, "{line}");
    }
    assert_eq!(code(&assistant.ask("resources/list", json!({}))), -32601);
    assert_eq!(code(&assistant.call("no_such_tool", json!({}))), -32602);
    assert_eq!(code(&assistant.call("show_run", json!({}))), -32602);
    assert_eq!(code(&assistant.call("counts", json!({ "colour": 1 }))), -32602);
    let unknown = assistant.call("show_run", json!({ "run": "nobody" }));
    assert_eq!(unknown["result"]["isError"], true, "{unknown}");
    assert!(unknown["result"]["content"][0]["text"].as_str().unwrap().contains("no run"), "{unknown}");
    let bad = assistant.call("list_runs", json!({ "status": "sleeping" }));
    assert_eq!(bad["result"]["isError"], true, "{bad}");
    assert_eq!(assistant.end(), 0);
    place.stop().await;
}
