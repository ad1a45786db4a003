//! Controlling and inspecting schedules.

use std::future::IntoFuture;
use std::ops::Range;
use std::time::Duration;

use outlast_core::limits::{BACKLOG_RANGES_MAX, REASON_BYTES_MAX};
use outlast_core::{RunId, RunQuery, RunView, Status, Timestamp, WorldError};
use serde_json::Value;

use super::confirmed_schedule::ConfirmedSchedule;
use super::schedule::ScheduleBuilder;
use super::{BoxedCall, Client, Explanation, check_bytes};
use crate::error::{Error, ErrorKind};
use crate::schedule::{
    PublishedSchedule, SCHEDULE_WORKFLOW, ScheduleCommand, ScheduleState, ScheduleView, key_of, name_of,
};

/// The statuses of schedules that exist.
const LIVE: [Status; 4] = [Status::Pending, Status::Running, Status::Waiting, Status::Stuck];

impl Client {
    /// Returns a handle to a schedule. The schedule is not looked up: calls on the handle fail if it does not exist.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn report(ctx: Context) -> Result<(), Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let client = Client::new(outlast::open("memory:").await?);
    /// # client.schedule("nightly-report").cron("@daily").start(report, ()).await?;
    /// let schedule = client.schedule_handle("nightly-report");
    /// for instant in schedule.next(5).await? {
    ///     println!("it will fire at {instant}");
    /// }
    /// schedule.pause("the office is closed").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn schedule_handle(&self, name: impl Into<String>) -> ScheduleHandle {
        ScheduleHandle::new(self.clone(), name.into())
    }

    /// Lists the schedules of the world, newest first. Await the returned call to get a page.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # async fn show(client: &Client) -> Result<(), Error> {
    /// let mut page = client.schedules().await?;
    /// loop {
    ///     for schedule in &page.schedules {
    ///         println!("{}: {}, next at {:?}", schedule.name, schedule.timing, schedule.next);
    ///     }
    ///     let Some(next) = page.next else { break };
    ///     page = client.schedules().after(next).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn schedules(&self) -> SchedulesCall<'_> {
        SchedulesCall { client: self, after: None, limit: 100 }
    }

    /// What the run of a schedule has published, or what it was started with if it has not begun.
    pub(super) async fn published_schedule(&self, run: RunId) -> Result<PublishedSchedule, Error> {
        if let Some(published) = self.state(run).await? {
            return Ok(published);
        }
        let input = self.codec.decode(self.run_started(run).await?.input)?;
        Ok(PublishedSchedule::new(&input.decode::<ScheduleState>()?, None))
    }
}

/// A schedule; created by [`Client::schedule_handle`], and returned when a schedule is created.
///
/// Every call fails with `NotFound` if there is no schedule with the name. Changes take effect when a worker has
/// executed them, which is soon after the call returns.
#[derive(Clone, Debug)]
pub struct ScheduleHandle {
    client: Client,
    name: String,
}

impl ScheduleHandle {
    pub(super) fn new(client: Client, name: String) -> Self {
        Self { client, name }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Waits at most this long until a worker has made a change. Without it, calls return when the change is stored.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # async fn stop(schedule: outlast::ScheduleHandle) -> Result<(), Error> {
    /// use outlast::ScheduleAnswer;
    /// use std::time::Duration;
    ///
    /// let seen = schedule.view().await?.revision;
    /// let confirmed = schedule.confirmed(Duration::from_secs(10)).if_revision(seen);
    /// if confirmed.pause("the bank is closed").await? == ScheduleAnswer::Stale {
    ///     println!("somebody has changed it meanwhile");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn confirmed(&self, time: Duration) -> ConfirmedSchedule {
        ConfirmedSchedule::new(self.clone(), time)
    }

    /// Returns the run of the schedule itself.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn run(&self) -> Result<RunId, Error> {
        let query = RunQuery {
            key: Some(key_of(&self.name)),
            workflow: Some(SCHEDULE_WORKFLOW.into()),
            limit: 1,
            ..RunQuery::default()
        };
        let page = self.client.runs(query).await?;
        let live = page.runs.first().filter(|run| !run.status.is_final());
        live.map(|run| run.id).ok_or_else(|| self.not_found())
    }

    pub(super) fn not_found(&self) -> Error {
        let message = format!(
            "there is no schedule `{}`; create it with `client.schedule(…)`, or check the name",
            self.name
        );
        Error::of_world(&WorldError::not_found(message))
    }

    pub(super) async fn command(&self, command: &ScheduleCommand) -> Result<(), Error> {
        match self.client.command_schedule(self.run().await?, command).await {
            Ok(_) => Ok(()),
            // It has ended since it was looked up.
            Err(WorldError::Conflict(_)) if self.run().await.is_err() => Err(self.not_found()),
            Err(error) => Err(Error::of_world(&error)),
        }
    }

    /// Stops firing until the schedule is resumed. Firings that are running continue. Instants during a pause are not
    /// caught up. A schedule that is paused keeps its first reason. [`trigger`](Self::trigger) works during a pause;
    /// what waits for the end of another firing, and a [backfill](Self::backfill), continue when it is resumed.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Limit` if the reason is too long; `Unavailable`.
    pub async fn pause(&self, reason: &str) -> Result<(), Error> {
        check_bytes("the reason", reason.len(), REASON_BYTES_MAX)?;
        self.command(&ScheduleCommand::Pause { reason: reason.into() }).await
    }

    /// Ends a pause.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn resume(&self) -> Result<(), Error> {
        self.command(&ScheduleCommand::Resume).await
    }

    /// Fires now, whatever the time. The [overlap rule](crate::Overlap) applies. The instant of the firing is the time of
    /// this call.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn trigger(&self) -> Result<(), Error> {
        self.command(&ScheduleCommand::Trigger).await
    }

    /// Fires all instants of a range in the past, one after the other, beside the firings of later instants. An instant
    /// that has fired before does not fire again.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Invalid` if the range is empty or not in the past; `Limit` if 100 ranges are waiting; `Unavailable`.
    pub async fn backfill(&self, range: Range<Timestamp>) -> Result<(), Error> {
        check_range(&range, self.client.world.clock().now())?;
        let waiting = self.client.published_schedule(self.run().await?).await?.progress.backlog.len();
        if waiting >= BACKLOG_RANGES_MAX {
            let message = format!(
                "schedule `{}` has {waiting} ranges to backfill, the limit is {BACKLOG_RANGES_MAX}; try again later",
                self.name
            );
            return Err(Error::of_world(&WorldError::limit(message)));
        }
        self.command(&ScheduleCommand::backfill(range)).await
    }

    /// Changes the schedule. Set what changes, then call [`save`](ScheduleBuilder::save), or
    /// [`start`](ScheduleBuilder::start) with another workflow or input.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # async fn slower(schedule: outlast::ScheduleHandle) -> Result<(), Error> {
    /// schedule.update().every("5m").save().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn update(&self) -> ScheduleBuilder<'_> {
        ScheduleBuilder::update(&self.client, self.name.clone())
    }

    /// Ends the schedule; its name is free then. Firings that are running continue.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn delete(&self) -> Result<(), Error> {
        let run = self.run().await?;
        self.client.terminate(run, "the schedule was deleted").await?;
        self.wait_for_end(run).await
    }

    pub(super) async fn wait_for_end(&self, run: RunId) -> Result<(), Error> {
        let time = self.client.retry_time.clone()?;
        match self.client.handle::<Value>(run).output_within(time).await {
            Err(error) if matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the next instants of the schedule, without jitter, as this machine's time-zone data has them: at most
    /// 1,000. A pause is not taken into account.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Invalid` if this machine does not know the time zone; `Unavailable`.
    pub async fn next(&self, count: usize) -> Result<Vec<Timestamp>, Error> {
        self.view().await?.next_instants(self.client.world.clock().now(), count)
    }

    /// Returns the current state of the schedule.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn view(&self) -> Result<ScheduleView, Error> {
        let run = self.run().await?;
        Ok(ScheduleView::new(&self.name, run, self.client.published_schedule(run).await?))
    }

    /// Explains why the schedule is in its current state; see [`Client::explain`].
    ///
    /// # Errors
    ///
    /// `NotFound`, `Unavailable`.
    pub async fn explain(&self) -> Result<Explanation, Error> {
        self.client.explain(self.run().await?).await
    }
}

/// Refuses a range that cannot be backfilled at `now`.
pub(super) fn check_range(range: &Range<Timestamp>, now: Timestamp) -> Result<(), Error> {
    let Range { start, end } = range;
    if start < end && *end <= now {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the range from {start} to {end} cannot be backfilled at {now}; give a begin, and an end that is after it and not \
         in the future"
    )))
}

/// A call that lists schedules; created by [`Client::schedules`]. Await it to get a page.
#[must_use = "nothing is listed until the call is awaited"]
#[derive(Clone, Debug)]
pub struct SchedulesCall<'a> {
    client: &'a Client,
    after: Option<RunId>,
    limit: usize,
}

/// One page of a list of schedules.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SchedulePage {
    /// The schedules of the page.
    pub schedules: Vec<ScheduleView>,
    /// The cursor for [`after`](SchedulesCall::after) of the next page; `None` on the last page.
    pub next: Option<RunId>,
}

impl SchedulesCall<'_> {
    /// Continues behind the end of another page.
    pub fn after(mut self, cursor: RunId) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Sets the maximum number of schedules on the page; 100 by default.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    async fn call(self) -> Result<SchedulePage, Error> {
        let Self { client, after, limit } = self;
        let query = RunQuery {
            workflow: Some(SCHEDULE_WORKFLOW.into()),
            statuses: LIVE.to_vec(),
            after,
            limit,
            ..RunQuery::default()
        };
        let page = client.runs(query).await?;
        let mut schedules = Vec::with_capacity(page.runs.len());
        for RunView { id, key, .. } in page.runs {
            match client.published_schedule(id).await {
                Ok(published) => {
                    schedules.push(ScheduleView::new(
                        name_of(key.as_deref().unwrap_or_default()),
                        id,
                        published,
                    ));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(SchedulePage { schedules, next: page.next })
    }
}

impl<'a> IntoFuture for SchedulesCall<'a> {
    type Output = Result<SchedulePage, Error>;
    type IntoFuture = BoxedCall<'a, SchedulePage>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.call())
    }
}
