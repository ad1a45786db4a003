//! Stopping a worker on SIGTERM and SIGINT.

use std::time::Duration;

use super::Worker;
use crate::clock::pause;
use crate::error::Error;

/// How long a worker that stops at once waits for the world to end its session.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

impl Worker {
    /// Works until the process receives SIGTERM or SIGINT (Ctrl-C), then [stops](Self::stop): it waits for running
    /// attempts, for at most the [drain time](crate::WorkerBuilder::drain). After a second signal it stops at once, and
    /// another worker or the next process repeats the attempts that were running.
    ///
    /// After the first call of this function, these signals do not end the process by themselves.
    ///
    /// ```no_run
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(name) }
    /// #[tokio::main]
    /// async fn main() {
    ///     if let Err(error) = work().await {
    ///         eprintln!("{error}");
    ///         // Returning from `main` would wait for blocking steps.
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
    /// When the signal handlers cannot be installed, the world cannot end the session, a second signal arrived before
    /// the worker had stopped, or the worker [stopped by itself](Self::failed).
    pub async fn run_until_signal(mut self) -> Result<(), Error> {
        let mut signals = TerminationSignals::listen().map_err(|error| {
            Error::msg(format!("cannot install signal handlers ({error}); stop the worker with `stop`"))
        })?;
        let signal = tokio::select! {
            signal = signals.next() => signal,
            _ = self.failed() => return self.stop().await,
        };
        let drain = self.current.session().settings.drain;
        tracing::info!(
            signal,
            ?drain,
            "received {signal}: the worker stops, and waits for running attempts; a second signal stops it at once"
        );
        self.stopping.cancel();
        let Some(mut supervisor) = self.supervisor.take() else { return Ok(()) };
        let second = tokio::select! {
            stopped = &mut supervisor => {
                stopped.map_err(|error| Error::msg(format!("the worker's task failed: {error}")))?;
                None
            }
            signal = signals.next() => Some(signal),
        };
        let session = self.current.session();
        let Some(signal) = second else {
            session.settings.check_world()?;
            session.world.leave(session.id).await?;
            return Ok(());
        };
        supervisor.abort();
        session.abandon();
        tokio::select! {
            left = session.world.leave(session.id) => left?,
            () = pause(LEAVE_TIMEOUT) => {}
        }
        Err(Error::msg(format!(
            "the worker stopped at once after a second signal ({signal}); attempts that were running are repeated by \
             another worker"
        )))
    }
}

#[cfg(unix)]
struct TerminationSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl TerminationSignals {
    fn listen() -> std::io::Result<Self> {
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
struct TerminationSignals;

#[cfg(not(unix))]
impl TerminationSignals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        "Ctrl-C"
    }
}
