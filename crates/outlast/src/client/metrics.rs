//! The metrics of this process.

use super::Client;
use crate::telemetry::MetricFamily;

impl Client {
    /// Returns what this process has counted about the world since it opened it: the work of its workers, and the starts
    /// and sends of its clients. The names are those of the guide's page on metrics.
    ///
    /// Counting is always on. A label has at most 200 values, and further ones are counted as `other`. `outlast-server`
    /// writes the metrics in the format of Prometheus; other exporters read them here.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(name) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(greet).start().await?;
    /// # let client = Client::new(world);
    /// client.start(greet, "Ada".to_owned()).await?.output().await?;
    /// let metrics = client.metrics();
    /// let ended = metrics.iter().find(|family| family.name == "outlast_runs_ended_total").unwrap();
    /// assert_eq!(ended.samples[0].labels[0], ("workflow", "greet".to_owned()));
    /// # worker.stop().await
    /// # }
    /// ```
    pub fn metrics(&self) -> Vec<MetricFamily> {
        self.local.metric_families()
    }
}
