//! A run that is addressed by its key.

use outlast_core::{IntoDuration, RunId, RunQuery, RunView, WorldError};
use serde::Serialize;
use serde_json::Value;

use super::{Cancel, Client, Controlled, Explanation, RunHandle};
use crate::authoring::hook::HookFor;
use crate::error::Error;

impl Client {
    /// Addresses a run by the key that it was started with. Each call looks up the run, so it may be started later.
    ///
    /// Outputs are JSON values, so no type is needed. [`find`](Self::find) returns a handle with the type of the
    /// workflow's output.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn checkout(ctx: Context) -> Result<u64, Error> { ctx.hook::<u64>("paid").await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(checkout).start().await?;
    /// # let client = Client::new(world);
    /// client.start(checkout, ()).key("order-7").await?;
    ///
    /// let order = client.by_key("order-7");
    /// order.send("paid", &4200).await?;
    /// assert_eq!(order.output().await?, 4200);
    ///
    /// let error = client.by_key("order-8").cancel("not needed").await.unwrap_err();
    /// assert!(error.to_string().contains("no run has the key `order-8`"));
    /// # worker.stop().await
    /// # }
    /// ```
    pub fn by_key(&self, key: impl Into<String>) -> KeyedRun<'_> {
        KeyedRun { client: self, key: key.into() }
    }
}

/// A run that is addressed by its key; see [`Client::by_key`].
///
/// Every call fails with `NotFound` if no run has the key.
#[derive(Clone, Debug)]
pub struct KeyedRun<'a> {
    client: &'a Client,
    key: String,
}

impl KeyedRun<'_> {
    /// Returns the key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the run's id.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn id(&self) -> Result<RunId, Error> {
        Ok(self.view().await?.id)
    }

    /// Returns the current state of the run.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn view(&self) -> Result<RunView, Error> {
        let query = RunQuery { key: Some(self.key.clone()), limit: 1, ..RunQuery::default() };
        let page = self.client.runs(query).await?;
        page.runs.into_iter().next().ok_or_else(|| {
            let message =
                format!("no run has the key `{}`; start one with `.key(..)`, or check the key", self.key);
            Error::of_world(&WorldError::not_found(message))
        })
    }

    /// Returns a handle to the run, whose output is a JSON value.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn handle(&self) -> Result<RunHandle<Value>, Error> {
        Ok(self.client.handle(self.id().await?))
    }

    /// Sends a payload to a hook of the run; see [`Client::send`]. To set a key or headers of the message, use
    /// `by_key(..).handle().await?.send(..)`.
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub async fn send<T>(&self, hook: impl HookFor<T>, payload: &T) -> Result<(), Error>
    where
        T: Serialize + ?Sized,
    {
        self.client.send(self.id().await?, hook, payload).await
    }

    /// Asks the run to stop; see [`Client::cancel`].
    ///
    /// # Errors
    ///
    /// As [`Client::cancel`].
    pub async fn cancel(&self, reason: &str) -> Result<Cancel, Error> {
        self.client.cancel(self.id().await?, reason).await
    }

    /// Ends the run now, without its code; see [`Client::terminate`].
    ///
    /// # Errors
    ///
    /// As [`Client::terminate`].
    pub async fn terminate(&self, reason: &str) -> Result<Cancel, Error> {
        self.client.terminate(self.id().await?, reason).await
    }

    /// Ends the current sleeps of the run; see [`Client::wake`].
    ///
    /// # Errors
    ///
    /// As [`Client::wake`].
    pub async fn wake(&self) -> Result<(), Error> {
        self.client.wake(self.id().await?).await
    }

    /// Pauses the run; see [`Client::pause`].
    ///
    /// # Errors
    ///
    /// As [`Client::pause`].
    pub async fn pause(&self, reason: &str) -> Result<Controlled, Error> {
        self.client.pause(self.id().await?).reason(reason).await
    }

    /// Ends the pause of the run, or lets every build try it again; see [`Client::resume`].
    ///
    /// # Errors
    ///
    /// As [`Client::resume`].
    pub async fn resume(&self) -> Result<Controlled, Error> {
        self.client.resume(self.id().await?).await
    }

    /// Explains why the run is in its current state; see [`Client::explain`].
    ///
    /// # Errors
    ///
    /// As [`Client::explain`].
    pub async fn explain(&self) -> Result<Explanation, Error> {
        self.client.explain(self.id().await?).await
    }

    /// Waits for the end of the run, and returns its output as a JSON value.
    ///
    /// # Errors
    ///
    /// As [`RunHandle::output`].
    pub async fn output(&self) -> Result<Value, Error> {
        self.handle().await?.output().await
    }

    /// Like [`output`](Self::output), but with a timeout.
    ///
    /// # Errors
    ///
    /// As [`RunHandle::output_within`].
    pub async fn output_within(&self, time: impl IntoDuration) -> Result<Value, Error> {
        self.handle().await?.output_within(time).await
    }
}
