//! Forms made of the JSON Schema of an input.
//!
//! A form has a field for each property of an object, if all of them are texts, numbers, truth values, choices or secret texts;
//! otherwise the input is written as JSON. It checks what must be there, types, choices and ranges; the rest is for the
//! worker's check.

use maud::{Markup, html};
use outlast_api::Problem;
use outlast_core::secret::SECRET_FIELD;
use serde_json::{Number, Value};

use super::SentForm;

/// The largest number of fields of a form.
const FIELDS_MAX: usize = 40;

/// How names of fields begin.
const PREFIX: &str = "in.";

/// The fields of an input.
#[derive(Debug)]
pub(super) struct SchemaForm(Vec<SchemaField>);

#[derive(Debug)]
struct SchemaField {
    property: String,
    hint: String,
    kind: FieldKind,
    is_required: bool,
}

#[derive(Debug, PartialEq)]
enum FieldKind {
    Text,
    Integer,
    Number,
    Truth,
    Choice(Vec<String>),
    /// A text that is never shown.
    Secret,
}

impl SchemaForm {
    /// The form of a schema; `None` if it needs more than simple fields.
    pub(super) fn of_schema(schema: &Value) -> Option<Self> {
        let object = resolved(schema, schema)?;
        if object["type"] != "object" {
            return None;
        }
        let properties = object["properties"].as_object()?;
        let required: Vec<&str> =
            object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if properties.is_empty() || properties.len() > FIELDS_MAX {
            return None;
        }
        let fields = properties.iter().map(|(name, property)| {
            let (kind, property) = field_kind(schema, property)?;
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            let hint = [&property["description"], &property["title"]].into_iter().find_map(Value::as_str);
            (name.len() <= 64 && name.bytes().all(is_plain)).then(|| SchemaField {
                property: name.clone(),
                hint: format!("{}{}", hint.unwrap_or_default(), range(property)),
                kind,
                is_required: required.contains(&name.as_str()),
            })
        });
        fields.collect::<Option<_>>().map(Self)
    }

    /// The fields, with the values of a form that was sent.
    pub(super) fn fields(&self, form: &SentForm) -> Markup {
        html! { @for field in &self.0 { (field.markup(form)) } }
    }

    /// The input that a form says, as JSON.
    pub(super) fn read(&self, schema: &Value, form: &SentForm) -> Result<String, Problem> {
        let mut parts = Vec::new();
        for field in &self.0 {
            if let Some(value) = field.read(form)? {
                field.check_range(schema, &value)?;
                parts.push(format!("{}:{value}", Value::from(field.property.as_str())));
            }
        }
        Ok(format!("{{{}}}", parts.join(",")))
    }
}

impl SchemaField {
    fn id(&self) -> String {
        format!("{PREFIX}{}", self.property)
    }

    fn markup(&self, form: &SentForm) -> Markup {
        let (id, value) = (self.id(), form.text(&self.id()).unwrap_or_default());
        let hint = format!("{id}-hint");
        let mode = match self.kind {
            FieldKind::Integer => Some("numeric"),
            FieldKind::Number => Some("decimal"),
            _ => None,
        };
        html! {
            div.field {
                label for=(id) { (self.property) @if !self.is_required { span.muted { " optional" } } }
                @match &self.kind {
                    FieldKind::Truth => select id=(id) name=(id) aria-describedby=(hint) {
                        @if !self.is_required { option value="" { "–" } }
                        @for choice in ["false", "true"] { option value=(choice) selected[choice == value] { (choice) } }
                    },
                    FieldKind::Choice(choices) => select id=(id) name=(id) aria-describedby=(hint) {
                        @if !self.is_required { option value="" { "–" } }
                        @for choice in choices { option value=(choice) selected[choice == value] { (choice) } }
                    },
                    // What was typed is not sent back.
                    FieldKind::Secret => input type="password" id=(id) name=(id) autocomplete="off" aria-describedby=(hint);,
                    _ => input type="text" id=(id) name=(id) value=(value) inputmode=[mode] autocomplete="off"
                        spellcheck="false" aria-describedby=(hint);,
                }
                p.hint id=(hint) { (self.hint) }
            }
        }
    }

    /// The value as JSON; `None` if the field is empty and may be.
    fn read(&self, form: &SentForm) -> Result<Option<String>, Problem> {
        let Some(text) = form.text(&self.id()) else {
            return if self.is_required { Err(self.refused("fill it in")) } else { Ok(None) };
        };
        let json = match &self.kind {
            FieldKind::Text => Value::from(text).to_string(),
            FieldKind::Secret => format!("{{\"{SECRET_FIELD}\":{}}}", Value::from(text)),
            FieldKind::Truth if matches!(text, "true" | "false") => text.to_owned(),
            FieldKind::Truth => return Err(self.refused("choose true or false")),
            FieldKind::Choice(choices) if choices.iter().any(|choice| choice == text) => {
                Value::from(text).to_string()
            }
            FieldKind::Choice(choices) => {
                return Err(self.refused(&format!("choose one of {}", choices.join(", "))));
            }
            FieldKind::Integer if text.parse::<i128>().is_err() => {
                return Err(self.refused("write a whole number"));
            }
            // The digits are kept as they are.
            _ if serde_json::from_str::<Number>(text).is_ok() => text.to_owned(),
            _ => return Err(self.refused("write a number, such as 12 or 0.5")),
        };
        Ok(Some(json))
    }

    fn check_range(&self, schema: &Value, json: &str) -> Result<(), Problem> {
        if !matches!(self.kind, FieldKind::Integer | FieldKind::Number) {
            return Ok(());
        }
        let property = resolved(schema, schema).map(|object| &object["properties"][&self.property]);
        let Some((_, property)) = property.and_then(|property| field_kind(schema, property)) else {
            return Ok(());
        };
        let number: f64 = json.parse().unwrap_or_default();
        let bound = |name: &str| property[name].as_f64();
        let is_low = bound("minimum").is_some_and(|min| number < min)
            || bound("exclusiveMinimum").is_some_and(|min| number <= min);
        let is_high = bound("maximum").is_some_and(|max| number > max)
            || bound("exclusiveMaximum").is_some_and(|max| number >= max);
        if is_low || is_high {
            return Err(self.refused(&format!("{json} is out of range{}", range(property))));
        }
        Ok(())
    }

    fn refused(&self, why: &str) -> Problem {
        Problem::field("input", format!("`{}`: {why}", self.property))
    }
}

/// The range of a number, as a part of a hint.
fn range(property: &Value) -> String {
    let bound = |name: &str| property[name].as_f64().map(|_| property[name].to_string());
    match (bound("minimum"), bound("maximum")) {
        (Some(min), Some(max)) => format!(" ({min} to {max})"),
        (Some(min), None) => format!(" (at least {min})"),
        (None, Some(max)) => format!(" (at most {max})"),
        (None, None) => String::new(),
    }
}

/// A schema, or the one that it refers to.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> Option<&'a Value> {
    match schema["$ref"].as_str() {
        Some(reference) => root.pointer(reference.strip_prefix('#')?),
        None => Some(schema),
    }
}

/// The kind of field for a property, and its schema.
fn field_kind<'a>(root: &'a Value, property: &'a Value) -> Option<(FieldKind, &'a Value)> {
    let property = resolved(root, property)?;
    if let Some(choices) = property["anyOf"].as_array() {
        // An optional value: one schema, or null.
        let mut others = choices.iter().filter(|choice| choice["type"] != "null");
        let only = others.next().filter(|_| others.next().is_none() && choices.len() == 2)?;
        return field_kind(root, only);
    }
    if let Some(secret) = property["properties"].get(SECRET_FIELD) {
        return (secret["type"] == "string").then_some((FieldKind::Secret, property));
    }
    if let Some(choices) = property["enum"].as_array() {
        let texts = choices
            .iter()
            .filter(|choice| !choice.is_null())
            .map(|choice| choice.as_str().map(str::to_owned));
        return Some((FieldKind::Choice(texts.collect::<Option<_>>()?), property));
    }
    let of_type = |name: &str| match name {
        "string" => Some(FieldKind::Text),
        "integer" => Some(FieldKind::Integer),
        "number" => Some(FieldKind::Number),
        "boolean" => Some(FieldKind::Truth),
        _ => None,
    };
    let kind = match &property["type"] {
        Value::String(name) => of_type(name)?,
        Value::Array(names) => match names.as_slice() {
            [Value::String(name), Value::String(null)] if null == "null" => of_type(name)?,
            _ => return None,
        },
        _ => return None,
    };
    Some((kind, property))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn order() -> Value {
        json!({
            "type": "object",
            "required": ["cents", "speed"],
            "properties": {
                "cents": { "type": "integer", "minimum": 1, "maximum": 500, "description": "What is paid." },
                "note": { "type": ["string", "null"] },
                "gift": { "type": "boolean" },
                "rate": { "type": "number" },
                "speed": { "$ref": "#/$defs/Speed" },
                "card": { "anyOf": [{ "$ref": "#/$defs/Secret" }, { "type": "null" }] },
                "back": { "anyOf": [{ "$ref": "#/$defs/Speed" }, { "type": "null" }] },
            },
            "$defs": {
                "Speed": { "type": "string", "enum": ["slow", "fast"] },
                "Secret": { "type": "object", "properties": { "outlast:secret": { "type": "string" } } },
            },
        })
    }

    fn read(pairs: &[(&'static str, &str)]) -> Result<String, String> {
        let pairs = pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let (schema, form) = (order(), SentForm::of_pairs(pairs));
        let made = SchemaForm::of_schema(&schema).unwrap();
        made.read(&schema, &form).map_err(|problem| problem.detail.clone())
    }

    #[test]
    fn fields_become_the_input() {
        let all = [("in.cents", "42"), ("in.speed", "fast"), ("in.note", "a \"b\""), ("in.rate", "0.50")];
        let input = read(&all).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&input).unwrap()["note"], "a \"b\"");
        assert!(input.contains("\"rate\":0.50") && !input.contains("gift"), "{input}");
    }

    #[test]
    fn a_secret_is_marked_and_not_sent_back() {
        let sent = [("in.cents", "42"), ("in.speed", "fast"), ("in.card", "42\"42")];
        let input = read(&sent).unwrap();
        assert!(input.contains(r#""card":{"outlast:secret":"42\"42"}"#), "{input}");
        let pairs = sent.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let fields =
            SchemaForm::of_schema(&order()).unwrap().fields(&SentForm::of_pairs(pairs)).into_string();
        assert!(fields.contains("type=\"password\"") && !fields.contains("42&quot;42"), "{fields}");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let with =
            |cents: &'static str, speed: &'static str| read(&[("in.cents", cents), ("in.speed", speed)]);
        for (answer, expected) in [
            (read(&[("in.speed", "fast")]), "`cents`: fill it in"),
            (with("4.5", "fast"), "`cents`: write a whole number"),
            (with("0", "fast"), "`cents`: 0 is out of range (1 to 500)"),
            (with("501", "fast"), "out of range"),
            (with("5", "soon"), "`speed`: choose one of slow, fast"),
            (read(&[("in.cents", "5"), ("in.speed", "fast"), ("in.rate", "x")]), "`rate`: write a number"),
            (read(&[("in.cents", "5"), ("in.speed", "fast"), ("in.gift", "yes")]), "`gift`: choose"),
        ] {
            assert!(answer.clone().unwrap_err().contains(expected), "{answer:?}");
        }
    }

    #[test]
    fn other_inputs_are_written_as_json() {
        for schema in [
            json!(true),
            json!({ "type": "string" }),
            json!({ "type": "array" }),
            json!({ "type": "object", "properties": {} }),
            json!({ "type": "object", "properties": { "a": { "type": "object" } } }),
            json!({ "type": "object", "properties": { "a b": { "type": "string" } } }),
            json!({ "$ref": "#/nowhere" }),
        ] {
            assert!(SchemaForm::of_schema(&schema).is_none(), "{schema}");
        }
    }
}
