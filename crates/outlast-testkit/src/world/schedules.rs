//! Schedules under virtual time.

use outlast::{FiringView, ScheduleView};

use super::{ADVANCES_MAX, TestWorld};

impl TestWorld {
    /// Advances the clock until a schedule has fired this often, and executes everything that is due until then. Returns
    /// that firing.
    ///
    /// ```
    /// use outlast::prelude::*;
    /// use outlast_testkit::TestWorld;
    ///
    /// #[workflow]
    /// async fn report(ctx: Context) -> Result<String, Error> {
    ///     Ok(ctx.scheduled_at().map_or_else(String::new, |night| night.to_string()))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let world = TestWorld::builder().register(report).start().await;
    /// world.client().schedule("nightly").cron("0 3 * * *").start(report, ()).await?;
    /// let third = world.advance_to_firing("nightly", 3).await;
    /// let night = world.client().handle::<String>(third.run).output().await?;
    /// assert_eq!(night, "2030-01-03T03:00:00.000000Z");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// When there is no such schedule, or when it does not fire any more.
    pub async fn advance_to_firing(&self, schedule: &str, nth: u64) -> FiringView {
        for _ in 0..ADVANCES_MAX {
            self.settle().await;
            let view = match self.client.schedule_handle(schedule).view().await {
                Ok(view) => view,
                Err(error) => panic!("{error}"),
            };
            match view {
                ScheduleView { last: Some(last), counts, .. } if counts.fired >= nth => return last,
                ScheduleView { next: Some(next), .. } => self.advance_to(next).await,
                view => panic!("schedule `{schedule}` does not fire any more: {view:?}"),
            }
        }
        panic!("schedule `{schedule}` has not fired {nth} times after {ADVANCES_MAX} instants")
    }
}
