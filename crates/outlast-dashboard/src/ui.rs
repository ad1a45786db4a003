//! The components of the pages: one function each.

pub(crate) mod layout;

pub(crate) mod badge;
pub(crate) mod command;
pub(crate) mod fields;
pub(crate) mod note;
pub(crate) mod parts;
pub(crate) mod payload;
pub(crate) mod pictures;
pub(crate) mod sentence;
pub(crate) mod words;

#[cfg(test)]
mod contrast;
