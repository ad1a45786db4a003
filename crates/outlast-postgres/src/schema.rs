//! The schema in the database: the statements and functions, the columns that they share, and the migrations.

pub(crate) mod holder_columns;
pub(crate) mod migrate;
pub(crate) mod statements;
