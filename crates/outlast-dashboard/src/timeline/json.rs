//! Rows as JSON, for `timeline.js`.

use outlast_core::Timestamp;
use serde_json::{Value, json};

use super::rows::Row;
use super::shape::{Figure, Shape};
use crate::site::Site;
use crate::ui::words;

/// A row as JSON, with short names: a block has hundreds of them. Times count from `origin`, in microseconds.
pub(super) fn row(
    site: &Site,
    row: &Row,
    origin: Timestamp,
    href: Option<String>,
    expand: Option<String>,
) -> Value {
    let took = row.to.unwrap_or(site.now).since(row.from);
    let run = row.run.map(|run| json!([site.href(&format!("/runs/{run}")), words::short(run)]));
    json!({
        "key": row.key,
        "kind": row.kind.as_str(),
        "number": row.op,
        "icon": row.icon,
        "status": row.status,
        "label": row.label,
        "note": row.note,
        "warning": row.is_warning,
        "words": row.words,
        "took": if row.has_time { words::duration(took) } else { String::new() },
        "run": run,
        "href": href,
        "expand": expand,
        "expanded": row.expand.is_some_and(|(_, is_open)| is_open),
        "depth": row.depth,
        "failed": row.is_failed,
        "open": row.is_open,
        "skipped": row.is_skipped,
        "shapes": row.shapes.iter().map(|shape| shape_json(shape, origin)).collect::<Vec<_>>(),
    })
}

fn shape_json(shape: &Shape, origin: Timestamp) -> Value {
    let offset = |time: Timestamp| time.as_micros() - origin.as_micros();
    let (kind, extra) = match shape.figure {
        Figure::Bar(height) => ("bar", Value::from(height)),
        Figure::Line => ("line", Value::Null),
        Figure::Mark(form) => ("mark", Value::from(form)),
        Figure::Number(number) => ("number", Value::from(number)),
    };
    let mut parts = vec![
        kind.into(),
        shape.class.as_str().into(),
        offset(shape.from).into(),
        offset(shape.to).into(),
        extra,
    ];
    parts.extend(shape.title.as_deref().map(Value::from));
    Value::Array(parts)
}

/// The address of the sprite, for scripts.
pub(super) fn sprite(site: &Site) -> String {
    site.icon_href("")
}
