//! Hooks with a token: open under a public name, for any number of payloads.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use outlast_core::{Failure, FailureKind, IntoDuration, Payload};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::authoring::context::Context;
use crate::authoring::hook::HookName;
use crate::authoring::operation::HookOperation;
use crate::error::Error;
use crate::replay::{OpHandle, RunState, TokenHandle, TokenOptions, can_read};

impl Context {
    /// Opens a hook under a token, a public name by which anybody who knows it can send to this run. Await the returned
    /// builder for an [`OpenHook`], which takes any number of payloads.
    ///
    /// Without [`token`](OpenHookOperation::token) the engine generates one, of 256 random bits.
    ///
    /// ```
    /// use outlast::prelude::*;
    ///
    /// const REVIEW: Hook<bool> = Hook::new("review");
    ///
    /// #[workflow]
    /// async fn publish(ctx: Context, article: u32) -> Result<u32, Error> {
    ///     let reviews = ctx.open_hook(REVIEW).token(format!("article-{article}")).await?;
    ///     let mut approvals = 0;
    ///     while approvals < 2 {
    ///         approvals += u32::from(reviews.next().timeout("3d").await?);
    ///     }
    ///     Ok(approvals)
    /// } // the token is free again
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(publish).start().await?;
    /// # let client = Client::new(world);
    /// let run = client.start(publish, 7).await?;
    /// # while client.token("article-7").await?.is_none() { tokio::task::yield_now().await; }
    /// client.send_to_token("article-7", &true).await?;
    /// client.send_to_token("article-7", &true).await?;
    /// assert_eq!(run.output().await?, 2);
    /// # worker.stop().await
    /// # }
    /// ```
    ///
    /// Of all runs that have not ended, one can hold a token. If another one does, the operation fails with an error that
    /// [is a conflict](Error::is_conflict) and [names that run](Error::conflicting_run). Opening a token that this run
    /// holds already takes it over, with the payloads that nobody has taken.
    ///
    /// A token is free when the `OpenHook` is dropped or [closed](OpenHook::close), or the run has ended. It stays taken
    /// when the run [continues](Context::continue_as); the next generation opens it again under the same token. Children and
    /// restarted runs do not inherit it.
    #[track_caller]
    pub fn open_hook<T: DeserializeOwned>(&self, hook: impl HookName<T>) -> OpenHookOperation<T> {
        OpenHookOperation {
            ctx: self.clone(),
            name: hook.hook_name().into(),
            options: TokenOptions::default(),
            problem: None,
            handle: None,
            payload: PhantomData,
        }
    }
}

/// Opens a hook under a token; created by [`Context::open_hook`].
#[must_use = "an operation that is dropped is not requested; await it, or keep it"]
pub struct OpenHookOperation<T> {
    ctx: Context,
    name: Arc<str>,
    options: TokenOptions,
    problem: Option<Failure>,
    /// Set when it is polled first.
    handle: Option<OpHandle>,
    payload: PhantomData<fn() -> T>,
}

impl<T> OpenHookOperation<T> {
    /// Chooses the token, of at most 256 bytes. The operation completes when the world has answered.
    ///
    /// Whoever knows a token can send to it, and a chosen one may be guessed. Leave the choice to the engine where this
    /// matters.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.options.token = Some(token.into());
        self
    }

    /// Publishes a value with the token, of at most 4 KiB, which [`Client::token`](crate::Client::token) returns without
    /// waking the run. A value that cannot be stored is an error when the operation is awaited.
    pub fn metadata<M: Serialize + ?Sized>(mut self, metadata: &M) -> Self {
        self.options.metadata = Some(self.ctx.run_state().token_metadata(metadata));
        self
    }

    /// Keeps the token for this long after it was closed or the run has ended: no other run can take it, and what is sent
    /// to it is refused as closed. An invalid duration is an error when the operation is awaited.
    pub fn keep_for(mut self, duration: impl IntoDuration) -> Self {
        match duration.into_duration() {
            Ok(duration) => self.options.keep_for = Some(duration),
            Err(error) => self.problem = Some(Failure::of_error(FailureKind::Invalid, &error)),
        }
        self
    }

    /// Makes the hook a webhook: its payloads are HTTP requests, which a server accepts under these terms.
    #[cfg(feature = "webhooks")]
    pub(crate) fn webhook_terms(&mut self) -> &mut outlast_core::WebhookTerms {
        self.options.webhook.get_or_insert_default()
    }

    /// Lets the operation fail.
    #[cfg(feature = "webhooks")]
    pub(crate) fn fail(&mut self, problem: Failure) {
        self.problem.get_or_insert(problem);
    }

    #[track_caller]
    fn request(&mut self) -> &OpHandle {
        if self.handle.is_none() {
            let options = std::mem::take(&mut self.options);
            let handle = self.ctx.run_state().create_token(&self.name, options, self.ctx.is_shielded());
            if let Some(problem) = self.problem.take() {
                handle.state.fail_before_request(handle.op, problem);
            }
            self.handle = Some(handle);
        }
        self.handle.as_ref().unwrap_or_else(|| unreachable!("it was just set"))
    }
}

/// The outcome of a request of a token.
#[derive(Deserialize)]
#[serde(untagged)]
enum TakenToken {
    Plain(String),
    /// With the public URL of the worker.
    Webhook(String, Option<String>),
}

/// An open hook, and the recorded public URL of a webhook.
type TakenHook<T> = (OpenHook<T>, Option<String>);

impl<T: DeserializeOwned> OpenHookOperation<T> {
    /// Polls the request.
    pub(crate) fn poll_taken(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<TakenHook<T>, Error>> {
        let handle = self.request();
        let taken: Payload = ready!(handle.poll(cx))?;
        let (token, public_url) = match taken.decode().map_err(|error| Error::invalid(error.to_string()))? {
            TakenToken::Plain(token) => (token, None),
            TakenToken::Webhook(token, public_url) => (token, public_url),
        };
        let handle = TokenHandle { state: handle.state.clone(), op: handle.op, token: token.into() };
        let is_shielded = self.ctx.is_shielded();
        let hook = OpenHook { handle, name: self.name.clone(), is_shielded, payload: PhantomData };
        Poll::Ready(Ok((hook, public_url)))
    }
}

impl<T: DeserializeOwned> Future for OpenHookOperation<T> {
    type Output = Result<OpenHook<T>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.poll_taken(cx).map_ok(|(hook, _)| hook)
    }
}

impl<T> std::fmt::Debug for OpenHookOperation<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenHookOperation({})", self.name)
    }
}

/// A hook that is open under a token; created by [`Context::open_hook`]. Dropping it frees the token.
#[derive(Debug)]
pub struct OpenHook<T> {
    handle: TokenHandle,
    name: Arc<str>,
    is_shielded: bool,
    payload: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> OpenHook<T> {
    /// Waits for the next payload that is sent to the token, or to the run by the name of the hook. Payloads are taken in
    /// the order of their arrival. One that was sent while nobody waited is kept.
    #[track_caller]
    pub fn next(&self) -> HookOperation<T> {
        let of = Some((self.handle.op, self.handle.token.clone()));
        let state: &Arc<RunState> = &self.handle.state;
        HookOperation::new(
            state.create_hook_of(&self.name, of, can_read::<T>, self.is_shielded),
            self.name.clone(),
        )
    }
}

impl<T> OpenHook<T> {
    /// Returns the token.
    pub fn token(&self) -> &str {
        &self.handle.token
    }

    /// Returns the hook's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Frees the token. Payloads that nobody has taken are discarded, and senders that wait for a reply get none.
    ///
    /// Dropping it does the same, except when the run continues as a new generation: then the token stays taken.
    pub fn close(self) {
        self.handle.close();
    }
}
