//! The actions of operators.

use std::fmt;

use crate::role::Role;

/// Everything that a person or program can do to runs through a surface. Each action has a route of the API and a
/// command; tests compare the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Start a run.
    Start,
    /// Start many runs in one request.
    StartBatch,
    /// Send a payload to a hook.
    Send,
    /// Send a payload to the run that holds a token.
    SendToToken,
    /// Ask a run to stop.
    Cancel,
    /// End a run without its code.
    Terminate,
    /// Hold a run back.
    Pause,
    /// End a pause, or let failed builds try a stuck run again.
    Resume,
    /// End the sleeps of a run early.
    Wake,
    /// Continue a run from the operation that failed.
    Retry,
    /// Start a new run with the input of another.
    Restart,
    /// Start a new run with the events of another one before a cut.
    Fork,
    /// Protect a run from deletion and bulk actions.
    Quarantine,
    /// End the quarantine of a run.
    Release,
    /// Delete a run that has ended.
    Delete,
    /// The same action for all runs of a query.
    Bulk,
    /// Stop a bulk action.
    StopBulk,
    /// Delete all runs that ended before a time.
    Prune,
    /// Create a schedule.
    CreateSchedule,
    /// Replace the definition of a schedule.
    UpdateSchedule,
    /// End a schedule.
    DeleteSchedule,
    /// Pause a schedule.
    PauseSchedule,
    /// Resume a schedule.
    ResumeSchedule,
    /// Fire a schedule now.
    TriggerSchedule,
    /// Fire the instants of a range in the past.
    BackfillSchedule,
    /// Pause many schedules.
    PauseSchedules,
    /// Resume many schedules.
    ResumeSchedules,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 27] = [
        Self::Start,
        Self::StartBatch,
        Self::Send,
        Self::SendToToken,
        Self::Cancel,
        Self::Terminate,
        Self::Pause,
        Self::Resume,
        Self::Wake,
        Self::Retry,
        Self::Restart,
        Self::Fork,
        Self::Quarantine,
        Self::Release,
        Self::Delete,
        Self::Bulk,
        Self::StopBulk,
        Self::Prune,
        Self::CreateSchedule,
        Self::UpdateSchedule,
        Self::DeleteSchedule,
        Self::PauseSchedule,
        Self::ResumeSchedule,
        Self::TriggerSchedule,
        Self::BackfillSchedule,
        Self::PauseSchedules,
        Self::ResumeSchedules,
    ];

    /// The name of the action.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::StartBatch => "start_batch",
            Self::Send => "send",
            Self::SendToToken => "send_to_token",
            Self::Cancel => "cancel",
            Self::Terminate => "terminate",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Wake => "wake",
            Self::Retry => "retry",
            Self::Restart => "restart",
            Self::Fork => "fork",
            Self::Quarantine => "quarantine",
            Self::Release => "release",
            Self::Delete => "delete",
            Self::Bulk => "bulk",
            Self::StopBulk => "stop_bulk",
            Self::Prune => "prune",
            Self::CreateSchedule => "create_schedule",
            Self::UpdateSchedule => "update_schedule",
            Self::DeleteSchedule => "delete_schedule",
            Self::PauseSchedule => "pause_schedule",
            Self::ResumeSchedule => "resume_schedule",
            Self::TriggerSchedule => "trigger_schedule",
            Self::BackfillSchedule => "backfill_schedule",
            Self::PauseSchedules => "pause_schedules",
            Self::ResumeSchedules => "resume_schedules",
        }
    }

    /// The role that the action needs.
    pub const fn role(self) -> Role {
        match self {
            Self::Delete | Self::Prune => Role::Admin,
            _ => Role::Operate,
        }
    }

    /// Whether only programs do it: it has no form in the dashboard.
    pub const fn is_headless(self) -> bool {
        matches!(self, Self::StartBatch | Self::SendToToken | Self::PauseSchedules | Self::ResumeSchedules)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
