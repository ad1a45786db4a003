//! Programs that open hooks under tokens, reply to payloads, and ask, send to, cancel and await other runs. Seeds from
//! [`CONTROLLED_SEEDS`](super::CONTROLLED_SEEDS) on draw them.

use std::fmt::Debug;

use fastrand::Rng;
use outlast::prelude::*;
use outlast::{OpenHook, RunId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::generate::{any_millis, any_part, any_wanted};
use super::orchestration::Feature;
use super::program::{Program, interpret, scaled};
use super::values::{Number, PayloadType, register_hook};

/// The header with the run that the exchanges of a run are about; children inherit it.
pub(super) const TARGET: &str = "target";

/// The number of chosen tokens. There are few, so that runs compete for them.
pub(super) const TOKENS: u8 = 3;

/// A chosen token.
pub(super) fn token_name(number: u8) -> String {
    format!("token-{number}")
}

/// A part of a program that concerns other runs, or clients that wait for replies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Exchange {
    /// Opens a hook under a token.
    Open(OpenToken),
    /// Opens a hook under a token, and continues as a new generation.
    Carry(OpenToken, Box<Program>),
    /// Takes a payload, executes a program, and replies.
    Answer { name: u8, payload_type: PayloadType, timeout: Option<u64>, replies: bool, before: Box<Program> },
    /// Asks another run.
    Ask { name: u8, payload_type: PayloadType, timeout: u64 },
    /// Sends to another run.
    Send { name: u8, payload_type: PayloadType },
    /// Cancels another run.
    Cancel,
    /// Awaits another run, for some time.
    Await { timeout: u64 },
}

/// A hook that is opened under a token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OpenToken {
    /// The chosen token; `None` for a generated one.
    token: Option<u8>,
    name: u8,
    payload_type: PayloadType,
    keep_for: Option<u64>,
    /// Executed while it is open.
    body: Box<Program>,
    /// How many payloads are taken afterwards.
    takes: u8,
    timeout: Option<u64>,
    /// Whether takers reply to those who wait for it.
    replies: bool,
    end: TokenEnd,
}

/// How a hook with a token is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum TokenEnd {
    /// It is closed.
    Close,
    /// Its handle is dropped.
    Drop,
    /// It is closed, and opened again.
    Reopen,
    /// Another hook takes its token over.
    TakeOver,
}

impl Exchange {
    /// Executes the part, and returns a trace of its results.
    pub(super) async fn execute<const OLDER: bool>(&self, ctx: &Context) -> Result<String, Error> {
        match self {
            Self::Open(opened) => opened.execute::<OLDER>(ctx).await,
            Self::Carry(opened, next) => opened.carry::<OLDER>(ctx, next).await,
            Self::Answer { payload_type, .. } => match payload_type {
                PayloadType::Number => self.answer::<Number<OLDER>, OLDER>(ctx).await,
                PayloadType::Text => self.answer::<String, OLDER>(ctx).await,
                PayloadType::Pair => self.answer::<(u64, bool), OLDER>(ctx).await,
            },
            _ => match target(ctx) {
                Some(target) => self.concern(ctx, target).await,
                None => Ok("nobody".into()),
            },
        }
    }

    async fn answer<T, const OLDER: bool>(&self, ctx: &Context) -> Result<String, Error>
    where
        T: DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let Self::Answer { name, payload_type, timeout, replies, before } = self else {
            return Ok(String::new());
        };
        let hook = ctx.hook::<T>(format!("hook-{name}"));
        register_hook(ctx.run(), &hook, *payload_type);
        let hook = match timeout {
            Some(millis) => hook.timeout(format!("{}ms", scaled(ctx, *millis))),
            None => hook,
        };
        let message = hook.received().await?;
        let seen = interpret::<OLDER>(ctx, before).await?;
        if *replies {
            message.reply(&ctx.random())?;
        }
        Ok(format!("{seen} answer {} {:?}", message.wants_reply(), message.payload))
    }

    /// Does something with another run.
    async fn concern(&self, ctx: &Context, target: RunId) -> Result<String, Error> {
        Ok(match self {
            Self::Ask { name, payload_type, timeout } => {
                let payload = payload_type.payload(ctx.random());
                let ask = ctx.ask(target, format!("hook-{name}"), &payload);
                let reply: Value = ask.timeout(format!("{}ms", scaled(ctx, *timeout))).await?;
                format!("reply {reply}")
            }
            Self::Send { name, payload_type } => {
                let payload = payload_type.payload(ctx.random());
                ctx.send(target, format!("hook-{name}"), &payload).await?;
                "sent".into()
            }
            Self::Cancel => {
                ctx.cancel(target, "cancelled by another run").await?;
                "cancelled".into()
            }
            Self::Await { timeout } => {
                let nap = ctx.sleep(format!("{}ms", scaled(ctx, *timeout)));
                select! {
                    output = ctx.join_run::<Value>(target) => format!("joined {:?}", output.map(|output| output.to_string().len())),
                    _ = nap => "not joined".into(),
                }
            }
            _ => String::new(),
        })
    }
}

/// The run that the exchanges of a run are about.
fn target(ctx: &Context) -> Option<RunId> {
    ctx.headers().get(TARGET)?.parse().ok()
}

impl OpenToken {
    async fn execute<const OLDER: bool>(&self, ctx: &Context) -> Result<String, Error> {
        match self.payload_type {
            PayloadType::Number => self.execute_as::<Number<OLDER>, OLDER>(ctx).await,
            PayloadType::Text => self.execute_as::<String, OLDER>(ctx).await,
            PayloadType::Pair => self.execute_as::<(u64, bool), OLDER>(ctx).await,
        }
    }

    /// Opens the hook; `None` if another run holds the token.
    async fn open<T: DeserializeOwned>(&self, ctx: &Context) -> Result<Option<OpenHook<T>>, Error> {
        let mut opening = ctx.open_hook::<T>(format!("hook-{}", self.name)).metadata(&self.name);
        if let Some(token) = self.token {
            opening = opening.token(token_name(token));
        }
        if let Some(millis) = self.keep_for {
            opening = opening.keep_for(format!("{}ms", scaled(ctx, millis)));
        }
        match opening.await {
            Ok(open) => Ok(Some(open)),
            Err(error) if error.conflicting_run().is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn execute_as<T, const OLDER: bool>(&self, ctx: &Context) -> Result<String, Error>
    where
        T: DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let Some(open) = self.open::<T>(ctx).await? else { return Ok("taken".into()) };
        let mut seen = vec![interpret::<OLDER>(ctx, &self.body).await?];
        for _ in 0..self.takes {
            seen.push(self.take(ctx, &open).await?);
        }
        match self.end {
            TokenEnd::Close => open.close(),
            TokenEnd::Drop => drop(open),
            TokenEnd::Reopen => {
                open.close();
                if let Some(again) = self.open::<T>(ctx).await? {
                    seen.push(self.take(ctx, &again).await?);
                }
            }
            TokenEnd::TakeOver => {
                let again = self.open::<T>(ctx).await?;
                drop(open);
                if let Some(again) = again {
                    seen.push(self.take(ctx, &again).await?);
                }
            }
        }
        Ok(format!("open{seen:?}"))
    }

    /// Takes a payload. A timeout is no failure.
    async fn take<T>(&self, ctx: &Context, open: &OpenHook<T>) -> Result<String, Error>
    where
        T: DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let next = open.next();
        register_hook(ctx.run(), &next, self.payload_type);
        let next = match self.timeout {
            Some(millis) => next.timeout(format!("{}ms", scaled(ctx, millis))),
            None => next,
        };
        if !self.replies {
            return match next.await {
                Ok(payload) => Ok(format!("{payload:?}")),
                Err(error) if error.is_timeout() => Ok("late".into()),
                Err(error) => Err(error),
            };
        }
        match next.received().await {
            Ok(message) => {
                message.reply(&ctx.random())?;
                Ok(format!("{:?}", message.payload))
            }
            Err(error) if error.is_timeout() => Ok("late".into()),
            Err(error) => Err(error),
        }
    }

    /// Opens the hook, and continues with the token.
    async fn carry<const OLDER: bool>(&self, ctx: &Context, next: &Program) -> Result<String, Error> {
        let open = self.open::<Number<OLDER>>(ctx).await?;
        if open.is_some() {
            interpret::<OLDER>(ctx, &self.body).await?;
        }
        ctx.continue_as(next)
    }
}

/// A random part of a program that concerns other runs.
pub(super) fn any_exchange(rng: &mut Rng, depth: u32) -> Program {
    let lower = depth.saturating_sub(1);
    let name = rng.u8(0..2);
    Program::Feature(Feature::Exchange(match rng.u32(0..16) {
        0..=5 => Exchange::Open(any_token(rng, lower)),
        6..=9 => Exchange::Answer {
            name,
            payload_type: any_wanted(rng),
            timeout: rng.bool().then(|| any_millis(rng)),
            replies: rng.u32(0..4) > 0,
            before: Box::new(any_part(rng, lower)),
        },
        10..=12 => Exchange::Ask { name, payload_type: any_wanted(rng), timeout: 1_000 + any_millis(rng) },
        13 => Exchange::Send { name, payload_type: any_wanted(rng) },
        14 if rng.bool() => Exchange::Cancel,
        _ => Exchange::Await { timeout: any_millis(rng) },
    }))
}

/// A program that hands a token to the next generation, which opens it again.
pub(super) fn any_carried_token(rng: &mut Rng, depth: u32) -> Program {
    let opened = any_token(rng, 0);
    let again = OpenToken { body: Box::new(any_part(rng, depth)), ..opened.clone() };
    let parts = vec![Program::Feature(Feature::Exchange(Exchange::Open(again))), any_part(rng, depth)];
    Program::Feature(Feature::Exchange(Exchange::Carry(opened, Box::new(Program::Seq(parts)))))
}

fn any_token(rng: &mut Rng, depth: u32) -> OpenToken {
    OpenToken {
        token: (rng.u32(0..6) > 0).then(|| rng.u8(0..TOKENS)),
        name: rng.u8(0..2),
        payload_type: any_wanted(rng),
        keep_for: (rng.u32(0..4) == 0).then(|| any_millis(rng)),
        body: Box::new(any_part(rng, depth)),
        takes: rng.u8(0..3),
        timeout: (rng.u32(0..4) > 0).then(|| any_millis(rng)),
        replies: rng.bool(),
        end: [TokenEnd::Close, TokenEnd::Drop, TokenEnd::Reopen, TokenEnd::TakeOver][rng.usize(0..4)],
    }
}
