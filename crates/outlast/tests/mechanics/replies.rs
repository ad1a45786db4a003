//! Asking a run, and its replies; sending and asking from workflow to workflow.

use outlast::prelude::*;
use outlast::{ErrorKind, RunId, Status};

use super::test_engine::{TestEngine, on_every_world, pause_between_reads};

on_every_world! {
    a_run_replies_to_an_ask,
    an_ask_is_repeated_with_its_key_and_gets_the_same_reply,
    an_ask_by_token_is_answered,
    a_payload_that_cannot_be_decoded_ends_an_ask,
    a_dropped_message_ends_an_ask,
    a_payload_that_is_taken_without_its_message_ends_an_ask,
    the_end_of_the_run_ends_an_ask,
    a_closed_token_ends_an_ask,
    a_new_generation_ends_the_asks_of_the_last,
    an_ask_has_a_timeout,
    a_reply_survives_a_crash,
    a_message_is_replied_to_once,
    a_start_that_sends_starts_or_finds_a_run,
    a_workflow_sends_to_another_run,
    a_workflow_asks_another_run,
    a_workflow_cancels_and_awaits_another_run,
}

const QUOTE: Hook<u32, String> = Hook::new("quote");

/// Replies to this many asks.
#[workflow]
async fn shop(ctx: Context, count: u32) -> Result<u32, Error> {
    for _ in 0..count {
        let message = ctx.hook(QUOTE).received().await?;
        assert!(message.wants_reply());
        QUOTE.reply(&message, &format!("{} euros", message.payload))?;
    }
    ctx.hook::<u32>("end").await
}

async fn a_run_replies_to_an_ask(engine: TestEngine) {
    let _worker = engine.worker(shop).await;
    let run = engine.client.start(shop, 2).await.unwrap().id();
    assert_eq!(engine.client.ask(run, QUOTE, &7).await.unwrap(), "7 euros");
    assert_eq!(engine.client.ask(run, "quote", &8).await.unwrap(), "8 euros");
}

async fn an_ask_is_repeated_with_its_key_and_gets_the_same_reply(engine: TestEngine) {
    let _worker = engine.worker(shop).await;
    let run = engine.client.start(shop, 1).await.unwrap();
    // The program that asks dies before the reply: its payload is sent, and nobody waits any more.
    let (client, id) = (engine.client.clone(), run.id());
    let lost = tokio::spawn(async move { client.ask(id, QUOTE, &7).key("quote-1").await });
    while engine.client.run(id).await.unwrap().sent == 0 {
        pause_between_reads().await;
    }
    lost.abort();
    assert_eq!(engine.client.ask(run.id(), QUOTE, &9).key("quote-1").await.unwrap(), "7 euros");
    engine.send(run.id(), "end", 1).await;
    run.output().await.unwrap();
    assert_eq!(
        engine.client.ask(run.id(), QUOTE, &9).key("quote-1").await.unwrap(),
        "7 euros",
        "after the end"
    );
}

#[workflow]
async fn shop_by_token(ctx: Context, is_closed: bool) -> Result<(), Error> {
    let open = ctx.open_hook(QUOTE).token("shop").await?;
    if is_closed {
        ctx.sleep("1h").await?;
        open.close();
        return ctx.sleep("1h").await;
    }
    let message = open.next().received().await?;
    message.reply(&format!("{} euros", message.payload))?;
    ctx.sleep("1h").await
}

async fn wait_for_token(engine: &TestEngine, token: &str) {
    while engine.client.token(token).await.unwrap().is_none() {
        engine.settle().await;
        pause_between_reads().await;
    }
}

async fn an_ask_by_token_is_answered(engine: TestEngine) {
    let _worker = engine.worker(shop_by_token).await;
    engine.client.start(shop_by_token, false).await.unwrap();
    wait_for_token(&engine, "shop").await;
    assert_eq!(engine.client.ask_token::<String, _>("shop", &7).key("1").await.unwrap(), "7 euros");
    assert_eq!(engine.client.ask_token::<String, _>("shop", &7).key("1").await.unwrap(), "7 euros");
    let error = engine.client.ask_token::<String, _>("nobody", &7).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

async fn a_closed_token_ends_an_ask(engine: TestEngine) {
    let _worker = engine.worker(shop_by_token).await;
    engine.client.start(shop_by_token, true).await.unwrap();
    wait_for_token(&engine, "shop").await;
    let asked = engine.client.ask_token::<String, _>("shop", &7).post().await.unwrap();
    engine.run_to("90m").await;
    assert_eq!(asked.reply().await.unwrap_err().code(), Some("not_answered"));
}

async fn a_payload_that_cannot_be_decoded_ends_an_ask(engine: TestEngine) {
    let _worker = engine.worker(shop).await;
    let run = engine.client.start(shop, 1).await.unwrap().id();
    engine.wait_for_status(run, Status::Waiting).await;
    let error = engine.client.ask(run, "quote", "seven").await.unwrap_err();
    assert_eq!(error.code(), Some("rejected"), "{error}");
    assert_eq!(engine.client.ask(run, QUOTE, &7).await.unwrap(), "7 euros", "it still waits");
}

/// Takes one payload, and does not reply.
#[workflow]
async fn silent(ctx: Context, is_received: bool) -> Result<(), Error> {
    if is_received {
        let message = ctx.hook(QUOTE).received().await?;
        drop(message);
    } else {
        ctx.hook(QUOTE).await?;
    }
    ctx.sleep("1h").await
}

async fn a_dropped_message_ends_an_ask(engine: TestEngine) {
    let _worker = engine.worker(silent).await;
    let run = engine.client.start(silent, true).await.unwrap().id();
    let error = engine.client.ask(run, QUOTE, &7).await.unwrap_err();
    assert_eq!(error.code(), Some("not_answered"), "{error}");
    assert_eq!(engine.status(run).await, Status::Waiting);
}

async fn a_payload_that_is_taken_without_its_message_ends_an_ask(engine: TestEngine) {
    let _worker = engine.worker(silent).await;
    let run = engine.client.start(silent, false).await.unwrap().id();
    let error = engine.client.ask(run, QUOTE, &7).await.unwrap_err();
    assert_eq!(error.code(), Some("not_answered"), "{error}");
}

/// Takes a payload, and ends or continues without a reply.
#[workflow]
async fn ends_silently(ctx: Context, continues: bool) -> Result<(), Error> {
    if ctx.generation() > 1 {
        return ctx.sleep("1h").await;
    }
    let message = ctx.hook(QUOTE).received().await?;
    ctx.sleep("1m").await?;
    let _message = message;
    if continues { ctx.continue_as(&true) } else { Ok(()) }
}

async fn the_end_of_the_run_ends_an_ask(engine: TestEngine) {
    let _worker = engine.worker((ends_silently, shop)).await;
    let run = engine.client.start(ends_silently, false).await.unwrap().id();
    let client = engine.client.clone();
    let ask = tokio::spawn(async move { client.ask(run, QUOTE, &7).await });
    engine.wait_for_history(run, |history| history.contains("hook_received")).await;
    engine.run_to("2m").await;
    assert_eq!(ask.await.unwrap().unwrap_err().code(), Some("not_answered"));
    let waiting = engine.client.start(shop, 0).await.unwrap().id();
    let client = engine.client.clone();
    let ask = tokio::spawn(async move { client.ask(waiting, QUOTE, &7).await });
    engine.wait_for_history(waiting, |history| history.contains("hook_received")).await;
    engine.client.terminate(waiting, "enough").await.unwrap();
    assert_eq!(ask.await.unwrap().unwrap_err().code(), Some("not_answered"), "nobody took it");
}

async fn a_new_generation_ends_the_asks_of_the_last(engine: TestEngine) {
    let _worker = engine.worker(ends_silently).await;
    let run = engine.client.start(ends_silently, true).await.unwrap().id();
    let client = engine.client.clone();
    let ask = tokio::spawn(async move { client.ask(run, QUOTE, &7).await });
    engine.wait_for_history(run, |history| history.contains("hook_received")).await;
    engine.run_to("2m").await;
    assert_eq!(ask.await.unwrap().unwrap_err().code(), Some("not_answered"));
    assert_eq!(engine.status(run).await, Status::Waiting);
}

async fn an_ask_has_a_timeout(engine: TestEngine) {
    let _worker = engine.worker(shop).await;
    let run = engine.client.start(shop, 0).await.unwrap().id();
    let client = engine.client.clone();
    let ask = tokio::spawn(async move { client.ask(run, QUOTE, &7).timeout("10s").await });
    engine.wait_for_history(run, |history| history.contains("hook_received")).await;
    engine.run_to("11s").await;
    assert!(ask.await.unwrap().unwrap_err().is_timeout());
}

async fn a_reply_survives_a_crash(engine: TestEngine) {
    let worker = engine.worker(shop).await;
    let run = engine.client.start(shop, 1).await.unwrap().id();
    assert_eq!(engine.client.ask(run, QUOTE, &7).key("1").await.unwrap(), "7 euros");
    engine.crash(worker);
    let _worker = engine.worker(shop).await;
    assert_eq!(engine.client.ask(run, QUOTE, &7).key("1").await.unwrap(), "7 euros");
    engine.wait_for_history(run, |history| history.matches("reply_sent").count() == 1).await;
}

#[workflow]
async fn replies_twice(ctx: Context) -> Result<String, Error> {
    let message = ctx.hook(QUOTE).received().await?;
    message.reply("first")?;
    Ok(message.reply("second").unwrap_err().to_string())
}

async fn a_message_is_replied_to_once(engine: TestEngine) {
    let _worker = engine.worker(replies_twice).await;
    let run = engine.client.start(replies_twice, ()).await.unwrap();
    assert_eq!(engine.client.ask(run.id(), QUOTE, &7).await.unwrap(), "first");
    assert!(run.output().await.unwrap().contains("already replied"));
}

#[workflow]
async fn cart(ctx: Context, customer: String) -> Result<(String, u32), Error> {
    Ok((customer, ctx.hook::<u32>("add").await? + ctx.hook::<u32>("add").await?))
}

async fn a_start_that_sends_starts_or_finds_a_run(engine: TestEngine) {
    let _worker = engine.worker(cart).await;
    let start = || engine.client.start(cart, "ada").key("cart-ada");
    let first = start().and_send("add", &1).send_key("a").await.unwrap();
    let repeated = start().and_send("add", &9).send_key("a").await.unwrap();
    let second = start().and_send("add", &2).await.unwrap();
    assert_eq!((first.id(), first.id()), (repeated.id(), second.id()));
    assert_eq!((first.is_new(), second.is_new()), (true, false));
    assert_eq!(first.output().await.unwrap(), ("ada".to_owned(), 3));
    assert!(start().and_send("add", &3).await.unwrap_err().is_conflict(), "it has ended");
}

#[workflow]
async fn sends(ctx: Context, other: RunId) -> Result<(), Error> {
    ctx.send(other, "add", &1).await?;
    ctx.send(other, "add", &2).await
}

async fn a_workflow_sends_to_another_run(engine: TestEngine) {
    let _worker = engine.worker((cart, sends)).await;
    let other = engine.client.start(cart, "ada").await.unwrap();
    engine.client.start(sends, other.id()).await.unwrap().output().await.unwrap();
    assert_eq!(other.output().await.unwrap().1, 3);
    let error = engine.client.start(sends, other.id()).await.unwrap().output().await.unwrap_err();
    assert!(error.is_conflict(), "it has ended: {error}");
}

#[workflow]
async fn asks(ctx: Context, other: RunId) -> Result<String, Error> {
    ctx.ask(other, QUOTE, &7).timeout("1h").await
}

async fn a_workflow_asks_another_run(engine: TestEngine) {
    let _worker = engine.worker((shop, silent, asks)).await;
    let other = engine.client.start(shop, 1).await.unwrap().id();
    assert_eq!(engine.client.start(asks, other).await.unwrap().output().await.unwrap(), "7 euros");
    let other = engine.client.start(silent, true).await.unwrap().id();
    let error = engine.client.start(asks, other).await.unwrap().output().await.unwrap_err();
    assert_eq!(error.code(), Some("not_answered"), "{error}");
}

#[workflow]
async fn stops(ctx: Context, (shop, cart): (RunId, RunId)) -> Result<u32, Error> {
    ctx.cancel(shop, "closing time").await?;
    let error = ctx.join_run::<u32>(shop).await.unwrap_err();
    assert!(error.to_string().contains("closing time"), "{error}");
    let (_, sum): (String, u32) = ctx.join_run(cart).await?;
    Ok(sum)
}

async fn a_workflow_cancels_and_awaits_another_run(engine: TestEngine) {
    let _worker = engine.worker((shop, cart, stops)).await;
    let shop = engine.client.start(shop, 1).await.unwrap().id();
    let cart = engine.client.start(cart, "ada").await.unwrap().id();
    let run = engine.client.start(stops, (shop, cart)).await.unwrap();
    engine.wait_for_status(shop, Status::Cancelled).await;
    engine.send(cart, "add", 1).await;
    engine.send(cart, "add", 2).await;
    assert_eq!(run.output().await.unwrap(), 3);
}
