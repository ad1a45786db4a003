//! Shapes: what bars are made of. They have times; positions come from an axis.

use maud::{Markup, html};
use outlast_core::Timestamp;

use super::axis::Axis;

/// Bars that are narrower, in percent, get the least width.
const NARROW: f64 = 0.5;

/// The width of a bar that would be narrower, in pixels.
const BAR_LEAST: &str = "3";

/// A bar with a number in it has at least this width in percent.
const NUMBER_LEAST: f64 = 2.4;

/// The middle of a row.
const MIDDLE: u32 = 14;

/// What a shape looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// A rectangle of this height, in the middle of the row.
    Bar(u32),
    /// A horizontal line.
    Line,
    /// A mark at a time: the name of its form.
    Mark(&'static str),
    /// The number of an attempt, in its bar.
    Number(u32),
}

/// A part of a row's picture.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) figure: Figure,
    pub(crate) class: String,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// What it means, for those who point at it.
    pub(crate) title: Option<String>,
}

impl Shape {
    fn new(figure: Figure, class: impl Into<String>, from: Timestamp, to: Timestamp) -> Self {
        Self { figure, class: class.into(), from, to: to.max(from), title: None }
    }

    /// With an explanation.
    pub(crate) fn titled(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// A bar between two times.
    pub(crate) fn bar(height: u32, class: impl Into<String>, from: Timestamp, to: Timestamp) -> Self {
        Self::new(Figure::Bar(height), class, from, to)
    }

    /// A line between two times.
    pub(crate) fn line(class: &str, from: Timestamp, to: Timestamp) -> Self {
        Self::new(Figure::Line, class, from, to)
    }

    /// A mark at a time.
    pub(crate) fn mark(form: &'static str, class: &str, at: Timestamp) -> Self {
        Self::new(Figure::Mark(form), class, at, at)
    }

    /// The number of an attempt between two times.
    pub(crate) fn number(number: u32, class: &str, from: Timestamp, to: Timestamp) -> Self {
        Self::new(Figure::Number(number), class, from, to)
    }

    /// The shape as SVG. Scripts move it when the axis changes.
    pub(crate) fn draw(&self, axis: &Axis, origin: Timestamp) -> Markup {
        let offset = |time: Timestamp| time.as_micros() - origin.as_micros();
        let (from, to) = (offset(self.from), offset(self.to));
        let hidden = (!axis.shows(self.from, self.to)).then_some("none");
        let (x, end) = (axis.x(self.from), axis.x(self.to));
        match self.figure {
            Figure::Bar(height) => {
                let width = if end - x < NARROW { BAR_LEAST.to_owned() } else { percent(end - x) };
                html! {
                    rect class=(self.class) data-f=(from) data-t=(to) display=[hidden] x=(percent(x)) width=(width)
                        y=(MIDDLE - height / 2) height=(height) rx=(height.min(6) / 2) {}
                }
            }
            Figure::Line => html! {
                line class=(self.class) data-f=(from) data-t=(to) display=[hidden] x1=(percent(x)) x2=(percent(end))
                    y1=(MIDDLE) y2=(MIDDLE) {}
            },
            Figure::Mark(form) => html! {
                use class=(self.class) data-f=(from) data-t=(to) display=[hidden] href={ "#tl-" (form) } x=(percent(x)) y=(MIDDLE) {
                    @if let Some(title) = &self.title { title { (title) } }
                }
            },
            Figure::Number(number) => {
                let is_shown = hidden.is_none() && end - x >= NUMBER_LEAST;
                html! {
                    text class=(self.class) data-f=(from) data-t=(to) display=[(!is_shown).then_some("none")]
                        x=(percent((x + end) / 2.0)) y=(MIDDLE + 4) { (number) }
                }
            }
        }
    }
}

/// A position as an attribute.
pub(crate) fn percent(x: f64) -> String {
    format!("{x:.2}%")
}
