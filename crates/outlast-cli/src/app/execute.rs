//! From arguments to an exit code.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;

use clap::{CommandFactory, FromArgMatches};
use tokio::runtime::Builder;

use super::{SharedCodec, WorkerCode};
use crate::args::{Arguments, Command, grouped_help};
use crate::commands::{CommandContext, dispatch};
use crate::config::{Settings, Surroundings};
use crate::exit::{CommandError, Exit};
use crate::output::Console;
use crate::output::times::Zone;

/// Executes the command of the arguments.
pub(super) fn execute(
    name: Option<String>,
    codec: Option<SharedCodec>,
    code: Option<Box<dyn WorkerCode>>,
    arguments: Vec<OsString>,
) -> Exit {
    let name = name.unwrap_or_else(|| program_name(&arguments));
    let command = grouped_help(Arguments::command().name(name.clone()).bin_name(name.clone()));
    let parsed =
        command.try_get_matches_from(arguments).and_then(|found| Arguments::from_arg_matches(&found));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => {
            // A pipe that nobody reads is no reason to fail.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Done };
        }
    };
    let settings = Settings::read(&arguments.common, &Surroundings::of_process());
    let console = match settings
        .as_ref()
        .map_err(|_| ())
        .and_then(|settings| console(settings, &arguments).map_err(|_| ()))
    {
        Ok(console) => console,
        Err(()) => Console::new(
            arguments.common.format.unwrap_or_default(),
            arguments.common.color.unwrap_or_default(),
            Zone::utc(),
            false,
        ),
    };
    let console = console.of_program(&name);
    let ended = settings.and_then(|settings| {
        console_problem(&settings)?;
        start_log(arguments.common.verbose, &arguments.command);
        let context = CommandContext { name, settings, console: console.clone(), codec };
        on_runtime(context, arguments.command, code)
    });
    ended.unwrap_or_else(|error| {
        console.refusal(&error);
        error.exit()
    })
}

/// The console that the settings describe.
fn console(settings: &Settings, arguments: &Arguments) -> Result<Console, CommandError> {
    let zone = if settings.utc().value { Zone::utc() } else { Zone::local() };
    let (format, color) = (settings.format()?.value, settings.color()?.value);
    Ok(Console::new(format, color, zone, arguments.common.quiet))
}

/// The problem of settings that the console needs, if there is one.
fn console_problem(settings: &Settings) -> Result<(), CommandError> {
    settings.format()?;
    settings.color()?;
    Ok(())
}

/// Executes a command on a runtime of its own. Ctrl-C ends it, unless the command handles it.
fn on_runtime(
    context: CommandContext,
    command: Command,
    code: Option<Box<dyn WorkerCode>>,
) -> Result<Exit, CommandError> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CommandError::failure(format!("no runtime: {error}")))?;
    let limit = context.settings.timeout()?.map(|limit| limit.value);
    let handles_signals = matches!(command, Command::Dev(_) | Command::Serve(_) | Command::Worker(_));
    let ended = runtime.block_on(async move {
        // In a task of its own: a command that waits for standard input must not keep Ctrl-C from being noticed.
        let task = tokio::spawn(dispatch(context, command, code));
        let limited = async {
            match limit {
                None => task.await,
                Some(limit) => match tokio::time::timeout(limit, task).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        let text = outlast::core::duration::duration_text(limit);
                        return Err(CommandError::timed_out(format!(
                            "the command did not end within {text}"
                        )));
                    }
                },
            }
            .unwrap_or_else(|error| Err(CommandError::failure(format!("the command failed: {error}"))))
        };
        tokio::select! {
            ended = limited => ended,
            _ = tokio::signal::ctrl_c(), if !handles_signals => Err(CommandError::Interrupted),
        }
    });
    runtime.shutdown_background();
    ended
}

/// Prints the log of the library to standard error.
fn start_log(verbose: u8, command: &Command) {
    use tracing_subscriber::filter::LevelFilter;
    let is_worker = matches!(command, Command::Worker(worker) if worker.command.is_none());
    let is_server = matches!(command, Command::Dev(_) | Command::Serve(_));
    let level = match verbose {
        0 if is_worker => LevelFilter::INFO,
        0 if is_server => LevelFilter::WARN,
        0 | 1 => return,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    // Another subscriber of the program stays.
    let _ = log.with_ansi(std::io::stderr().is_terminal()).try_init();
}

fn program_name(arguments: &[OsString]) -> String {
    let stem = arguments.first().and_then(|first| Path::new(first).file_stem());
    stem.map_or_else(|| "outlast".into(), |stem| stem.to_string_lossy().into_owned())
}
