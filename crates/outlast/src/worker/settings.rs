//! The settings of a worker, which all its sessions share, and what is needed to attempt a step.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::event::{FORMAT, RULES, format_of_rules};
use outlast_core::{Codec, World, WorldError};
use tokio::sync::Semaphore;

use super::attempts::PreparedStep;
use super::attempts::retry_events::OnRetry;
use super::background_drops::BackgroundDrops;
use super::log_limit::RunLogs;
use super::metrics::Meter;
use super::outage::Outage;
use super::session::definitions::WorkflowSchemas;
use super::session::retention::RetentionTimes;
use super::world_gone::WorldGone;
use crate::authoring::registry::Registered;
use crate::replay::StepToAttempt;
use crate::telemetry::ProcessMetrics;

/// The settings of a worker, and the counters and logs that outlive its sessions.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) build: Arc<str>,
    pub(super) code: Arc<Registered>,
    /// The queues that the worker serves.
    pub(super) queues: Arc<[Arc<str>]>,
    pub(super) codec: Arc<dyn Codec>,
    /// The maximum number of live runs.
    pub(super) live_max: usize,
    /// The maximum number of futures in the cache.
    pub(super) cached_max: usize,
    pub(super) session_time: Duration,
    pub(super) drain: Duration,
    pub(super) is_paranoid: bool,
    /// The maximum number of events in one part of a turn.
    pub(super) part_events: usize,
    pub(super) on_retry: Option<OnRetry>,
    /// The maximum time that a turn may take to compute.
    pub(super) turn_time: Duration,
    pub(super) meter: Arc<Meter>,
    /// What this process counts about the world.
    pub(super) metrics: Arc<ProcessMetrics>,
    /// Logs when the world does not respond, for all sessions.
    pub(super) outage: Arc<Outage>,
    /// Why the worker has stopped by itself, if it has.
    pub(super) world_gone: WorldGone,
    /// Logs retries, failures and stuck runs, with a limit.
    pub(super) run_logs: RunLogs,
    /// Drops the futures of runs and attempts that are given up.
    pub(super) drops: Arc<BackgroundDrops>,
    /// The names of the registered steps, sorted.
    pub(super) step_names: Vec<Arc<str>>,
    /// Limits the number of concurrent attempts at blocking steps.
    pub(super) blocking_permits: Arc<Semaphore>,
    /// Limits the number of concurrent attempts at transactional steps.
    pub(super) transactional_permits: Arc<Semaphore>,
    /// How long runs are kept after their end.
    pub(super) retention: RetentionTimes,
    /// The schemas of workflows that the program says.
    pub(super) schemas: Vec<WorkflowSchemas>,
    /// The highest rules that the worker announces.
    pub(super) rules: u32,
    /// The world of the clients to which the worker is local, if it is not the one that the worker joins. For tests.
    pub(super) local_world: Option<Arc<dyn World>>,
}

impl Settings {
    /// The world of the clients to which a worker of `world` is local.
    pub(super) fn client_world(&self, world: &Arc<dyn World>) -> Arc<dyn World> {
        self.local_world.as_ref().unwrap_or(world).clone()
    }

    /// Returns the error because of which the worker has stopped by itself, if it has.
    pub(super) fn check_world(&self) -> Result<(), WorldError> {
        self.world_gone.error().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The highest durable format that the worker announces.
    pub(super) fn format(&self) -> u32 {
        if self.rules < RULES { format_of_rules(self.rules) } else { FORMAT }
    }

    /// Collects what is needed to attempt a step; `None` if this worker does not have the step's code.
    /// `is_maybe_attempted` says whether another worker may have made this attempt.
    pub(super) fn prepare(&self, mut step: StepToAttempt, is_maybe_attempted: bool) -> Option<PreparedStep> {
        let is_first = step.attempt == 1 && !is_maybe_attempted;
        if let Some(call) = step.call.clone() {
            let (limits, step_index, is_transactional) = (Vec::new(), 0, false);
            return Some(PreparedStep {
                step,
                is_first,
                is_maybe_attempted,
                call,
                limits,
                step_index,
                is_transactional,
            });
        }
        let call = self.code.step(&step.name)?.clone();
        let (mut limits, mut step_index, mut is_transactional) = (Vec::new(), 0, false);
        if let Some(options) = self.code.step_options_of(&step.name) {
            step_index = options.place;
            limits.extend(options.limit.clone());
            limits.extend(options.policy.is_blocking.then(|| self.blocking_permits.clone()));
            is_transactional = options.transaction.is_some();
            limits.extend(is_transactional.then(|| self.transactional_permits.clone()));
            step.policy.is_at_most_once |= options.policy.is_at_most_once;
            step.policy.heartbeat_timeout =
                step.policy.heartbeat_timeout.or(options.policy.heartbeat_timeout);
        }
        Some(PreparedStep { step, is_first, is_maybe_attempted, call, limits, step_index, is_transactional })
    }
}
