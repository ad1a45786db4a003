//! A timeline as a part of a page.

use maud::{Markup, html};
use outlast_core::Timestamp;
use serde_json::{Value, json};

use super::axis::{Axis, Scale};
use super::rows::{Row, RowKind, RowSource};
use super::shape::percent;
use super::{density, json as row_json, table};
use crate::site::Site;
use crate::ui::parts::{icon, run_link, took};
use crate::ui::words;

/// The rows of a page without scripts.
pub(crate) const PAGE_ROWS: usize = 100;

/// The rows of a block that scripts load.
pub(crate) const BLOCK_ROWS: usize = 500;

/// Gaps that are narrower, in percent, have no label: it would cover the next one.
const LABELLED_LEAST: f64 = 5.0;

/// A timeline, and where its links lead.
pub(crate) struct Timeline<'a> {
    pub(crate) source: RowSource<'a>,
    /// The operation that the panel shows.
    pub(crate) selected: Option<u64>,
    pub(crate) scale: Scale,
    /// The part of the time that is shown.
    pub(crate) range: Option<(Timestamp, Timestamp)>,
    /// The first row that is shown.
    pub(crate) first: usize,
    /// The address of the page with an operation in the panel.
    pub(crate) to_op: &'a dyn Fn(Option<u64>) -> String,
    /// The address of the page with a group or child expanded, or folded again.
    pub(crate) to_expand: &'a dyn Fn(u64) -> String,
    /// The address of the blocks that scripts load.
    pub(crate) blocks: String,
}

impl Timeline<'_> {
    fn origin(&self) -> Timestamp {
        self.source.origin()
    }

    /// The timeline with these rows.
    pub(crate) fn render(&self, site: &Site, rows: &[Row]) -> Markup {
        let axis = self.axis(rows);
        let shown = rows.iter().skip(self.first).take(PAGE_ROWS);
        html! {
            div.timeline #timeline data-total=(rows.len()) data-first=(self.first) data-axis=(self.whole_axis(rows).text(self.origin()))
                data-zoom=[self.range_text()] data-now=[self.now_text(site)] data-blocks=(self.blocks) data-icons=(row_json::sprite(site)) {
                (shapes())
                (density::density(&self.source, &axis))
                div.axis { span {} (axis_picture(&axis)) span {} }
                div.rows {
                    (self.grid(&axis, site.now))
                    ol data-rows { @for row in shown { (self.row(site, &axis, row)) } }
                }
            }
        }
    }

    /// The rows as a table.
    pub(crate) fn table(&self, site: &Site, rows: &[Row]) -> Markup {
        let shown: Vec<&Row> = rows.iter().skip(self.first).take(PAGE_ROWS).collect();
        table::table(site, &self.source, &shown, self.to_op)
    }

    /// A block of rows, for scripts.
    pub(crate) fn block(&self, site: &Site, rows: &[Row]) -> Value {
        let shown = rows.iter().skip(self.first).take(BLOCK_ROWS).map(|row| {
            let expand = row.expand.map(|(number, _)| (self.to_expand)(number));
            row_json::row(site, row, self.origin(), self.href(row), expand)
        });
        json!({
            "total": rows.len(),
            "first": self.first,
            "axis": self.whole_axis(rows).text(self.origin()),
            "now": self.now_text(site),
            "rows": shown.collect::<Vec<_>>(),
        })
    }

    fn href(&self, row: &Row) -> Option<String> {
        match (row.kind, row.op, row.depth) {
            (RowKind::Run, ..) => Some((self.to_op)(None)),
            (RowKind::Operation, Some(op), 0) => Some((self.to_op)(Some(op))),
            (RowKind::Group, ..) => row.expand.map(|(number, _)| (self.to_expand)(number)),
            _ => None,
        }
    }

    fn now_text(&self, site: &Site) -> Option<i64> {
        self.source.run.ended_at.is_none().then(|| site.now.as_micros() - self.origin().as_micros())
    }

    fn range_text(&self) -> Option<String> {
        let offset = |time: Timestamp| time.as_micros() - self.origin().as_micros();
        self.range.map(|(from, to)| format!("{}-{}", offset(from), offset(to)))
    }

    fn whole_axis(&self, rows: &[Row]) -> Axis {
        self.axis_of(rows, None)
    }

    pub(crate) fn axis(&self, rows: &[Row]) -> Axis {
        self.axis_of(rows, self.range)
    }

    /// The axis of all rows, whether they are shown or not.
    fn axis_of(&self, rows: &[Row], range: Option<(Timestamp, Timestamp)>) -> Axis {
        let open_end = self.source.bars().end();
        let busy: Vec<_> = self.source.bars().attempts().collect();
        let mut bounds: Vec<Timestamp> = vec![open_end];
        for row in rows {
            bounds.extend([row.from, row.to.unwrap_or(open_end)]);
            bounds.extend(row.shapes.iter().flat_map(|shape| [shape.from, shape.to]));
        }
        let end = bounds.iter().copied().max().unwrap_or(open_end);
        bounds.sort_unstable();
        bounds.dedup();
        Axis::new(self.origin(), end, &busy, &bounds, self.scale, range)
    }

    /// Lines and bands behind all rows.
    fn grid(&self, axis: &Axis, now: Timestamp) -> Markup {
        let is_open = self.source.run.ended_at.is_none() && axis.shows(now, now);
        let line = |x: f64, class: &str| html! { line class=(class) x1=(percent(x)) x2=(percent(x)) y1="0" y2="100%" {} };
        html! {
            svg.grid width="100%" height="100%" aria-hidden="true" {
                @for gap in axis.gaps() { rect.gap x=(percent(gap.x)) width=(percent(gap.width)) height="100%" {} }
                @for tick in axis.ticks() { (line(tick.x, "tick")) }
                @if is_open { (line(axis.x(now), "now")) }
            }
        }
    }

    fn row(&self, site: &Site, axis: &Axis, row: &Row) -> Markup {
        let is_current = match row.kind {
            RowKind::Run => self.selected.is_none(),
            _ => row.op.is_some() && row.op == self.selected,
        };
        let class = format!("row k-{}{}", row.kind.as_str(), if row.is_skipped { " skipped" } else { "" });
        html! {
            li id=(row.key) class=(class) data-depth=(row.depth) data-status=[row.is_open.then_some("open")]
                data-failed[row.is_failed] aria-current=[is_current.then_some("true")] {
                (self.expander(site, row))
                @match self.href(row) {
                    Some(href) => a.label href=(href) data-row { (content(site, row)) span.hidden { (row.words) } },
                    None => span.label { (content(site, row)) },
                }
                svg.bars width="100%" height="28" aria-hidden="true" {
                    @for shape in &row.shapes { (shape.draw(axis, self.origin())) }
                }
                span.took {
                    @if let Some(run) = row.run.filter(|_| row.kind == RowKind::Operation) { (run_link(site, run)) }
                    @else if row.has_time { (took(site, row.from.into(), row.to.map(Into::into))) }
                }
            }
        }
    }

    fn expander(&self, site: &Site, row: &Row) -> Markup {
        let Some((number, is_open)) = row.expand else { return html! {} };
        html! {
            a.expand href=((self.to_expand)(number)) data-row aria-expanded=(is_open) aria-label={ @if is_open { "Fold " } @else { "Expand " } (row.label) } {
                (icon(site, "expand"))
            }
        }
    }
}

/// What the label of a row contains.
fn content(site: &Site, row: &Row) -> Markup {
    html! {
        span.number { @if let Some(op) = row.op { (op) } }
        " "
        span class={ "s-" (row.status) } { (icon(site, row.icon)) }
        span.name title=(row.label) { (row.label) }
        " "
        @if !row.note.is_empty() { span.tag-note.warn[row.is_warning] { (row.note) } }
    }
}

fn axis_picture(axis: &Axis) -> Markup {
    html! {
        svg width="100%" height="26" aria-hidden="true" {
            @for tick in axis.ticks() {
                text x=(percent(tick.x)) y="17" text-anchor=[(tick.x >= 1.0).then_some("middle")] {
                    @if tick.is_after_gap { "+" }
                    (words::duration(tick.time))
                }
            }
            @for gap in axis.gaps().filter(|gap| gap.width >= LABELLED_LEAST) {
                text.gap x=(percent(gap.x + gap.width / 2.0)) y="13" text-anchor="middle" { (words::brief(gap.time())) }
                use.zigzag href="#tl-zigzag" x=(percent(gap.x + gap.width / 2.0)) y="21" {}
            }
        }
    }
}

/// The shapes that marks use, and the pattern of failed attempts.
fn shapes() -> Markup {
    html! {
        svg.shapes width="0" height="0" aria-hidden="true" {
            defs {
                circle #tl-dot r="4" {}
                circle #tl-ring.ring r="4" {}
                path #tl-diamond d="M0-6 6 0 0 6-6 0Z" {}
                path #tl-next.ring d="M-4-6 5 0-4 6Z" {}
                path #tl-tick d="M-1.500-6h3V6h-3Z" {}
                path #tl-cap d="M-1-7h2V7h-2Z" {}
                path #tl-flag d="M-1-11h9l-3 3 3 3H1V4h-2Z" {}
                path #tl-woken d="M0-6 6 5H-6Z" {}
                path #tl-zigzag.ring d="m-18 0 4-3 4 6 4-6 4 6 4-6 4 6 4-6 4 6 4-3" {}
                pattern #tl-hatch width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    rect.hatch-back width="5" height="5" {}
                    line.hatch-line x1="0" y1="0" x2="0" y2="5" {}
                }
                pattern #tl-idle width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    rect.idle-back width="5" height="5" {}
                    line.idle-line x1="0" y1="0" x2="0" y2="5" {}
                }
            }
        }
    }
}

impl std::fmt::Debug for Timeline<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timeline")
            .field("source", &self.source)
            .field("first", &self.first)
            .finish_non_exhaustive()
    }
}
