//! A parser of the text format of Prometheus, which checks what promtool checks.

use std::collections::{BTreeMap, BTreeSet};

/// A metric with its samples.
#[derive(Debug, Default)]
pub(crate) struct ParsedFamily {
    pub(crate) kind: String,
    /// The names of the samples, their labels and their values.
    pub(crate) samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl ParsedFamily {
    /// The values of a label.
    pub(crate) fn label_values(&self, label: &str) -> BTreeSet<&str> {
        self.samples.iter().filter_map(|(_, labels, _)| labels.get(label)).map(String::as_str).collect()
    }

    /// The value of the sample with these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let is_it = |found: &BTreeMap<String, String>| {
            labels.iter().all(|(name, value)| found.get(*name).is_some_and(|found| found == value))
        };
        self.samples.iter().find(|(found, with, _)| found == name && is_it(with)).map(|(_, _, value)| *value)
    }
}

/// Parses a text.
///
/// # Panics
///
/// If the text does not follow the format.
pub(crate) fn parse(text: &str) -> BTreeMap<String, ParsedFamily> {
    let mut families: BTreeMap<String, ParsedFamily> = BTreeMap::new();
    let mut current = String::new();
    assert!(text.ends_with('\n'), "the last line has no end");
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(help.ends_with('.') && !help.is_empty(), "{line}");
            assert!(families.insert(name.into(), ParsedFamily::default()).is_none(), "twice: {line}");
            current = name.into();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, current, "the type follows the help");
            check_name(name, kind);
            families.get_mut(name).unwrap().kind = kind.into();
        } else {
            let family = families.get_mut(&current).unwrap();
            let sample = parse_sample(line);
            let base =
                sample.0.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count");
            let is_of_family = sample.0 == current || (family.kind == "histogram" && base == current);
            assert!(is_of_family, "`{line}` is not of {current}");
            family.samples.push(sample);
        }
    }
    families.values().for_each(check_family);
    families
}

fn check_name(name: &str, kind: &str) {
    assert!(
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit()),
        "{name}"
    );
    assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
    assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
}

fn parse_sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let value = if value == "+Inf" { f64::INFINITY } else { value.parse().unwrap() };
    let Some((name, labels)) = series.split_once('{') else { return (series.into(), BTreeMap::new(), value) };
    let mut rest = labels.strip_suffix('}').unwrap();
    let mut parsed = BTreeMap::new();
    while !rest.is_empty() {
        let (label, text) = rest.split_once("=\"").unwrap();
        let mut end = None;
        let mut is_escaped = false;
        for (index, character) in text.char_indices() {
            match character {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '"' => {
                    end = Some(index);
                    break;
                }
                _ => {}
            }
        }
        let end = end.unwrap_or_else(|| panic!("no end: {line}"));
        assert!(parsed.insert(label.to_owned(), text[..end].to_owned()).is_none(), "label twice: {line}");
        rest = text[end + 1..].trim_start_matches(',');
    }
    (name.into(), parsed, value)
}

fn check_family(family: &ParsedFamily) {
    let mut seen = BTreeSet::new();
    for (name, labels, _) in &family.samples {
        assert!(seen.insert((name, labels)), "twice: {name} {labels:?}");
    }
    if family.kind == "histogram" {
        let mut last: BTreeMap<BTreeMap<String, String>, f64> = BTreeMap::new();
        for (name, labels, value) in &family.samples {
            let mut labels = labels.clone();
            let bound = labels.remove("le");
            assert_eq!(bound.is_some(), name.ends_with("_bucket"), "{name}");
            if bound.is_some() {
                let before = last.insert(labels, *value).unwrap_or(0.0);
                assert!(before <= *value, "buckets are cumulative: {name}");
            } else if name.ends_with("_count") {
                assert_eq!(last.get(&labels), Some(value), "the last bucket has everything: {name}");
            }
        }
    }
}
