//! Parts of programs that open hooks under tokens, reply to payloads, and ask, send to, cancel and await other runs.

use std::fmt::Debug;

use outlast::prelude::*;
use outlast::{OpenHook, RunId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::program::{Program, interpret};
use super::values::{Number, PayloadType};

/// The header with the run that the exchanges of a run are about; children inherit it.
pub(crate) const TARGET: &str = "target";

/// A chosen token.
pub(crate) fn token_name(number: u8) -> String {
    format!("token-{number}")
}

/// A part of a program that concerns other runs, or clients that wait for replies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Exchange {
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
pub(crate) struct OpenToken {
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
    pub(crate) async fn execute(&self, ctx: &Context) -> Result<String, Error> {
        match self {
            Self::Open(opened) => opened.execute(ctx).await,
            Self::Carry(opened, next) => opened.carry(ctx, next).await,
            Self::Answer { payload_type, .. } => match payload_type {
                PayloadType::Number => self.answer::<Number>(ctx).await,
                PayloadType::Text => self.answer::<String>(ctx).await,
                PayloadType::Pair => self.answer::<(u64, bool)>(ctx).await,
            },
            _ => match target(ctx) {
                Some(target) => self.concern(ctx, target).await,
                None => Ok("nobody".into()),
            },
        }
    }

    async fn answer<T>(&self, ctx: &Context) -> Result<String, Error>
    where
        T: DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let Self::Answer { name, timeout, replies, before, .. } = self else {
            return Ok(String::new());
        };
        let hook = ctx.hook::<T>(format!("hook-{name}"));
        let hook = match timeout {
            Some(millis) => hook.timeout(format!("{millis}ms")),
            None => hook,
        };
        let message = hook.received().await?;
        let seen = interpret(ctx, before).await?;
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
                let reply: Value = ask.timeout(format!("{}ms", timeout)).await?;
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
                let nap = ctx.sleep(format!("{}ms", timeout));
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
    async fn execute(&self, ctx: &Context) -> Result<String, Error> {
        match self.payload_type {
            PayloadType::Number => self.execute_as::<Number>(ctx).await,
            PayloadType::Text => self.execute_as::<String>(ctx).await,
            PayloadType::Pair => self.execute_as::<(u64, bool)>(ctx).await,
        }
    }

    /// Opens the hook; `None` if another run holds the token.
    async fn open<T: DeserializeOwned>(&self, ctx: &Context) -> Result<Option<OpenHook<T>>, Error> {
        let mut opening = ctx.open_hook::<T>(format!("hook-{}", self.name)).metadata(&self.name);
        if let Some(token) = self.token {
            opening = opening.token(token_name(token));
        }
        if let Some(millis) = self.keep_for {
            opening = opening.keep_for(format!("{millis}ms"));
        }
        match opening.await {
            Ok(open) => Ok(Some(open)),
            Err(error) if error.conflicting_run().is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn execute_as<T>(&self, ctx: &Context) -> Result<String, Error>
    where
        T: DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let Some(open) = self.open::<T>(ctx).await? else { return Ok("taken".into()) };
        let mut seen = vec![interpret(ctx, &self.body).await?];
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
        let next = match self.timeout {
            Some(millis) => next.timeout(format!("{millis}ms")),
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
    async fn carry(&self, ctx: &Context, next: &Program) -> Result<String, Error> {
        let open = self.open::<Number>(ctx).await?;
        if open.is_some() {
            interpret(ctx, &self.body).await?;
        }
        ctx.continue_as(next)
    }
}
