//! Values at the limits, through the whole engine on SQLite: the largest payloads, and a full inbox.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::sync::Arc;

use outlast::core::limits::{BATCH_STARTS_MAX, INBOX_MESSAGES_MAX, PAYLOAD_BYTES_MAX};
use outlast::core::{MessageBody, MessageId, NewMessage};
use outlast::prelude::*;
use outlast::{ErrorKind, Headers, Payload, RunId, World};
use tempfile::TempDir;

async fn open() -> (TempDir, Arc<dyn World>) {
    let folder = tempfile::tempdir().unwrap();
    let world = outlast::open(&format!("sqlite:{}/runs.db", folder.path().display())).await.unwrap();
    (folder, world)
}

/// A text of the maximum size of a payload, including its two quotes.
fn largest(letter: char) -> String {
    std::iter::repeat_n(letter, PAYLOAD_BYTES_MAX - 2).collect()
}

#[step]
async fn next_letter(text: String) -> Result<String, StepError> {
    let letter = char::from(text.as_bytes()[0] + 1);
    Ok(std::iter::repeat_n(letter, text.len()).collect())
}

/// All its payloads have the maximum size: input, step, hook and output.
#[workflow]
async fn large(ctx: Context, input: String) -> Result<String, Error> {
    let second = ctx.step(next_letter, &input).await?;
    let third = ctx.step(next_letter, &second).await?;
    let told: String = ctx.hook("more").await?;
    if told.len() != third.len() {
        return Err(Error::msg("the hook's payload was cut"));
    }
    ctx.step(next_letter, &told).await
}

#[tokio::test]
async fn the_largest_payloads_pass_through_everything_and_are_replayed() {
    let (_folder, world) = open().await;
    let builder = || Worker::builder(world.clone()).register((large, next_letter));
    let client = Client::new(world.clone());
    let worker = builder().start().await.unwrap();
    let run = client.start(large, largest('a')).await.unwrap();
    // The second worker has to read and replay all of it.
    worker.stop().await.unwrap();
    let _worker = builder().start().await.unwrap();
    run.send("more", &largest('x')).await.unwrap();
    assert!(run.output().await.unwrap() == largest('y'));
    let too_large = client.start(large, largest('a') + "a").await.unwrap_err();
    assert_eq!(too_large.kind(), ErrorKind::Limit, "{too_large}");
    let too_large = run.send("more", &(largest('x') + "x")).await.unwrap_err();
    assert_eq!(too_large.kind(), ErrorKind::Limit, "{too_large}");
}

/// Receives numbers as long as they are in order.
#[workflow]
async fn count_messages(ctx: Context, messages: u64) -> Result<u64, Error> {
    for expected in 0..messages {
        let number: u64 = ctx.hook("number").await?;
        if number != expected {
            return Ok(expected);
        }
    }
    Ok(messages)
}

async fn fill_inbox(world: &dyn World, run: RunId) {
    let message = |number: u64| NewMessage {
        id: MessageId::from_bits(u128::from(number) + 1),
        run,
        body: MessageBody::Hook {
            name: "number".into(),
            payload: Payload::json(&number).unwrap(),
            to: Default::default(),
        },
        headers: Headers::new(),
    };
    let messages: Vec<_> = (0..INBOX_MESSAGES_MAX).map(message).collect();
    for batch in messages.chunks(BATCH_STARTS_MAX) {
        for sent in world.send(batch.to_vec()).await.unwrap() {
            sent.unwrap();
        }
    }
}

#[tokio::test]
async fn a_full_inbox_is_read_in_order_and_takes_no_more() {
    let (_folder, world) = open().await;
    let client = Client::new(world.clone());
    let run = client.start(count_messages, INBOX_MESSAGES_MAX).await.unwrap();
    fill_inbox(&*world, run.id()).await;
    let refused = run.send("number", &INBOX_MESSAGES_MAX).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Limit, "{refused}");
    let _worker = Worker::builder(world).register(count_messages).start().await.unwrap();
    assert_eq!(run.output().await.unwrap(), INBOX_MESSAGES_MAX);
    let view = run.view().await.unwrap();
    assert_eq!((view.sent, view.consumed), (INBOX_MESSAGES_MAX, INBOX_MESSAGES_MAX));
}
