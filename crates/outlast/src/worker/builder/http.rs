//! Settings for requests of workflows, with the feature `http`.

use super::WorkerBuilder;
use crate::error::Error;
use crate::http::{FETCH, Network, fetch};

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Gives the worker a secret for requests that [name it](crate::http::Request::bearer). It is never recorded, and
    /// not shown in errors or logs.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(name) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// let token = std::env::var("STRIPE_TOKEN").unwrap_or_default();
    /// let worker = Worker::builder(world).register(greet).secret("stripe", token).start().await?;
    /// # worker.stop().await
    /// # }
    /// ```
    #[must_use]
    pub fn secret(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let value = value.into();
        self.secret_from(name, move || Ok::<_, Error>(value.clone()))
    }

    /// Gives the worker a secret that is read again for every attempt, for example from a file that is replaced when
    /// the secret changes. The function must not block for long. An error makes the attempt fail.
    #[must_use]
    pub fn secret_from<E: std::fmt::Display>(
        mut self,
        name: impl Into<String>,
        read: impl Fn() -> Result<String, E> + Send + Sync + 'static,
    ) -> Self {
        self.fetch.secrets.insert(name.into(), move || read().map_err(|error| error.to_string()));
        self
    }

    /// Allows requests to a network that is not public: an address, or a network such as `10.1.0.0/16`. See
    /// [`http`](crate::http#addresses).
    #[must_use]
    pub fn allow_network(mut self, network: &str) -> Self {
        match Network::parse(network) {
            Ok(network) => self.fetch.allowed.push(network),
            Err(problem) => self.problem = Some(Error::invalid(problem)),
        }
        self
    }

    /// Adds the built-in step.
    pub(super) fn add_fetch(&mut self) {
        let settings = self.fetch.clone();
        self.registry.add_step_of(FETCH, move |cx, request| {
            let settings = settings.clone();
            async move { fetch(&settings, &cx, request).await }
        });
    }
}
