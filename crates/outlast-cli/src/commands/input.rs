//! JSON from an argument, a file or standard input; times from a text.

use std::fs;
use std::io::{self, Read};

use outlast::{IntoDuration, Timestamp};
use outlast_api::Rfc3339;
use serde_json::value::RawValue;

use crate::exit::CommandError;

/// Reads JSON: the text itself, `@FILE`, or `-` for standard input. Numbers keep all their digits.
pub(crate) fn read_json(what: &str, argument: &str) -> Result<Box<RawValue>, CommandError> {
    let text = read_text(argument)?;
    let parsed = serde_json::from_str::<Box<RawValue>>(text.trim());
    parsed.map_err(|error| {
        let hint = match argument {
            "-" => String::new(),
            _ if argument.starts_with('@') => String::new(),
            _ => format!("; a text needs quotes: '\"{}\"'", argument.replace('"', "")),
        };
        CommandError::usage(format!("the {what} is not JSON: {error}{hint}"))
    })
}

/// Reads a text: the argument itself, `@FILE`, or `-` for standard input.
pub(crate) fn read_text(argument: &str) -> Result<String, CommandError> {
    if argument == "-" {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text)?;
        return Ok(text);
    }
    match argument.strip_prefix('@') {
        None => Ok(argument.to_owned()),
        Some(file) => fs::read_to_string(file)
            .map_err(|error| CommandError::usage(format!("the file {file} cannot be read: {error}"))),
    }
}

/// A time, or how long ago it was.
pub(crate) fn past_time(now: Timestamp, name: &str, text: &str) -> Result<Rfc3339, CommandError> {
    if let Ok(time) = text.parse::<Rfc3339>() {
        return Ok(time);
    }
    match text.into_duration() {
        Ok(age) => Ok(now.minus(age).into()),
        Err(_) => Err(CommandError::usage(format!(
            "{name}: `{text}` is neither a time such as 2026-11-18T04:00:00Z nor a duration such as 2h"
        ))),
    }
}
