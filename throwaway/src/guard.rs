//! Processes that do not outlive their owner, not even one that was killed.
//!
//! The owner holds one end of a pipe, and a small shell beside the process reads from the other. The
//! kernel closes the pipe at any death of the owner; an end without a word is the sign. The signal that
//! Linux sends at a parent's death would not do: it comes when the parent's *thread* ends.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::patience::wait_for;

/// Becomes the program in "$@" when it is told to, which is when it has a watcher. The owner's death
/// before that is the end of it.
const BEGIN: &str = r#"read -r word && exec "$@" </dev/null"#;

/// Waits for the end of the owner, and ends the process with the number $1 then. It cannot tell one
/// that has ended from one that nobody has reaped, so it does not try for ever.
const WATCH: &str = r#"
read -r word && exit 0
kill -s QUIT "$1"
tries=0
while kill -s 0 "$1" && [ "$tries" -lt 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
kill -s KILL "$1"
"#;

/// How long a process may take to end when it was asked to.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// A process that ends when its owner does.
#[derive(Debug)]
pub(crate) struct Guarded {
    child: Child,
    watcher: Child,
    name: String,
}

impl Guarded {
    /// Starts the program in `folder`, with all it says added to the file `log`.
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
        command.args(["-c", BEGIN, "sh"]).arg(program).args(arguments).current_dir(folder);
        // The caller's own settings for Postgres are not meant for this one; and what it says is read.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("PG") {
                command.env_remove(variable);
            }
        }
        command.env("LC_ALL", "C").env_remove("LANGUAGE");
        let output = log.try_clone().map_err(failed)?;
        command.stdin(Stdio::piped()).stdout(output).stderr(log);
        account.apply(&mut command);
        alone(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        let watcher = watcher(WATCH, &child.id().to_string(), account).map_err(failed)?;
        say_word(&mut child);
        Ok(Self { child, watcher, name })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        dismiss(&mut self.watcher);
        Some(status)
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        let name = self.name.clone();
        wait_for(END_PATIENCE, || self.ended())
            .ok_or_else(|| Error::new(format!("`{name}` has not ended after {} s", END_PATIENCE.as_secs())))
    }

    /// Asks it to end with the signal, and waits until it has.
    pub(crate) fn end(&mut self, signal: &str) -> Result<()> {
        if self.ended().is_none() {
            send(signal, self.pid());
            self.wait()?;
        }
        Ok(())
    }

    /// Kills it as a crash would.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let failed = |error| Error::new(format!("`{}` cannot be killed: {error}", self.name));
        self.child.kill().map_err(failed)?;
        self.wait().map(drop)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if self.end("QUIT").is_err() {
            let _ = self.kill();
        }
    }
}

/// A shell that reads from a pipe of which this process has the other end.
pub(crate) fn watcher(script: &str, argument: &str, account: Account) -> std::io::Result<Child> {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", argument]).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    account.apply(&mut command);
    alone(&mut command);
    command.spawn()
}

/// Tells a watcher that what it watches is gone, so that it ends no stranger who got its number since.
pub(crate) fn dismiss(watcher: &mut Child) {
    if watcher.stdin.is_some() {
        say_word(watcher);
        let _ = watcher.wait();
    }
}

/// Says a word into the pipe and closes it.
fn say_word(child: &mut Child) {
    if let Some(mut pipe) = child.stdin.take() {
        // Without a reader there is nobody to tell.
        let _ = pipe.write_all(b"word\n");
    }
}

/// In a group of its own, so that an interrupt at the terminal is for the owner alone.
#[cfg(unix)]
fn alone(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

#[cfg(not(unix))]
fn alone(_: &mut Command) {}

/// The shell's own `kill`: the program of that name is not everywhere.
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

    fn sleeper() -> Guarded {
        let arguments = ["1000".to_owned()];
        let folder = std::env::temp_dir();
        Guarded::spawn(Path::new("sleep"), &arguments, Account::Caller, &folder, Path::new("/dev/null"))
            .unwrap()
    }

    #[test]
    fn an_owner_that_vanishes_without_a_word_takes_the_process_along() {
        let mut sleeper = sleeper();
        // What the kernel does with the owner's end of the pipe.
        drop(sleeper.watcher.stdin.take());
        assert_eq!(sleeper.wait().unwrap().signal(), Some(3));
    }

    #[test]
    fn an_owner_that_vanishes_before_there_is_a_watcher_leaves_nothing() {
        let mut command = Command::new("sh");
        command.args(["-c", BEGIN, "sh", "sleep", "1000"]).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }

    #[test]
    fn a_process_that_has_ended_has_no_watcher_any_more() {
        let mut sleeper = sleeper();
        sleeper.kill().unwrap();
        assert!(sleeper.watcher.try_wait().unwrap().is_some_and(|status| status.success()));
    }
}
