//! The report of a task: its stages, their durations, and the one that failed.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The stages that have passed.
#[derive(Debug, Default)]
pub(crate) struct Report {
    passed: Vec<(&'static str, Duration)>,
}

impl Report {
    /// Runs one stage. The error contains the name of the stage.
    pub(crate) fn stage<T>(&mut self, name: &'static str, run: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("==> {name}");
        let begin = stopwatch();
        let answer = run();
        let duration = begin.elapsed();
        match answer {
            Ok(value) => {
                self.passed.push((name, duration));
                Ok(value)
            }
            Err(Error::Failed(reason)) => {
                Err(Error::Failed(format!("stage `{name}` failed after {}: {reason}", seconds(duration))))
            }
            Err(usage) => Err(usage),
        }
    }

    /// Prints the passed stages and their durations.
    pub(crate) fn print(&self) {
        eprintln!("\nall passed");
        for (name, duration) in &self.passed {
            eprintln!("  {name:<10} {:>8}", seconds(*duration));
        }
        let total = self.passed.iter().map(|(_, duration)| *duration).sum();
        eprintln!("  {:<10} {:>8}", "total", seconds(total));
    }
}

#[allow(clippy::disallowed_methods, reason = "a task measures real time")]
fn stopwatch() -> Instant {
    Instant::now()
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_stage() {
        let mut report = Report::default();
        report.stage("first", || Ok(())).unwrap();
        let error = report.stage("second", || Err::<(), _>(Error::Failed("no luck".into()))).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("stage `second` failed after") && text.ends_with("no luck"), "{text}");
        assert_eq!(report.passed.len(), 1);
    }
}
