//! Pages of lists.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cursor::{Cursor, CursorError};
use crate::problem::{Problem, ProblemCode};
use crate::query::{QueryPairs, QueryReader, QueryWriter};
use crate::run::RunJson;

/// A page of a list. It may be short or empty while `next` is set.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ItemPage<T> {
    /// The elements.
    pub items: Vec<T>,
    /// The cursor of the next page, if there may be more.
    pub next: Option<String>,
    /// The cursor of the previous page, if there may be one.
    pub prev: Option<String>,
}

/// A page of the children of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChildrenJson {
    /// The children.
    pub items: Vec<RunJson>,
    /// The cursor of the next page, if there may be more.
    pub next: Option<String>,
    /// The cursor of the previous page, if there may be one.
    pub prev: Option<String>,
    /// The number of the first 1,000 children in each status.
    pub counts: BTreeMap<String, u64>,
    /// Whether there are more than 1,000 children.
    pub more: bool,
}

/// Which page of a list is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageRequest {
    /// The number of elements, 1 to 1,000.
    pub limit: Option<usize>,
    /// `next` or `prev` of another page.
    pub cursor: Option<String>,
}

impl PageRequest {
    /// The number of elements if a request does not say it.
    pub const LIMIT_DEFAULT: usize = 50;

    /// The largest number of elements.
    pub const LIMIT_MAX: usize = 1_000;

    /// The number of elements of the page.
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(Self::LIMIT_DEFAULT).clamp(1, Self::LIMIT_MAX)
    }

    /// The cursor, if it belongs to the list with these filters.
    ///
    /// # Errors
    ///
    /// `invalid_request` if it cannot be read, `cursor_mismatch` if it belongs to another list.
    pub fn cursor(&self, filters: &str) -> Result<Option<Cursor>, Problem> {
        let read = self.cursor.as_deref().map(|text| Cursor::read(text, filters)).transpose();
        read.map_err(|error| match error {
            CursorError::Unreadable => Problem::field("?cursor", error.to_string()),
            CursorError::Mismatch => Problem::new(ProblemCode::CursorMismatch, error.to_string()),
        })
    }
}

impl QueryPairs for PageRequest {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        let limit = reader.parse::<usize>("limit")?;
        if limit.is_some_and(|limit| limit == 0 || limit > Self::LIMIT_MAX) {
            return Err(Problem::field("?limit", format!("expected 1 to {}", Self::LIMIT_MAX)));
        }
        Ok(Self { limit, cursor: reader.text("cursor")? })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("limit", self.limit);
        writer.set("cursor", self.cursor.as_ref());
    }
}
