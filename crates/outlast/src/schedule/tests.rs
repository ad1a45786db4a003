//! Tables of instants, and what a schedule does when it comes late.

use std::time::Duration;

use outlast_core::limits::LATE_FIRING_DELAY_MAX;
use outlast_core::{RunId, Timestamp};

use super::instants::Instants;
use super::late_firings::LateFirings;
use super::plan::{Plan, PlannedInstant, Planner};
use super::rule::{CatchUp, RuleChanges, ScheduleTiming};

fn time(text: &str) -> Timestamp {
    let text = if text.len() == 16 { format!("{text}:00Z") } else { format!("{text}Z") };
    Timestamp::from_micros(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
}

/// Asserts the instants of an expression after a time, in UTC, forwards and backwards.
#[track_caller]
fn check(expression: &str, timezone: &str, after: &str, expected: &[&str]) {
    let timing = ScheduleTiming::Cron { expression: expression.into(), timezone: timezone.into() };
    let instants = Instants::new(&timing, time(after)).unwrap();
    let next = std::iter::successors(instants.after(time(after)), |last| instants.after(*last));
    let found: Vec<_> = next.take(expected.len()).collect();
    let expected: Vec<_> = expected.iter().map(|text| time(text)).collect();
    assert_eq!(found, expected, "{expression} in {timezone}");
    let mut backwards: Vec<_> = instants
        .backwards(expected[expected.len() - 1])
        .take_while(|instant| *instant > time(after))
        .collect();
    backwards.reverse();
    assert_eq!(backwards, expected, "{expression} in {timezone}, backwards");
    // From between two instants, the search backwards finds the earlier one.
    for pair in expected.windows(2) {
        let between = Timestamp::from_micros(pair[1].as_micros() - 1);
        assert_eq!(instants.backwards(between).next(), Some(pair[0]), "{expression} before {}", pair[1]);
    }
}

#[test]
fn days_that_follow_each_other_are_a_range() {
    for (days, words) in [
        ("MON-FRI", "At 03:00, on Monday to Friday"),
        ("SUN-TUE", "At 03:00, on Sunday to Tuesday"),
        ("SAT,SUN", "At 03:00, on Sunday and Saturday"),
        ("MON,WED-FRI", "At 03:00, on Monday, Wednesday, Thursday, and Friday"),
    ] {
        assert_eq!(super::cron::cron_in_words(&format!("0 3 * * {days}")).unwrap(), words);
    }
}

#[test]
fn a_local_time_that_does_not_exist_fires_at_the_next_valid_instant() {
    let berlin = ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30", "2026-03-31T00:30"];
    check("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00", &berlin);
    check("0 2 * * *", "Europe/Berlin", "2026-03-28T12:00", &["2026-03-29T01:00", "2026-03-30T00:00"]);
    let new_york = ["2026-03-07T07:30", "2026-03-08T07:00", "2026-03-09T06:30"];
    check("30 2 * * *", "America/New_York", "2026-03-06T18:00", &new_york);
    // Several local times that do not exist are one instant, and so is the first that exists.
    let hours = ["2026-03-29T00:00", "2026-03-29T01:00", "2026-03-29T02:00"];
    check("0 * * * *", "Europe/Berlin", "2026-03-28T23:30", &hours);
    let quarters = ["2026-03-08T06:45", "2026-03-08T07:00", "2026-03-08T07:15"];
    check("*/15 * * * *", "America/New_York", "2026-03-08T06:30", &quarters);
}

#[test]
fn a_local_time_that_exists_twice_fires_once() {
    let berlin = ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"];
    check("30 2 * * *", "Europe/Berlin", "2026-10-23T12:00", &berlin);
    let new_york = ["2026-10-31T05:30", "2026-11-01T05:30", "2026-11-02T06:30"];
    check("30 1 * * *", "America/New_York", "2026-10-30T18:00", &new_york);
    let hours = ["2026-10-24T23:00", "2026-10-25T00:00", "2026-10-25T02:00", "2026-10-25T03:00"];
    check("0 * * * *", "Europe/Berlin", "2026-10-24T22:30", &hours);
    let halves = ["2026-11-01T05:30", "2026-11-01T07:00", "2026-11-01T07:30"];
    check("*/30 * * * *", "America/New_York", "2026-11-01T05:00", &halves);
    // A search that begins in the second of the two hours.
    check("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10", &["2026-10-26T01:30"]);
}

#[test]
fn a_day_has_its_offset() {
    let summer_and_winter = ["2026-10-24T07:00", "2026-10-25T08:00", "2026-10-26T08:00"];
    check("0 9 * * *", "Europe/Berlin", "2026-10-24T00:00", &summer_and_winter);
    check("0 9 * * *", "America/New_York", "2026-03-07T00:00", &["2026-03-07T14:00", "2026-03-08T13:00"]);
    // Half an hour is the difference on Lord Howe Island.
    check("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T18:00", &["2026-10-03T15:30", "2026-10-04T15:15"]);
}

#[test]
fn expressions_have_names_ranges_steps_lists_and_days_of_the_month() {
    let utc = |expression, after, expected: &[&str]| check(expression, "UTC", after, expected);
    utc("0 9 L * *", "2026-01-30T12:00", &["2026-01-31T09:00", "2026-02-28T09:00", "2026-03-31T09:00"]);
    utc("0 9 * * FRI#2", "2026-01-01T00:00", &["2026-01-09T09:00", "2026-02-13T09:00", "2026-03-13T09:00"]);
    utc("0 9 * * FRI#L", "2026-01-01T00:00", &["2026-01-30T09:00", "2026-02-27T09:00"]);
    let mondays = ["2026-01-05T10:15", "2026-01-05T12:15", "2026-01-12T10:15"];
    utc("15 10-12/2 * * MON", "2026-01-01T00:00", &mondays);
    let weekdays = ["2026-01-02T03:00", "2026-01-05T03:00"];
    utc("0 3 * * MON-FRI", "2026-01-01T12:00", &weekdays);
    utc(
        "0 0 1,15 JAN-FEB *",
        "2026-01-02T00:00",
        &["2026-01-15T00:00", "2026-02-01T00:00", "2026-02-15T00:00"],
    );
    utc("@daily", "2026-01-01T12:00", &["2026-01-02T00:00", "2026-01-03T00:00"]);
    utc("@hourly", "2026-01-01T12:34:56.5", &["2026-01-01T13:00", "2026-01-01T14:00"]);
    utc("0 0 29 2 *", "2026-01-01T00:00", &["2028-02-29T00:00", "2032-02-29T00:00"]);
}

fn planned(catch_up: CatchUp, position: u64, now: f64) -> (u64, Vec<u64>, Option<u64>) {
    let second = |seconds: f64| Timestamp::from_micros((seconds * 1_000_000.0) as i64);
    let changes = RuleChanges { every_micros: Some(10_000_000), ..RuleChanges::default() };
    let changes = RuleChanges { catch_up: Some(catch_up), end_at: Some(second(1_000.0)), ..changes };
    let rule = changes.new_rule().unwrap();
    let instants = || Instants::new(&rule.timing, second(0.0)).unwrap();
    let late = LateFirings::default();
    let planner = Planner { run: RunId::from_bits(7), rule: &rule, instants: instants(), late: &late };
    let Plan { missed, backlog, next } = planner.plan(second(position as f64), second(now));
    let backlog = backlog.map(|range| {
        let first = std::iter::successors(instants().after(range.after), |last| instants().after(*last));
        first.take_while(|instant| *instant <= range.until).map(as_seconds).collect()
    });
    (missed, backlog.unwrap_or_default(), next.map(|next: PlannedInstant| as_seconds(next.nominal)))
}

fn as_seconds(instant: Timestamp) -> u64 {
    (instant.as_micros() / 1_000_000) as u64
}

#[test]
fn a_plan_catches_up_as_the_rule_says() {
    use CatchUp::{All, Last, None as Nothing};
    for catch_up in [Nothing, Last, All(3)] {
        assert_eq!(planned(catch_up, 0, 3.0), (0, vec![], Some(10)), "nothing is due");
        assert_eq!(planned(catch_up, 10, 20.5), (0, vec![], Some(20)), "one is due");
        assert_eq!(planned(catch_up, 990, 995.0), (0, vec![], None), "the end");
    }
    assert_eq!(planned(Last, 10, 95.0), (7, vec![], Some(90)));
    assert_eq!(planned(Nothing, 10, 95.0), (7, vec![], Some(90)), "the last one is not a minute late");
    assert_eq!(planned(All(3), 10, 95.0), (5, vec![70, 80], Some(90)));
    assert_eq!(planned(All(100), 10, 55.0), (0, vec![20, 30, 40], Some(50)));
    assert_eq!(planned(All(1), 10, 55.0), (3, vec![], Some(50)));
    // At the end of the schedule the last instant is 990.
    assert_eq!(planned(Last, 970, 9_999.0), (1, vec![], Some(990)));
    assert_eq!(planned(Nothing, 970, 9_999.0), (2, vec![], None));
    assert_eq!(planned(All(9), 970, 9_999.0), (0, vec![980], Some(990)));
}

/// The delays, in milliseconds, of schedules with this jitter, of which each fires daily at three, and that are `late`. They
/// are served by one worker, at the same time.
fn delays(schedules: u128, jitter: Duration, late: Duration) -> Vec<u64> {
    let (nominal, worker) = (time("2026-03-04T03:00"), LateFirings::default());
    let changes = RuleChanges {
        cron: Some("0 3 * * *".into()),
        jitter_micros: Some(jitter.as_micros() as u64),
        ..RuleChanges::default()
    };
    let rule = changes.new_rule().unwrap();
    let now = nominal.plus(late);
    let delay = |run| {
        let instants = Instants::new(&rule.timing, time("2026-03-01T00:00")).unwrap();
        let planner = Planner { run: RunId::from_bits(run), rule: &rule, instants, late: &worker };
        let next = planner.plan(time("2026-03-01T03:00"), now).next.unwrap();
        assert_eq!(next.nominal, nominal);
        assert!(next.at >= now && next.is_current(next.at), "{next:?} at {now:?}");
        next.at.since(now).as_millis() as u64
    };
    (1..=schedules).map(delay).collect()
}

#[test]
fn late_firings_are_spread_by_jitter() {
    let mut delays = delays(100, Duration::from_secs(60), Duration::from_secs(3_600));
    delays.sort_unstable();
    assert!(delays[99] < 60_000 && delays[99] > 50_000, "{delays:?}");
    for (part, quarter) in delays.chunks(25).enumerate() {
        let middle = quarter[12];
        let expected = (part as u64 * 15_000)..(part as u64 + 1) * 15_000;
        assert!(expected.contains(&middle), "quarter {part} has its middle at {middle} ms");
    }
}

#[test]
fn late_firings_without_jitter_have_a_rate() {
    let hour = Duration::from_secs(3_600);
    let expected: Vec<u64> = (0..350_u64).map(|number| (number * 10).saturating_sub(1_000)).collect();
    assert_eq!(delays(350, Duration::ZERO, hour), expected, "100 at once, and then 100 in each second");
    assert_eq!(delays(350, Duration::ZERO, Duration::from_secs(60)), [0; 350], "they are not late");
}

#[test]
fn a_late_firing_is_not_delayed_until_the_next_instant() {
    let (now, worker) = (time("2026-03-04T03:00"), LateFirings::default());
    let next = now.plus(Duration::from_secs(4));
    let times: Vec<_> = (0..1_000).map(|_| worker.next(now, Some(next))).collect();
    assert!(times.is_sorted() && times[0] == now);
    assert_eq!(times[999], now.plus(Duration::from_secs(2)), "half of the time is left");
    // The clock was set back by a day.
    let yesterday = now.minus(Duration::from_secs(86_400));
    let at = worker.next(yesterday, None);
    assert_eq!(at, yesterday.plus(LATE_FIRING_DELAY_MAX - Duration::from_secs(1)));
}
