//! The state that a run publishes.

use std::marker::PhantomData;

use outlast_core::{Busy, Payload, RunId, RunWatch, StateView};
use serde::de::DeserializeOwned;

use super::Client;
use crate::error::Error;

impl Client {
    /// Returns the state that a run has [published](crate::Context::publish) last; `None` if it has published none. The
    /// state is kept when the run has ended.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run, `Invalid` if the state cannot be decoded as a `T`, `Unavailable` if the world
    /// does not respond.
    pub async fn state<T: DeserializeOwned>(&self, run: RunId) -> Result<Option<T>, Error> {
        let view = self.repeat(|| self.world.published(run)).await?;
        let payload = view.state.and_then(|state| state.payload);
        payload.map(|payload| self.decode_state(run, payload)).transpose()
    }

    /// Follows the state that a run publishes. The first value is the current one. A reader that is slower than the run
    /// gets the newest state, and not all of them.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn count(ctx: Context) -> Result<(), Error> {
    /// #     ctx.publish(&1);
    /// #     ctx.sleep("1ms").await?;
    /// #     ctx.publish(&2);
    /// #     Ok(())
    /// # }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(count).start().await?;
    /// # let client = Client::new(world);
    /// # let run = client.start(count, ()).await?.id();
    /// let mut watch = client.watch::<u32>(run);
    /// # let mut last = 0;
    /// while let Some(state) = watch.next().await? {
    ///     println!("now {state}");
    /// #   last = state;
    /// }
    /// // The run has ended.
    /// # assert_eq!(last, 2);
    /// # worker.stop().await }
    /// ```
    pub fn watch<T: DeserializeOwned>(&self, run: RunId) -> StateWatch<T> {
        let watch = self.world.watch(run);
        StateWatch { client: self.clone(), run, watch, version: 0, value: PhantomData }
    }

    fn decode_state<T: DeserializeOwned>(&self, run: RunId, payload: Payload) -> Result<T, Error> {
        let decoded = self.codec.decode(payload).and_then(|plain| plain.decode());
        decoded.map_err(|error| Error::invalid(format!("the state of {run}: {error}")))
    }
}

/// Follows the state of a run; created by [`Client::watch`].
#[derive(Debug)]
pub struct StateWatch<T> {
    client: Client,
    run: RunId,
    watch: RunWatch,
    /// The version of the last state that was returned.
    version: u64,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> StateWatch<T> {
    /// Waits for a state that was not returned before. Returns `None` when the run has ended and its last state was
    /// returned.
    ///
    /// # Errors
    ///
    /// As [`Client::state`]. After `Unavailable` the call can be repeated.
    pub async fn next(&mut self) -> Result<Option<T>, Error> {
        let mut busy = Busy::uncounted();
        loop {
            let StateView { state, has_ended } =
                self.client.repeat(|| self.client.world.published(self.run)).await?;
            if let Some(state) = state.filter(|state| state.version > self.version) {
                self.version = state.version;
                if let Some(payload) = state.payload {
                    return self.client.decode_state(self.run, payload).map(Some);
                }
            }
            if has_ended {
                return Ok(None);
            }
            drop(busy);
            busy = self.client.wait_for_change(&mut self.watch).await;
        }
    }
}
