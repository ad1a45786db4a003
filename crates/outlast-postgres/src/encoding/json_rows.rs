//! [`JsonRows`]: parameters of a function of the database as a JSON array of small objects, one object per row.
//!
//! The function reads fields by name, so functions of older interfaces ignore a new field. Large texts and bytes are
//! passed in arrays of their own.

use std::fmt::{Display, Write};

use outlast_core::Timestamp;

use crate::encoding::row::to_i64;
use crate::encoding::text::escape_nul;

/// A JSON array of objects, written field by field. A field without a value is left out.
#[derive(Debug)]
pub(crate) struct JsonRows {
    text: String,
    count: usize,
    has_fields: bool,
}

impl Default for JsonRows {
    fn default() -> Self {
        Self { text: "[".into(), count: 0, has_fields: false }
    }
}

impl JsonRows {
    /// Begins an object, to which the following fields belong.
    pub(crate) fn begin_row(&mut self) {
        self.text.push_str(if self.count == 0 { "{" } else { "},{" });
        self.count += 1;
        self.has_fields = false;
    }

    /// The number of objects.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The array as JSON.
    pub(crate) fn array(&self) -> String {
        format!("{}{}", self.text, if self.count == 0 { "]" } else { "}]" })
    }

    /// The object as JSON, if there is exactly one.
    pub(crate) fn single_object(&self) -> String {
        format!("{}}}", self.text.trim_start_matches('['))
    }

    fn write_name(&mut self, name: &str) {
        if self.has_fields {
            self.text.push(',');
        }
        self.has_fields = true;
        // Field names are literals of this crate and need no escaping. Writing to a string cannot fail.
        let _ = write!(self.text, "\"{name}\":");
    }

    /// Adds an id or another text that needs no escaping in JSON.
    pub(crate) fn word(&mut self, name: &str, word: impl Display) {
        self.write_name(name);
        let _ = write!(self.text, "\"{word}\"");
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, name: &str, number: i64) {
        self.write_name(name);
        let _ = write!(self.text, "{number}");
    }

    /// Adds a number that is never negative.
    pub(crate) fn unsigned(&mut self, name: &str, number: u64) {
        self.number(name, to_i64(number));
    }

    /// Adds a timestamp in microseconds, if there is one.
    pub(crate) fn timestamp(&mut self, name: &str, timestamp: Option<Timestamp>) {
        if let Some(timestamp) = timestamp {
            self.number(name, timestamp.as_micros());
        }
    }

    /// Adds a text that a user chose; NUL is escaped.
    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.plain_text(name, &escape_nul(text));
    }

    /// Adds a text that contains no NUL.
    pub(crate) fn plain_text(&mut self, name: &str, text: &str) {
        self.write_name(name);
        self.text.push_str(&serde_json::Value::from(text).to_string());
    }

    /// Adds a flag, if it is set.
    pub(crate) fn flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            self.write_name(name);
            self.text.push_str("true");
        }
    }

    /// Adds a nested object, whose fields the closure adds.
    pub(crate) fn nested_object(&mut self, name: &str, fields: impl FnOnce(&mut Self)) {
        self.write_name(name);
        self.text.push('{');
        self.has_fields = false;
        fields(self);
        self.text.push('}');
        self.has_fields = true;
    }

    /// Adds a value that is already JSON.
    pub(crate) fn json_value(&mut self, name: &str, json: &str) {
        self.write_name(name);
        self.text.push_str(json);
    }

    /// Adds tags, if there are any.
    pub(crate) fn tags<'a>(&mut self, name: &str, tags: impl Iterator<Item = (&'a String, &'a String)>) {
        let tags: serde_json::Map<String, serde_json::Value> = tags
            .map(|(name, value)| (escape_nul(name).into_owned(), escape_nul(value).into_owned().into()))
            .collect();
        if !tags.is_empty() {
            self.json_value(name, &serde_json::Value::from(tags).to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_without_a_value_are_left_out() {
        let mut rows = JsonRows::default();
        assert_eq!(rows.array(), "[]");
        rows.begin_row();
        rows.word("run", "run_1");
        rows.flag("held", false);
        rows.timestamp("wake_at", None);
        rows.begin_row();
        rows.text("name", "a\"b\0");
        rows.number("n", -1);
        assert_eq!(rows.array(), "[{\"run\":\"run_1\"},{\"name\":\"a\\\"b\u{E000}0\",\"n\":-1}]");
        assert_eq!(rows.count(), 2);
    }
}
