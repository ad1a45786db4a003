//! How many runs ended in the last hour, as a chart.

use maud::{Markup, html};
use outlast_api::{StatsJson, StatsPointJson, StatsQuery};
use outlast_core::Timestamp;

use crate::app::AppState;
use crate::site::Site;
use crate::ui::pictures::sparkline;
use crate::ui::words;

/// A column of the chart.
const MINUTE_MICROS: i64 = 60_000_000;

/// The chart with the runs that have ended in each minute of the last hour, or since this process counts them.
pub(crate) fn last_hour(app: &AppState, site: &Site) -> Markup {
    html! { div.last-hour #last-hour { (chart(&app.service.stats(StatsQuery::default()), site.now)) } }
}

/// Nothing if no run has ended.
fn chart(stats: &StatsJson, now: Timestamp) -> Markup {
    let ended = |point: &StatsPointJson| point.completed + point.failed + point.cancelled;
    let minute = |time: Timestamp| time.as_micros().div_euclid(MINUTE_MICROS);
    let mut minutes = [0; 60];
    for point in &stats.items {
        let age = usize::try_from(minute(now) - minute(point.at.0)).ok();
        if let Some(column) = age.and_then(|age| minutes.len().checked_sub(age + 1)) {
            minutes[column] = ended(point);
        }
    }
    let known = stats.since.map(|since| now.since(since.0)).unwrap_or_default();
    let span = if known >= StatsQuery::default().window { "hour".to_owned() } else { words::rough(known) };
    let all = words::counted(minutes.iter().sum(), "run");
    html! {
        @if minutes.iter().any(|ended| *ended > 0) {
            (sparkline(&minutes, "running", &format!("{all} ended in the last {span}, by minute")))
            span { b { (all) } " ended in the last " (span) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_micros(minute * MINUTE_MICROS)
    }

    fn point(minute: i64, completed: u64, failed: u64) -> StatsPointJson {
        StatsPointJson { at: at(minute).into(), open: 0, stuck: 0, completed, failed, cancelled: 0 }
    }

    fn text(since: i64, items: Vec<StatsPointJson>) -> String {
        let stats = StatsJson { since: Some(at(since).into()), bucket_seconds: 60, items };
        chart(&stats, at(1_000)).into_string()
    }

    #[test]
    fn the_chart_says_what_it_covers() {
        let hour = text(0, vec![point(940, 100, 0), point(941, 3, 1), point(999, 1, 0)]);
        assert!(hour.contains("<b>5 runs</b> ended in the last hour"), "{hour}");
        assert_eq!(hour.matches("<rect").count(), 60);
        assert_eq!(hour.matches("f-running").count(), 2, "older ones are not in it");
        let new = text(988, vec![point(999, 1, 0)]);
        assert!(new.contains("<b>1 run</b> ended in the last 12 min"), "{new}");
        assert_eq!(text(988, vec![point(999, 0, 0)]), "", "an empty chart is none");
    }
}
