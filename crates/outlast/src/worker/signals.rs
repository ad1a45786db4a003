//! Signals: a worker that stops when the system or a person tells its process to.

use std::time::Duration;

use crate::clock::pause;
use crate::error::Error;
use crate::worker::Worker;

/// How long a worker that leaves at once waits for the world to take its session back.
const GOODBYE: Duration = Duration::from_secs(2);

impl Worker {
    /// Works until the process gets SIGTERM or SIGINT (Ctrl-C), then [stops](Self::stop): attempts under
    /// way may end, for at most the [drain time](crate::WorkerBuilder::drain). A second signal leaves at
    /// once; what was under way is taken over by another worker, or by the next process.
    ///
    /// From the first call on these signals do not end the process by themselves.
    ///
    /// ```no_run
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(name) }
    /// #[tokio::main]
    /// async fn main() {
    ///     if let Err(error) = work().await {
    ///         eprintln!("{error}");
    ///         // Not by returning: that would wait for blocking steps.
    ///         std::process::exit(1);
    ///     }
    /// }
    ///
    /// async fn work() -> Result<(), Error> {
    ///     let world = outlast::open("sqlite:shop.db").await?;
    ///     let worker = Worker::builder(world).register(greet).drain("20s").start().await?;
    ///     worker.run_until_signal().await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// When the signals cannot be heard, the world does not take back the session, or a second signal came
    /// before the worker had stopped.
    pub async fn run_until_signal(mut self) -> Result<(), Error> {
        let mut signals = Signals::hear().map_err(|error| {
            Error::msg(format!("signals cannot be heard ({error}); stop the worker by `stop`"))
        })?;
        let signal = signals.next().await;
        let drain = self.current.session().settings.drain;
        tracing::info!(signal, ?drain, "the worker stops; a second signal leaves at once");
        self.stopping.cancel();
        let Some(mut supervisor) = self.supervisor.take() else { return Ok(()) };
        let again = tokio::select! {
            stopped = &mut supervisor => {
                stopped.map_err(|error| Error::msg(format!("the worker's task failed: {error}")))?;
                None
            }
            signal = signals.next() => Some(signal),
        };
        let session = self.current.session();
        let Some(signal) = again else {
            session.world.leave(session.id).await?;
            return Ok(());
        };
        supervisor.abort();
        session.abandon();
        tokio::select! {
            left = session.world.leave(session.id) => left?,
            () = pause(GOODBYE) => {}
        }
        Err(Error::msg(format!(
            "the worker left at once, by a second signal ({signal}); what was under way is made again by another"
        )))
    }
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn hear() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn hear() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        "Ctrl-C"
    }
}
