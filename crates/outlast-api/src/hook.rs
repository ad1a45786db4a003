//! Open hooks in responses.

use std::fmt;
use std::str::FromStr;

use outlast_core::RunId;
use serde::{Deserialize, Serialize};

use crate::page::PageRequest;
use crate::problem::Problem;
use crate::query::{QueryPairs, QueryReader, QueryWriter};
use crate::rfc3339::Rfc3339;

/// A hook that a run waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OpenHookJson {
    /// Its name.
    pub name: String,
    /// The run.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub run: RunId,
    /// The number of the operation.
    pub op: u64,
    /// The workflow of the run.
    pub workflow: String,
    /// The key of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Since when the run waits.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub since: Rfc3339,
    /// When the wait ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = "date-time"))]
    pub until: Option<Rfc3339>,
    /// Whether the payload is sent to a token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_token: bool,
    /// How requests are handled, if the hook is a webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookJson>,
}

/// How HTTP requests to a webhook are handled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookJson {
    /// The allowed methods.
    pub methods: Vec<String>,
    /// The name of the secret with which requests are signed; none if signatures are not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The header with the HMAC-SHA256 of the body; none for Standard Webhooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hmac_header: Option<String>,
    /// `accepted` (202), `fixed`, or `by_workflow`.
    pub response: String,
    /// Where requests are sent, for callers who may send to hooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl WebhookJson {
    /// The terms of a webhook, without its URL.
    #[cfg(feature = "service")]
    pub(crate) fn of(terms: &outlast_core::WebhookTerms) -> Self {
        use outlast_core::WebhookResponse;
        let response = match &terms.response {
            WebhookResponse::Fixed(_) => "fixed",
            WebhookResponse::ByWorkflow => "by_workflow",
            _ => "accepted",
        };
        Self {
            methods: terms.allowed_methods().into_iter().map(Into::into).collect(),
            secret: terms.signature.as_ref().map(|signature| signature.secret.clone()),
            hmac_header: terms.signature.as_ref().and_then(|signature| signature.hmac_header.clone()),
            response: response.into(),
            url: None,
        }
    }
}

/// How payloads reach a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// By the run and the name of the hook.
    Name,
    /// By a token.
    Token,
    /// By HTTP requests.
    Webhook,
}

impl HookKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Name, Self::Token, Self::Webhook];

    /// The name in queries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Token => "token",
            Self::Webhook => "webhook",
        }
    }
}

impl fmt::Display for HookKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for HookKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not a kind of hook; expected name, token or webhook"))
    }
}

impl OpenHookJson {
    /// How payloads reach it.
    pub fn kind(&self) -> HookKind {
        match (&self.webhook, self.has_token) {
            (Some(_), _) => HookKind::Webhook,
            (None, true) => HookKind::Token,
            (None, false) => HookKind::Name,
        }
    }
}

/// Which open hooks are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookFilter {
    /// Only hooks with this name.
    pub name: Option<String>,
    /// Only hooks of runs of this workflow.
    pub workflow: Option<String>,
    /// Only hooks of this kind.
    pub kind: Option<HookKind>,
    /// Only hooks of runs that have waited since before this time.
    pub opened_before: Option<Rfc3339>,
    /// The page.
    pub page: PageRequest,
}

impl QueryPairs for HookFilter {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        Ok(Self {
            name: reader.text("name")?,
            workflow: reader.text("workflow")?,
            kind: reader.parse("kind")?,
            opened_before: reader.parse("opened_before")?,
            page: PageRequest::read_query(reader)?,
        })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("name", self.name.as_ref());
        writer.set("workflow", self.workflow.as_ref());
        writer.set("kind", self.kind);
        writer.set("opened_before", self.opened_before);
        self.page.write_query(writer);
    }
}
