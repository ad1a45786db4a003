//! The kinds of definitions, and their texts.

use std::fmt;

use proc_macro2::{Ident, Span};
use quote::format_ident;
use syn::ext::IdentExt;

/// What an attribute defines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// `#[step]`
    Step,
    /// `#[step(blocking)]`
    BlockingStep,
    /// `#[step(transactional)]` with a transaction of this database.
    TransactionalStep(Database),
    /// `#[workflow]`
    Workflow,
}

/// The database of a transactional step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

impl Database {
    /// The database with transactions of this type, by its name.
    pub(crate) fn of_transaction(name: &str) -> Option<Self> {
        match name {
            "SqliteTx" => Some(Self::Sqlite),
            "PgTx" => Some(Self::Postgres),
            _ => None,
        }
    }

    /// How its transaction is written as a parameter.
    pub(crate) fn parameter(self) -> &'static str {
        match self {
            Self::Sqlite => "tx: &SqliteTx<'_>",
            Self::Postgres => "tx: &mut PgTx<'_>",
        }
    }

    /// Its variant of `TransactionKind`.
    pub(crate) fn variant(self) -> Ident {
        let name = match self {
            Self::Sqlite => "Sqlite",
            Self::Postgres => "Postgres",
        };
        Ident::new(name, Span::call_site())
    }
}

impl Kind {
    /// The word for it, as in the attribute.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Step | Self::BlockingStep | Self::TransactionalStep(_) => "step",
            Self::Workflow => "workflow",
        }
    }

    /// The name of the type of its context.
    pub(crate) fn context(self) -> &'static str {
        match self {
            Self::Step | Self::BlockingStep | Self::TransactionalStep(_) => "StepContext",
            Self::Workflow => "Context",
        }
    }

    /// How its context is usually written as a parameter.
    pub(crate) fn context_parameter(self) -> &'static str {
        match self {
            Self::Step | Self::BlockingStep | Self::TransactionalStep(_) => "cx: StepContext",
            Self::Workflow => "ctx: Context",
        }
    }

    /// The name of the type that carries the definition of `function`.
    pub(crate) fn marker(self, function: &Ident) -> Ident {
        let span = Span::call_site().located_at(function.span());
        format_ident!("__{}_{}", self.word(), function.unraw(), span = span)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`#[{}]`", self.word())
    }
}
