//! What is printed: types of the API, digits, control characters, closed pipes.

use std::io::Read;
use std::process::Stdio;

use outlast_api::{
    AuditJson, ChildrenJson, ControlledJson, EventJson, ExplanationJson, ItemPage, OperationJson, OutputJson,
    QueueDetailJson, QueueListJson, RunJson, SentJson, StateJson, StreamListJson, WorkerListJson,
    WorkflowDetailJson, WorkflowListJson, WorldJson,
};

use super::support::{Place, program};

#[tokio::test(flavor = "multi_thread")]
async fn json_is_read_by_the_types_of_the_api() {
    let place = Place::new().await;
    let run: RunJson = place.call(&["start", "survey", "--json"]).await.ok().json();
    place.suspended(run.id).await;
    let page: ItemPage<RunJson> = place.call(&["list", "--json"]).await.ok().json();
    assert_eq!(page.items[0].id, run.id);
    let lines = place.call(&["list", "--all", "--jsonl"]).await.ok();
    let items: Vec<RunJson> = lines.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(items.len(), 1);

    let _: RunJson = place.call(&["show", "@last", "--json"]).await.ok().json();
    let _: ExplanationJson = place.call(&["explain", "@last", "--json"]).await.ok().json();
    let operations: ItemPage<OperationJson> =
        place.call(&["run", "steps", "--all", "@last", "--json"]).await.ok().json();
    assert_eq!(operations.items[0].kind, "hook");
    let events: ItemPage<EventJson> = place.call(&["run", "events", "@last", "--json"]).await.ok().json();
    assert_eq!(events.items[0].kind, "run_started");
    let _: ChildrenJson = place.call(&["run", "children", "@last", "--json"]).await.ok().json();
    let _: StreamListJson = place.call(&["stream", "list", "@last", "--json"]).await.ok().json();
    let _: WorldJson = place.call(&["world", "info", "--json"]).await.ok().json();
    let workers: WorkerListJson = place.call(&["worker", "list", "--json"]).await.ok().json();
    assert_eq!(workers.items.len(), 1);
    let queues: QueueListJson = place.call(&["queue", "list", "--json"]).await.ok().json();
    assert_eq!(queues.items[0].workers, 1);
    let _: QueueDetailJson = place.call(&["queue", "show", "default", "--json"]).await.ok().json();
    let _: ItemPage<AuditJson> = place.call(&["audit", "list", "--json"]).await.ok().json();
    let _: WorkflowDetailJson = place.call(&["workflow", "show", "nap", "--json"]).await.ok().json();
    let _: WorkflowListJson = place.call(&["workflow", "list", "--json"]).await.ok().json();
    let paused: ControlledJson = place.call(&["run", "pause", "@last", "--json"]).await.ok().json();
    assert_eq!(paused.run.id, run.id);
    let _: ControlledJson = place.call(&["run", "resume", "@last", "--json"]).await.ok().json();
    let sent: SentJson = place.call(&["send", "@last", "rating", "5", "--json"]).await.ok().json();
    assert_eq!(sent.delivery, "delivered");
    let output: OutputJson = place.call(&["run", "output", "@last", "--wait", "--json"]).await.ok().json();
    assert_eq!(output.output.unwrap().json.unwrap().get(), "5");
    let _: StateJson = place.call(&["run", "state", "@last", "--json"]).await.ok().json();
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_numbers_keep_all_their_digits() {
    let place = Place::new().await;
    let value = r#"{"id":1970670598291982290,"ratio":1.10}"#;
    let started = place.call(&["start", "echo", value, "--wait"]).await.ok();
    assert!(started.out.contains("1970670598291982290") && started.out.contains("1.10"), "{started:?}");
    for command in [
        &["run", "output", "@last"][..],
        &["run", "output", "@last", "--json"],
        &["run", "state", "@last"],
        &["run", "events", "@last"],
        &["run", "export", "@last"],
    ] {
        let called = place.call(command).await.ok();
        assert!(called.out.contains("1970670598291982290"), "{command:?}: {called:?}");
    }
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_cannot_control_the_terminal() {
    let place = Place::new().await;
    let hostile = "a\u{1b}]0;title\u{7}\u{202e}b\nc";
    let tag = format!("who={hostile}");
    place.call(&["start", "nap", "--key", hostile, "--tag", &tag]).await.ok();
    for command in
        [&["list", "--wide"][..], &["show", "@last"], &["list", "--json"], &["run", "events", "@last"]]
    {
        let called = place.call(command).await.ok();
        let is_safe = |text: &str| !text.contains(['\u{1b}', '\u{7}', '\u{202e}']);
        assert!(is_safe(&called.out) && is_safe(&called.err), "{command:?}: {called:?}");
    }
    let page: ItemPage<RunJson> = place.call(&["list", "--json"]).await.ok().json();
    assert_eq!(page.items[0].key.as_deref(), Some(hostile), "the value itself is unchanged");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pipe_ends_the_command_quietly() {
    let place = Place::new().await;
    // More than a pipe holds: a child of another test may have the pipe open for a moment.
    let starts = (0..300).map(|index| {
        let start = place.client.start_json("survey", 1, "null").key(format!("{index}-{}", "x".repeat(200)));
        std::future::IntoFuture::into_future(start.tag("text", "x".repeat(200)))
    });
    outlast::prelude::try_join_all(starts).await.unwrap();
    let arguments = ["list", "--wide", "-n", "1000"];
    let mut command = program(place.folder.path(), &arguments, &[("OUTLAST_WORLD", "sqlite:shop.db")]);
    let ended = tokio::task::spawn_blocking(move || {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Nobody reads: the pipe is closed before the program writes.
        drop(child.stdout.take());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (child.wait().unwrap().code(), err)
    });
    assert_eq!(ended.await.unwrap(), (Some(0), String::new()));
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_not_a_terminal_has_full_ids_and_no_colours() {
    let place = Place::new().await;
    let run: RunJson = place.call(&["start", "nap", "--json"]).await.ok().json();
    let called = place.call(&["list"]).await.ok();
    assert!(called.out.contains(&run.id.to_string()) && !called.out.contains('\u{1b}'), "{called:?}");
    let colored = place.call(&["list", "--color", "always"]).await.ok();
    assert!(colored.out.contains('\u{1b}'), "{colored:?}");
    let ascii = place.call_with(&["list"], &[("LC_ALL", "C")]).await.ok();
    assert!(ascii.out.is_ascii(), "{ascii:?}");
    let nothing = place.call(&["list", "-o", "none", "-q"]).await.ok();
    assert_eq!((nothing.out.as_str(), nothing.err.as_str()), ("", ""));
    place.stop().await;
}
