//! How values are written to parameters of statements and read from rows.

pub(crate) mod json_rows;
pub(crate) mod row;
pub(crate) mod text;

pub(crate) mod message;
pub(crate) mod turn;
