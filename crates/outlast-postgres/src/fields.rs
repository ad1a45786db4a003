//! Values on their way to a function of the database: a JSON array of small objects, written field by field.
//!
//! The database reads the fields by name, so that a new one changes nothing for functions that do not know it. Large
//! texts and bytes travel beside them, in arrays.

use std::fmt::{Display, Write};

use outlast_core::Timestamp;

use crate::row::stored;
use crate::text::stored as stored_text;

/// The array. A field without a value is left out.
#[derive(Debug)]
pub(crate) struct Rows {
    text: String,
    count: usize,
    has_fields: bool,
}

impl Default for Rows {
    fn default() -> Self {
        Self { text: "[".into(), count: 0, has_fields: false }
    }
}

impl Rows {
    /// Begins an object; the fields that follow are its.
    pub(crate) fn begin(&mut self) {
        self.text.push_str(if self.count == 0 { "{" } else { "},{" });
        self.count += 1;
        self.has_fields = false;
    }

    /// How many objects there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The array as JSON.
    pub(crate) fn json(&self) -> String {
        format!("{}{}", self.text, if self.count == 0 { "]" } else { "}]" })
    }

    /// The only object as JSON.
    pub(crate) fn only(&self) -> String {
        format!("{}}}", self.text.trim_start_matches('['))
    }

    fn name(&mut self, name: &str) {
        if self.has_fields {
            self.text.push(',');
        }
        self.has_fields = true;
        // Names of fields are words of this crate. Writing to a text cannot fail.
        let _ = write!(self.text, "\"{name}\":");
    }

    /// An id or another word that has nothing to escape.
    pub(crate) fn word(&mut self, name: &str, word: impl Display) {
        self.name(name);
        let _ = write!(self.text, "\"{word}\"");
    }

    /// A number.
    pub(crate) fn number(&mut self, name: &str, number: i64) {
        self.name(name);
        let _ = write!(self.text, "{number}");
    }

    /// A number that is never negative.
    pub(crate) fn count_of(&mut self, name: &str, number: u64) {
        self.number(name, stored(number));
    }

    /// A moment, if there is one.
    pub(crate) fn moment(&mut self, name: &str, moment: Option<Timestamp>) {
        if let Some(moment) = moment {
            self.number(name, moment.as_micros());
        }
    }

    /// A text that a user chose.
    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.json_text(name, &stored_text(text));
    }

    /// A text of this crate, as it is.
    pub(crate) fn json_text(&mut self, name: &str, text: &str) {
        self.name(name);
        self.text.push_str(&serde_json::Value::from(text).to_string());
    }

    /// A mark: left out when it is not set.
    pub(crate) fn flag(&mut self, name: &str, is_set: bool) {
        if is_set {
            self.name(name);
            self.text.push_str("true");
        }
    }

    /// An object within the object.
    pub(crate) fn object(&mut self, name: &str, fields: impl FnOnce(&mut Self)) {
        self.name(name);
        self.text.push('{');
        self.has_fields = false;
        fields(self);
        self.text.push('}');
        self.has_fields = true;
    }

    /// A value that is JSON already.
    pub(crate) fn json_value(&mut self, name: &str, json: &str) {
        self.name(name);
        self.text.push_str(json);
    }

    /// Tags, if there are any.
    pub(crate) fn tags<'a>(&mut self, name: &str, tags: impl Iterator<Item = (&'a String, &'a String)>) {
        let tags: serde_json::Map<String, serde_json::Value> = tags
            .map(|(name, value)| (stored_text(name).into_owned(), stored_text(value).into_owned().into()))
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
        let mut rows = Rows::default();
        assert_eq!(rows.json(), "[]");
        rows.begin();
        rows.word("run", "run_1");
        rows.flag("held", false);
        rows.moment("wake_at", None);
        rows.begin();
        rows.text("name", "a\"b\0");
        rows.number("n", -1);
        assert_eq!(rows.json(), "[{\"run\":\"run_1\"},{\"name\":\"a\\\"b\u{E000}0\",\"n\":-1}]");
        assert_eq!(rows.count(), 2);
    }
}
