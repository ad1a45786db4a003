//! Small pictures in SVG.

use maud::{Markup, html};

/// A stacked bar: parts in the colours of their statuses.
pub(crate) fn stacked(parts: &[(&str, u64)], label: &str) -> Markup {
    let total: u64 = parts.iter().map(|(_, count)| count).sum();
    let mut x = 0.0;
    let mut rects = Vec::new();
    for (status, count) in parts.iter().filter(|(_, count)| *count > 0) {
        let width = *count as f64 / total as f64 * 100.0;
        rects.push((format!("{x:.2}%"), format!("{width:.2}%"), *status));
        x += width;
    }
    html! {
        svg.stacked width="100%" height="6" role="img" aria-label=(label) {
            @for (x, width, status) in rects {
                rect class={ "f-" (status) } x=(x) width=(width) height="6" {}
            }
        }
    }
}

/// A small column chart: one column of 3 pixels for each number, in the colour of a status.
pub(crate) fn sparkline(values: &[u64], status: &str, label: &str) -> Markup {
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    html! {
        svg.sparkline width=(values.len() * 4) height="20" role="img" aria-label=(label) {
            @for (index, value) in values.iter().enumerate() {
                @let height = if *value == 0 { 1 } else { (value * 18 / most).max(3) };
                @let class = if *value == 0 { "none".to_owned() } else { format!("f-{status}") };
                rect x=(index * 4) y=(20 - height) width="3" height=(height) class=(class) {}
            }
        }
    }
}
