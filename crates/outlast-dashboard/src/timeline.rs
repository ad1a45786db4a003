//! The timeline of a run: one row for each operation, on a common axis.
//!
//! All positions are percentages of the width, as attributes of SVG. So the picture fits every width without a script,
//! and no inline style is needed.

pub(crate) mod axis;

mod bars;
mod rows;

pub(crate) use rows::{Timeline, operation_icon, status_of};
