//! Clocks and waiting.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Measures real time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// The time since the start, in seconds.
    pub(crate) fn seconds(self) -> f64 {
        self.elapsed().as_secs_f64()
    }

    /// The time since the start, in microseconds.
    pub(crate) fn micros(self) -> f64 {
        self.seconds() * 1e6
    }
}

/// The CPU time that all threads of this process have used, in microseconds.
pub(crate) fn cpu_micros() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 * 1e6 + used.tv_nsec as f64 / 1e3
}

/// Blocks the thread for a short time, between two checks of another process.
#[allow(clippy::disallowed_methods, reason = "another process is polled, which sends no notification")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Work that takes time and no CPU.
#[allow(clippy::disallowed_methods, reason = "the workload is a step that takes a millisecond")]
pub(crate) async fn work(time: Duration) {
    tokio::time::sleep(time).await;
}
