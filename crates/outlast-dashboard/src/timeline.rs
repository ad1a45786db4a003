//! The timeline of a run: one row for each operation, bars for attempts, and an axis that compresses idle time.
//!
//! [`rows`] computes what is shown, as data: the server draws it as SVG, the table shows it as text, and `timeline.js`
//! gets it as JSON for long runs. Bars are made of a few [shapes](shape), which have times. An [axis](axis::Axis) turns
//! times into positions, here and in `timeline.js`.

pub(crate) mod axis;
pub(crate) mod shape;

mod bars;
mod group;
mod moments;
pub(crate) mod rows;

mod density;
pub(crate) mod drawing;
mod json;
mod table;

pub(crate) use drawing::Timeline;
pub(crate) use rows::{operation_icon, status_of};
