//! Payloads: JSON as a tree that can be folded. Numbers keep all their digits, because the text is never converted.

use std::fmt;

use maud::{Markup, html};
use outlast_api::PayloadJson;
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use super::parts::copy;
use crate::site::Site;

/// Values with more bytes are shown as text, not as a tree.
const TREE_BYTES_MAX: usize = 64 * 1024;

/// Objects and arrays on deeper levels are folded.
const OPEN_LEVELS: usize = 2;

/// The deepest level of a tree; what is below is shown as text.
const LEVELS_MAX: usize = 32;

/// A payload with its title.
pub(crate) fn payload(site: &Site, title: &str, value: &PayloadJson) -> Markup {
    let text = value.json.as_ref().map(|json| json.get());
    html! {
        section.payload {
            header {
                h3 { (title) }
                span.muted { (size(value.bytes)) @if value.codec != "json" { " · " (value.codec) } }
                @if let Some(text) = text { (copy(site, text, title)) }
            }
            @if let Some(json) = &value.json { (json_tree(json)) }
            @else if let Some(preview) = &value.preview { pre.json { (preview) span.muted { " … (more)" } } }
            @else if value.base64.is_some() { p.muted { "Encoded; this server cannot decode it." } }
            @else { p.muted { "Not shown." } }
        }
    }
}

/// JSON as a tree, or as text if it is large.
pub(crate) fn json_tree(json: &RawValue) -> Markup {
    let text = json.get();
    html! {
        div.json { @if text.len() <= TREE_BYTES_MAX { (node(json, 0)) } @else { pre { (text) } } }
    }
}

fn node(json: &RawValue, level: usize) -> Markup {
    let text = json.get();
    let members = match text.as_bytes().first() {
        Some(b'{') if level < LEVELS_MAX => members(json),
        Some(b'[') if level < LEVELS_MAX => elements(json),
        _ => None,
    };
    match members {
        Some(members) if members.is_empty() => html! { span.punctuation { (text.trim()) } },
        Some(members) => container(text.starts_with('{'), &members, level),
        None => scalar(text),
    }
}

fn container(is_object: bool, members: &[(String, &RawValue)], level: usize) -> Markup {
    let (open, close) = if is_object { ("{", "}") } else { ("[", "]") };
    let what = if is_object { "field" } else { "element" };
    html! {
        details open[level < OPEN_LEVELS] {
            summary {
                span.punctuation { (open) }
                span.folded { " " (super::words::counted(members.len() as u64, what)) " " span.punctuation { (close) } }
            }
            ul {
                @for (name, value) in members {
                    li {
                        @if is_object { span.k { (name) } span.punctuation { ": " } }
                        (node(value, level + 1))
                    }
                }
            }
            span.punctuation { (close) }
        }
    }
}

fn scalar(text: &str) -> Markup {
    let class = match text.as_bytes().first() {
        Some(b'"') => "s",
        Some(b't' | b'f' | b'n') => "b",
        _ => "n",
    };
    html! { span class=(class) { (text) } }
}

fn elements(json: &RawValue) -> Option<Vec<(String, &RawValue)>> {
    let values: Vec<&RawValue> = serde_json::from_str(json.get()).ok()?;
    Some(values.into_iter().map(|value| (String::new(), value)).collect())
}

/// The members of an object, in the order of the text.
fn members(json: &RawValue) -> Option<Vec<(String, &RawValue)>> {
    struct Members;

    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }
    serde_json::Deserializer::from_str(json.get()).deserialize_map(Members).ok()
}

/// The value of a member of an object.
pub(crate) fn member<'a>(json: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    members(json)?.into_iter().find(|(found, _)| found == name).map(|(_, value)| value)
}

/// A number of bytes.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{}.{} KiB", bytes / 1_024, bytes % 1_024 * 10 / 1_024),
        _ => format!("{}.{} MiB", bytes / 1_048_576, bytes % 1_048_576 * 10 / 1_048_576),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(text: &str) -> String {
        json_tree(&RawValue::from_string(text.into()).unwrap()).into_string()
    }

    #[test]
    fn numbers_keep_all_their_digits() {
        assert!(tree(r#"{"id":1970670598291982290}"#).contains("1970670598291982290"));
        assert!(tree("[1.0000000000000000001]").contains("1.0000000000000000001"));
    }

    #[test]
    fn names_and_values_are_escaped() {
        let html = tree(r#"{"<script>":"</div><img onerror=1>"}"#);
        assert!(!html.contains("<script>") && !html.contains("<img"), "{html}");
    }

    #[test]
    fn a_member_is_found_by_its_name() {
        let json = RawValue::from_string(r#"{"a":1,"b":{"c":2}}"#.into()).unwrap();
        assert_eq!(member(&json, "b").map(RawValue::get), Some(r#"{"c":2}"#));
        assert!(member(&json, "x").is_none());
    }
}
