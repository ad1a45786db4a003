//! A client of the world that a worker is built for.

use super::WorkerBuilder;
use crate::client::Client;

impl<S> WorkerBuilder<S> {
    /// A client of the worker's world, with the worker's codec.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn nap(ctx: Context) -> Result<(), Error> { ctx.sleep("1ms").await }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// let builder = Worker::builder(outlast::open("memory:").await?).register(nap);
    /// let client = builder.client();
    /// let worker = builder.start().await?;
    /// client.start(nap, ()).await?.output().await?;
    /// # worker.stop().await }
    /// ```
    pub fn client(&self) -> Client {
        Client::of_worker(self.world.clone(), self.codec.clone())
    }
}
