//! What commands print: tables, times, JSON, in a terminal or for a program.

pub(crate) mod bars;
pub(crate) mod console;
pub(crate) mod escape;
pub(crate) mod ids;
pub(crate) mod json;
pub(crate) mod style;
pub(crate) mod symbols;
pub(crate) mod table;
pub(crate) mod times;

pub(crate) use self::console::Console;
pub(crate) use self::escape::{one_line, several_lines};
pub(crate) use self::style::{Look, Tone};
pub(crate) use self::table::{Align, Table};
