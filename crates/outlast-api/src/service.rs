//! The service: answers every request of the API on a client.

mod problems;

mod audit;
mod convert;
mod export;
mod failures;
mod fleet;
mod fork;
mod hooks;
mod list;
mod output;
mod prune;
mod queues;
mod resolve;
mod retry;
mod stats;
mod workflows;

mod events;
mod operations;
mod timeline;

mod streams;
mod tokens;

mod schedule_changes;
mod schedules;

mod bulk;
mod control;
mod send;
mod start;

use std::sync::Arc;

use outlast::{Client, SystemClock};
use outlast_core::{Clock, Payload, RunId};
use parking_lot::Mutex;

use crate::explanation::ExplanationJson;
use crate::payload::{PayloadAmount, PayloadJson};
use crate::problem::Problem;
use crate::rfc3339::Rfc3339;
use crate::role::Role;
use crate::run::RunJson;

pub use audit::NewAudit;
pub use events::EventTail;
pub use schedules::{local_minute, preview_schedule};
pub use start::StartedJson;
pub use streams::{StreamFollower, StreamFrame};
pub use timeline::{MomentKind, RunMoment, RunTimeline};
pub use tokens::body_without_tokens;

use audit::AuditState;
use failures::FailureGroups;
use fleet::NewestVersions;
use problems::of_error;
use stats::StatsRing;
use workflows::Statistics;

/// Answers every request of the API on a client of a world.
///
/// Handlers of the server and commands only translate between it and their own form. It does not check roles, except
/// where they depend on the body of a request.
///
/// ```
/// use outlast::prelude::*;
/// use outlast_api::{RunFilter, Service};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let service = Service::new(Client::new(outlast::open("memory:").await?));
/// assert!(service.runs(&RunFilter::default()).await?.items.is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Service {
    client: Client,
    newest_versions: Arc<Mutex<NewestVersions>>,
    failure_groups: Arc<Mutex<FailureGroups>>,
    statistics: Arc<Mutex<Statistics>>,
    audit: Arc<Mutex<AuditState>>,
    stats: Arc<Mutex<StatsRing>>,
    hides_payloads: bool,
}

/// Who makes a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name of the person or program. Histories show it.
    pub actor: String,
    /// Idempotency keys of callers with the same scope are the same.
    pub scope: String,
    /// What it may do.
    pub role: Role,
}

impl Caller {
    /// The caller on the same machine, who may do everything.
    pub fn local() -> Self {
        Self { actor: "local".into(), scope: "local".into(), role: Role::Admin }
    }
}

impl Service {
    /// A service on a client.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            newest_versions: Arc::default(),
            failure_groups: Arc::default(),
            statistics: Arc::default(),
            audit: Arc::default(),
            stats: Arc::default(),
            hides_payloads: false,
        }
    }

    /// The same service for callers who may not see payloads: they get only their sizes, and cannot export histories.
    pub fn without_payloads(&self) -> Self {
        Self { hides_payloads: true, ..self.clone() }
    }

    /// Whether payloads are hidden.
    pub fn hides_payloads(&self) -> bool {
        self.hides_payloads
    }

    /// How much of payloads is shown if this much is wanted.
    fn amount(&self, wanted: PayloadAmount) -> PayloadAmount {
        if self.hides_payloads { PayloadAmount::None } else { wanted }
    }

    /// A stored payload, as much of it as is wanted and may be seen.
    fn payload(&self, stored: &Payload, wanted: PayloadAmount) -> PayloadJson {
        convert::payload(&self.client, stored, self.amount(wanted))
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The time of the world.
    pub fn now(&self) -> Rfc3339 {
        self.client.world().clock().now().into()
    }

    /// `GET /api/runs/{id}`.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn run(&self, run: RunId) -> Result<RunJson, Problem> {
        Ok(convert::run(&self.client.run(run).await.map_err(of_error)?))
    }

    /// `GET /api/runs/{id}/explain`.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn explain(&self, run: RunId) -> Result<ExplanationJson, Problem> {
        let explanation = self.client.explain(run).await.map_err(of_error)?;
        convert::explanation(&explanation, self.hides_payloads)
    }
}

/// The time of this machine, for what is cached.
fn machine_time() -> outlast_core::Timestamp {
    SystemClock.now()
}
