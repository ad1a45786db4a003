//! Processes that do not outlive their owner, even if the owner is killed.
//!
//! The owner holds one end of a pipe, and a small shell beside the process reads from the other. The kernel closes the
//! pipe when the owner dies; the end of the pipe without a line means that the owner has died. The parent-death signal
//! of Linux is no alternative: it is sent when the parent's *thread* ends.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::wait::wait_for;

/// Reads a line, which the owner writes when there is a watcher, and then becomes the program in "$@". Ends if the
/// owner dies before.
const START_SCRIPT: &str = r#"read -r word && exec "$@" </dev/null"#;

/// Waits for the death of the owner, and then ends the process $1. It cannot distinguish an ended process from a
/// zombie, so the number of tries is limited.
const WATCH_SCRIPT: &str = r#"
read -r word && exit 0
kill -s QUIT "$1"
tries=0
while kill -s 0 "$1" && [ "$tries" -lt 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
kill -s KILL "$1"
"#;

/// How long a process may take to end after a signal.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// A process that ends when its owner does.
#[derive(Debug)]
pub(crate) struct GuardedProcess {
    child: Child,
    watcher: Child,
    name: String,
}

impl GuardedProcess {
    /// Starts the program in `folder`, with its output appended to the file `log`.
    pub(crate) fn spawn(
        program: &Path,
        arguments: &[String],
        account: Account,
        folder: &Path,
        log: &Path,
    ) -> Result<Self> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let failed = |error| Error::new(format!("`{}` cannot be started: {error}", program.display()));
        let log = File::options().create(true).append(true).open(log).map_err(failed)?;
        let mut command = Command::new("sh");
        command.args(["-c", START_SCRIPT, "sh"]).arg(program).args(arguments).current_dir(folder);
        // Without the caller's settings for Postgres, and with English messages, because the log is parsed.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("PG") {
                command.env_remove(variable);
            }
        }
        command.env("LC_ALL", "C").env_remove("LANGUAGE");
        let output = log.try_clone().map_err(failed)?;
        command.stdin(Stdio::piped()).stdout(output).stderr(log);
        account.apply(&mut command);
        in_own_process_group(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        let watcher = watcher(WATCH_SCRIPT, &child.id().to_string(), account).map_err(failed)?;
        send_line(&mut child);
        Ok(Self { child, watcher, name })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        stop_watcher(&mut self.watcher);
        Some(status)
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        let name = self.name.clone();
        wait_for(END_TIMEOUT, || self.ended())
            .ok_or_else(|| Error::new(format!("`{name}` has not ended after {} s", END_TIMEOUT.as_secs())))
    }

    /// Sends the signal, and waits for its end.
    pub(crate) fn end(&mut self, signal: &str) -> Result<()> {
        if self.ended().is_none() {
            send(signal, self.pid());
            self.wait()?;
        }
        Ok(())
    }

    /// Kills it, like a crash.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let failed = |error| Error::new(format!("`{}` cannot be killed: {error}", self.name));
        self.child.kill().map_err(failed)?;
        self.wait().map(drop)
    }
}

impl Drop for GuardedProcess {
    fn drop(&mut self) {
        if self.end("QUIT").is_err() {
            let _ = self.kill();
        }
    }
}

/// A shell that reads from a pipe whose other end this process holds.
pub(crate) fn watcher(script: &str, argument: &str, account: Account) -> std::io::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", argument]).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    account.apply(&mut command);
    in_own_process_group(&mut command);
    command.spawn()
}

/// Ends a watcher whose process has ended, so that it does not kill another process that reuses the pid.
pub(crate) fn stop_watcher(watcher: &mut Child) {
    if watcher.stdin.is_some() {
        send_line(watcher);
        let _ = watcher.wait();
    }
}

/// Writes a line into the pipe and closes it.
fn send_line(child: &mut Child) {
    if let Some(mut pipe) = child.stdin.take() {
        // An error means that the reader has ended.
        let _ = pipe.write_all(b"word\n");
    }
}

/// In a process group of its own, so that an interrupt at the terminal reaches only the owner.
#[cfg(unix)]
fn in_own_process_group(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

#[cfg(not(unix))]
fn in_own_process_group(_: &mut Command) {}

/// Sends a signal with the shell's builtin `kill`: the program is not installed everywhere.
fn send(signal: &str, pid: u32) {
    let mut command = Command::new("sh");
    command.args(["-c", r#"kill -s "$1" "$2""#, "sh", signal, &pid.to_string()]);
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn sleeper() -> GuardedProcess {
        let arguments = ["1000".to_owned()];
        let folder = std::env::temp_dir();
        GuardedProcess::spawn(
            Path::new("sleep"),
            &arguments,
            Account::Caller,
            &folder,
            Path::new("/dev/null"),
        )
        .unwrap()
    }

    #[test]
    fn the_process_ends_when_its_owner_dies() {
        let mut sleeper = sleeper();
        // As the kernel does when the owner dies.
        drop(sleeper.watcher.stdin.take());
        assert_eq!(sleeper.wait().unwrap().signal(), Some(3));
    }

    #[test]
    fn the_process_ends_when_its_owner_dies_before_there_is_a_watcher() {
        let mut command = Command::new("sh");
        command.args(["-c", START_SCRIPT, "sh", "sleep", "1000"]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }

    #[test]
    fn the_watcher_ends_with_its_process() {
        let mut sleeper = sleeper();
        sleeper.kill().unwrap();
        assert!(sleeper.watcher.try_wait().unwrap().is_some_and(|status| status.success()));
    }
}
