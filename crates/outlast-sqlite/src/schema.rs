//! The schema of the file, its statements, and the conversion of rows.

/// Creating the tables, and upgrading files of earlier builds.
pub(crate) mod migrate;

/// The statements of the folder `sql/`.
pub(crate) mod sql;

/// The conversion of column values.
pub(crate) mod row;

/// The columns of a run that only its holder changes.
pub(crate) mod columns;
