//! Where a command prints: data to standard output, messages to standard error.

use std::env;
use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::Arc;

use outlast::core::Clock;
use outlast::{SystemClock, Timestamp};
use serde::Serialize;

use super::json::{one_document, pretty_document};
use super::style::{Look, Tone};
use super::times::Zone;
use crate::args::{ColorChoice, Format};
use crate::exit::CommandError;

/// The number of columns if a terminal does not say it.
const WIDTH_DEFAULT: usize = 100;

/// Where a command prints, and how.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    /// How data is printed.
    pub(crate) format: Format,
    /// What standard output can show.
    pub(crate) look: Look,
    /// What standard error can show.
    pub(crate) error_look: Look,
    /// The zone of times.
    pub(crate) zone: Zone,
    /// Whether messages are left out.
    pub(crate) is_quiet: bool,
    /// The name of the program, for the commands that texts recommend.
    program: Arc<str>,
}

impl Console {
    /// The console of this process.
    pub(crate) fn new(format: Format, color: ColorChoice, zone: Zone, is_quiet: bool) -> Self {
        let look = |is_terminal: bool| Look {
            has_colors: has_colors(color, is_terminal),
            has_unicode: has_unicode(),
            is_terminal,
            width: terminal_width(),
        };
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        Self { format, look: look(out), error_look: look(err), zone, is_quiet, program: "outlast".into() }
    }

    /// The console of a program with this name.
    pub(crate) fn of_program(self, name: &str) -> Self {
        Self { program: name.into(), ..self }
    }

    /// A text of this library, whose recommended commands begin with `outlast`, with the name of the program instead.
    pub(crate) fn with_program_name(&self, text: &str) -> String {
        text.replace("`outlast ", &format!("`{} ", self.program))
    }

    /// The current time.
    pub(crate) fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    /// Whether data is printed for people.
    pub(crate) fn is_for_people(&self) -> bool {
        self.format == Format::Table
    }

    /// Prints a line of data for people.
    pub(crate) fn line(&self, line: impl AsRef<str>) -> Result<(), CommandError> {
        if self.format == Format::Table {
            self.raw_line(line)?;
        }
        Ok(())
    }

    /// Prints a line in every format, except that nothing is wanted.
    pub(crate) fn raw_line(&self, line: impl AsRef<str>) -> Result<(), CommandError> {
        if self.format == Format::None {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(line.as_ref().as_bytes())?;
        out.write_all(b"\n")?;
        out.flush()?;
        Ok(())
    }

    /// Prints lines of data for people at once.
    pub(crate) fn lines<T: AsRef<str>>(
        &self,
        lines: impl IntoIterator<Item = T>,
    ) -> Result<(), CommandError> {
        let mut text = String::new();
        for line in lines {
            text.push_str(line.as_ref());
            text.push('\n');
        }
        match text.strip_suffix('\n') {
            Some(text) => self.line(text),
            None => Ok(()),
        }
    }

    /// Prints a document, if data is printed as JSON.
    pub(crate) fn document(&self, value: &impl Serialize) -> Result<(), CommandError> {
        match self.format {
            Format::Json => self.raw_line(pretty_document(value)?),
            Format::Jsonl => self.raw_line(one_document(value)?),
            Format::Table | Format::None => Ok(()),
        }
    }

    /// Prints a page: one document, or one per item.
    pub(crate) fn page<T: Serialize>(&self, page: &impl Serialize, items: &[T]) -> Result<(), CommandError> {
        match self.format {
            Format::Jsonl => items.iter().try_for_each(|item| self.document(item)),
            _ => self.document(page),
        }
    }

    /// Prints a message to standard error, unless messages are not wanted.
    pub(crate) fn message(&self, text: impl AsRef<str>) {
        if !self.is_quiet {
            self.error_line(self.with_program_name(text.as_ref()));
        }
    }

    /// Replaces the line of progress on a terminal.
    pub(crate) fn progress(&self, text: impl AsRef<str>) {
        if !self.is_quiet {
            let _ = write!(io::stderr().lock(), "\r\u{1b}[K{}", text.as_ref());
        }
    }

    /// Removes the line of progress.
    pub(crate) fn end_progress(&self) {
        if !self.is_quiet {
            let _ = write!(io::stderr().lock(), "\r\u{1b}[K");
        }
    }

    /// Prints a warning to standard error.
    pub(crate) fn warning(&self, text: impl AsRef<str>) {
        let label = self.error_look.paint(Tone::Warning, "warning:");
        self.error_line(format!("{label} {}", self.with_program_name(text.as_ref())));
    }

    /// Prints a line to standard error. That nobody reads it is no reason to fail.
    pub(crate) fn error_line(&self, text: impl AsRef<str>) {
        let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
    }

    /// Prints a refusal: a sentence, or a problem document if data is JSON.
    pub(crate) fn refusal(&self, error: &CommandError) {
        let CommandError::Refused(problem) = error else { return };
        if matches!(self.format, Format::Json | Format::Jsonl)
            && let Ok(document) = one_document(problem)
        {
            return self.error_line(document);
        }
        let label = self.error_look.paint(Tone::Bad, "error:");
        let detail = self.with_program_name(&problem.detail);
        self.error_line(format!("{label} {}", super::several_lines(&detail)));
        let is_shown = |field: &outlast_api::FieldProblem| problem.detail.contains(&field.message);
        for field in problem.errors.iter().filter(|field| !is_shown(field)) {
            let (pointer, message) = (super::one_line(&field.pointer), super::one_line(&field.message));
            self.error_line(format!("  {pointer}: {message}"));
        }
    }

    /// Whether a person can answer a question.
    pub(crate) fn can_ask(&self) -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks a question that only `y` affirms. Without a terminal, nobody can.
    pub(crate) fn confirm(&self, question: &str) -> Result<(), CommandError> {
        if !self.can_ask() {
            return Err(CommandError::usage("nobody can confirm it; add `--yes`"));
        }
        if matches!(self.ask(question)?.as_str(), "y" | "Y" | "yes") {
            return Ok(());
        }
        self.message("nothing was done");
        Err(CommandError::Interrupted)
    }

    /// Asks a question on standard error, and returns the answer.
    pub(crate) fn ask(&self, question: &str) -> Result<String, CommandError> {
        let mut err = io::stderr().lock();
        write!(err, "{question} ")?;
        err.flush()?;
        let mut answer = String::new();
        if io::stdin().lock().read_line(&mut answer)? == 0 {
            return Err(CommandError::Interrupted);
        }
        Ok(answer.trim().to_owned())
    }
}

fn has_colors(color: ColorChoice, is_terminal: bool) -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    match color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            is_terminal && !is_set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb")
        }
    }
}

/// Whether the locale is one of UTF-8. Without a locale it is assumed, as in containers.
fn has_unicode() -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let locale = names.iter().find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()));
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

fn terminal_width() -> usize {
    let columns = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let measured = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    measured.or(columns).filter(|width| *width > 0).unwrap_or(WIDTH_DEFAULT).clamp(40, 400)
}
