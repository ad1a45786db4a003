//! User code that panics: the worker continues, and the run has the message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outlast::core::{Codec, Payload, PayloadError};
use outlast::prelude::*;
use outlast::{ErrorKind, Status, StuckReason, World};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::child::{url, wait_until_true, with_timeout};

/// A value that panics when it is serialized, deserialized or dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mine(&'static str);

impl Serialize for Mine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(self.0 != "written", "boom: written");
        serializer.serialize_str(self.0)
    }
}

impl<'de> Deserialize<'de> for Mine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        assert!(text != "read", "boom: read");
        Ok(Self("fine"))
    }
}

struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "boom: dropped");
    }
}

#[step(retry = "none")]
async fn panics() -> Result<u32, StepError> {
    panic!("boom: step")
}

#[step(blocking, retry = "none")]
fn panics_blocking() -> Result<u32, StepError> {
    panic!("boom: blocking step")
}

#[step(retry = "none")]
async fn writes_badly() -> Result<Mine, StepError> {
    Ok(Mine("written"))
}

#[step(retry = "none")]
async fn reads_badly(_mine: Mine) -> Result<u32, StepError> {
    Ok(1)
}

#[step(retry = "none")]
async fn returns_bad() -> Result<Mine, StepError> {
    Ok(Mine("read"))
}

#[step(reconcile = looks_badly, attempts = 2, initial = "1ms")]
async fn looked_for() -> Result<u32, StepError> {
    Err(StepError::msg("no answer"))
}

async fn looks_badly() -> Result<Option<u32>, StepError> {
    panic!("boom: reconcile")
}

#[step(attempts = 2, initial = "1ms")]
async fn fails_once(tries: u32) -> Result<u32, StepError> {
    static TRIES: AtomicU32 = AtomicU32::new(0);
    match TRIES.fetch_add(1, Ordering::Relaxed) {
        0 => Err(StepError::msg("not yet")),
        _ => Ok(tries),
    }
}

#[step]
async fn fine() -> Result<u32, StepError> {
    Ok(1)
}

/// One kind of panic per name.
#[workflow]
async fn careless(ctx: Context, how: String) -> Result<u32, Error> {
    match &*how {
        "step" => ctx.step(panics, ()).await,
        "blocking step" => ctx.step(panics_blocking, ()).await,
        "output written" => ctx.step(writes_badly, ()).await.map(|_| 0),
        "input read" => ctx.step(reads_badly, Mine("read")).await,
        "input written" => ctx.step(reads_badly, Mine("written")).await,
        "output read" => ctx.step(returns_bad, ()).await.map(|_| 0),
        "reconcile" => ctx.step(looked_for, ()).await,
        "on_retry" => ctx.step(fails_once, 7).await,
        "workflow" => panic!("boom: workflow"),
        "workflow after a step" => {
            ctx.step(fine, ()).await?;
            panic!("boom: after a step")
        }
        "drop" => {
            let _grenade = Grenade;
            ctx.step(fine, ()).await
        }
        other => Err(Error::msg(format!("there is no way `{other}`"))),
    }
}

fn refuses(input: &u32) -> Result<(), Error> {
    assert!(*input != 13, "boom: check");
    Ok(())
}

#[workflow(check = refuses)]
async fn checked(_ctx: Context, input: u32) -> Result<u32, Error> {
    Ok(input)
}

#[workflow]
async fn greet(_ctx: Context, name: String) -> Result<String, Error> {
    Ok(format!("hello {name}"))
}

async fn world() -> (tempfile::TempDir, Arc<dyn World>) {
    let folder = tempfile::tempdir().unwrap();
    let world = outlast::open(&url(folder.path())).await.unwrap();
    (folder, world)
}

async fn check_alive(client: &Client) {
    let hello = client.start(greet, "Ada".to_owned()).await.unwrap();
    assert_eq!(with_timeout("a greeting", hello.output()).await.unwrap(), "hello Ada", "the worker lives");
}

/// How a run of `careless` ends: its output, its failure, or why it is stuck.
async fn end_of(client: &Client, how: &str) -> String {
    let run = client.start(careless, how.to_owned()).await.unwrap();
    wait_until_true(how, || async {
        let status = run.view().await.unwrap().status;
        status.is_final() || status == Status::Stuck
    })
    .await;
    let view = run.view().await.unwrap();
    match view.stuck {
        Some(stuck) => {
            assert_eq!(stuck.reason, StuckReason::Panicked, "{how}: {}", stuck.message);
            format!("stuck: {}", stuck.message)
        }
        None => match run.output().await {
            Ok(output) => format!("output: {output}"),
            Err(error) => format!("failed: {error}"),
        },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_contained_wherever_it_comes_from() {
    let (_folder, world) = world().await;
    let worker = Worker::builder(world.clone())
        .register((careless, greet, panics, panics_blocking, writes_badly, reads_badly))
        .register((returns_bad, looked_for, fails_once, fine))
        .on_retry(|about| assert!(about.step != "fails_once", "boom: on_retry"))
        .start()
        .await
        .unwrap();
    let client = Client::new(world);
    let cases = [
        ("step", "failed: ", "boom: step"),
        ("blocking step", "failed: ", "boom: blocking step"),
        ("output written", "failed: ", "boom: written"),
        ("input read", "failed: ", "boom: read"),
        ("input written", "stuck: ", "boom: written"),
        ("output read", "stuck: ", "boom: read"),
        ("reconcile", "failed: ", "boom: reconcile"),
        ("on_retry", "output: ", "7"),
        ("workflow", "stuck: ", "boom: workflow"),
        ("workflow after a step", "stuck: ", "boom: after a step"),
        ("drop", "stuck: ", "boom: dropped"),
    ];
    for (how, sort, text) in cases {
        let end = end_of(&client, how).await;
        assert!(end.starts_with(sort) && end.contains(text), "{how}: {end}");
        check_alive(&client).await;
    }
    assert_eq!(worker.metrics().sessions_lost, 0);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_panics_refuses_the_start() {
    let (_folder, world) = world().await;
    let worker = Worker::builder(world.clone()).register((checked, greet)).start().await.unwrap();
    let client = Client::new(world);
    let starting = client.clone();
    let refused = tokio::spawn(async move { starting.start(checked, 13).await.map(|run| run.id()) }).await;
    match refused {
        Ok(answer) => {
            let error = answer.expect_err("the check panicked");
            assert!(error.to_string().contains("boom: check"), "{error}");
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
        Err(panic) => panic!("the panic reached the caller: {panic}"),
    }
    assert!(client.counts().await.unwrap().values().all(|count| *count == 0), "nothing was started");
    assert_eq!(client.start(checked, 12).await.unwrap().output().await.unwrap(), 12);
    check_alive(&client).await;
    worker.stop().await.unwrap();
}

/// A codec that panics at some values.
#[derive(Debug)]
struct Fragile;

fn has(payload: &Payload, text: &str) -> bool {
    String::from_utf8_lossy(payload.bytes()).contains(text)
}

impl Codec for Fragile {
    fn encode(&self, plain: Payload) -> Result<Payload, PayloadError> {
        assert!(!has(&plain, "unwritable"), "boom: encode");
        Ok(plain)
    }

    fn decode(&self, stored: Payload) -> Result<Payload, PayloadError> {
        assert!(!has(&stored, "unreadable"), "boom: decode");
        Ok(stored)
    }
}

#[step(retry = "none")]
async fn say(text: String) -> Result<String, StepError> {
    Ok(text)
}

#[workflow]
async fn echo(ctx: Context, text: String) -> Result<String, Error> {
    let text = if text == "later" { "unwritable".to_owned() } else { text };
    ctx.step(say, text).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_codec_that_panics_leaves_the_run_stuck() {
    let (_folder, world) = world().await;
    let worker =
        Worker::builder(world.clone()).codec(Fragile).register((echo, say, greet)).start().await.unwrap();
    // A client without the codec writes values that the worker's codec cannot read.
    let client = Client::new(world);
    for (text, boom) in [("later", "boom: encode"), ("unreadable", "boom: decode")] {
        let run = client.start(echo, text.to_owned()).await.unwrap();
        wait_until_true("the run to be stuck", || async {
            run.view().await.unwrap().status == Status::Stuck
        })
        .await;
        let stuck = run.view().await.unwrap().stuck.unwrap();
        assert_eq!(stuck.reason, StuckReason::Panicked, "{}", stuck.message);
        assert!(stuck.message.contains(boom), "{}", stuck.message);
        check_alive(&client).await;
    }
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn a_step_that_blocks_the_runtime_does_not_cost_the_session() {
    let (_folder, world) = world().await;
    let worker = Worker::builder(world.clone())
        .register((sleepy, sleeps_badly))
        .session_time("500ms")
        .start()
        .await
        .unwrap();
    let before = worker.session();
    let run = Client::new(world).start(sleepy, ()).await.unwrap();
    // The only thread of this runtime is blocked for three times the session time.
    assert!(with_timeout("the output", run.output()).await.unwrap() >= 1_500);
    assert_eq!(worker.session(), before);
    assert_eq!(worker.metrics().sessions_lost, 0);
    assert!(worker.metrics().beats > 3, "the beat has a thread of its own");
    worker.stop().await.unwrap();
}

#[step]
#[allow(clippy::disallowed_methods, reason = "what nobody should do, and some do")]
async fn sleeps_badly() -> Result<u64, StepError> {
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    Ok(1_500)
}

#[workflow]
async fn sleepy(ctx: Context) -> Result<u64, Error> {
    ctx.step(sleeps_badly, ()).await
}
