//! The axis of a timeline: maps times to positions, and compresses long idle times.
//!
//! Time in which an attempt is in progress, and short pauses, are drawn to scale. A longer time without any attempt is
//! a gap: it has a fixed width, however long it lasts. A gap ends where an operation begins or ends, so two sleeps in
//! a row are two gaps.

use std::time::Duration;

use outlast_core::Timestamp;

/// Shorter idle times are drawn to scale.
const GAP_LEAST: Duration = Duration::from_secs(2);

/// The width of a gap in percent: about 48 pixels of a timeline of usual width.
const GAP_WIDTH: f64 = 8.0;

/// All gaps together have at most this width in percent.
const GAPS_WIDTH_MAX: f64 = 55.0;

/// The free space at the end, for the last marks.
const END_SPACE: f64 = 2.0;

/// Ticks have at least this distance in percent.
const TICK_DISTANCE: f64 = 13.0;

/// The shape of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Long idle times are compressed.
    Compressed,
    /// Everything is drawn to scale.
    Linear,
}

/// Maps times to positions in percent.
#[derive(Debug)]
pub(crate) struct Axis {
    segments: Vec<Segment>,
    /// Percent for each microsecond outside gaps.
    scale: f64,
}

/// A part of the axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    from: i64,
    to: i64,
    pub(crate) x: f64,
    pub(crate) width: f64,
    pub(crate) is_gap: bool,
}

impl Segment {
    /// The time that it covers.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.to - self.from).unwrap_or(0))
    }
}

/// A mark of the axis.
#[derive(Debug)]
pub(crate) struct Tick {
    pub(crate) x: f64,
    /// The time since the beginning of the axis, or since the gap before it.
    pub(crate) time: Duration,
    pub(crate) is_after_gap: bool,
}

impl Axis {
    /// An axis from `begin` to `end`. Attempts were in progress during `busy`; `bounds` are times at which operations
    /// begin and end. Only the `range` is shown, if there is one.
    pub(crate) fn new(
        begin: Timestamp,
        end: Timestamp,
        busy: &[(Timestamp, Timestamp)],
        bounds: &[Timestamp],
        scale: Scale,
        range: Option<(Timestamp, Timestamp)>,
    ) -> Self {
        let (begin, end) = (begin.as_micros(), end.as_micros().max(begin.as_micros() + 1));
        let busy = merge(busy, begin, end);
        let active: i64 = busy.iter().map(|(from, to)| to - from).sum();
        let least = (GAP_LEAST.as_micros() as i64).max(active / 20);
        let mut pieces = Vec::new();
        let mut at = begin;
        for (from, to) in busy.into_iter().chain([(end, end)]) {
            idle_pieces(at, from, bounds, least, scale, &mut pieces);
            push(&mut pieces, from, to, false);
            at = to.max(at);
        }
        if let Some((from, to)) = range {
            pieces = clipped(&pieces, from.as_micros(), to.as_micros());
        }
        Self::of_pieces(&pieces)
    }

    fn of_pieces(pieces: &[(i64, i64, bool)]) -> Self {
        let gaps = pieces.iter().filter(|(_, _, is_gap)| *is_gap).count();
        let shown: i64 = pieces.iter().filter(|(_, _, is_gap)| !is_gap).map(|(from, to, _)| to - from).sum();
        let whole = 100.0 - END_SPACE;
        let gap_width = match (gaps, shown) {
            (0, _) => 0.0,
            (_, 0) => whole / gaps as f64,
            _ => GAP_WIDTH.min(GAPS_WIDTH_MAX / gaps as f64),
        };
        let scale = if shown == 0 { 0.0 } else { (whole - gap_width * gaps as f64) / shown as f64 };
        let mut x = 0.0;
        let segments = pieces.iter().map(|&(from, to, is_gap)| {
            let width = if is_gap { gap_width } else { (to - from) as f64 * scale };
            let segment = Segment { from, to, x, width, is_gap };
            x += width;
            segment
        });
        Self { segments: segments.collect(), scale }
    }

    /// The position of a time in percent.
    pub(crate) fn x(&self, time: Timestamp) -> f64 {
        let time = time.as_micros();
        let segment = self.segments.iter().find(|segment| time <= segment.to).or(self.segments.last());
        let Some(segment) = segment else { return 0.0 };
        let part = (time - segment.from) as f64 / (segment.to - segment.from).max(1) as f64;
        segment.x + segment.width * part.clamp(0.0, 1.0)
    }

    /// Whether a part of the time between these two is shown.
    pub(crate) fn shows(&self, from: Timestamp, to: Timestamp) -> bool {
        let (Some(first), Some(last)) = (self.segments.first(), self.segments.last()) else { return false };
        to.as_micros() >= first.from && from.as_micros() <= last.to
    }

    /// The first and the last time that is shown.
    pub(crate) fn bounds(&self) -> (Timestamp, Timestamp) {
        let time = |micros: Option<i64>| Timestamp::from_micros(micros.unwrap_or_default());
        (time(self.segments.first().map(|first| first.from)), time(self.segments.last().map(|last| last.to)))
    }

    /// The parts as text for scripts: the times of each since `origin`, and whether it is a gap.
    pub(crate) fn text(&self, origin: Timestamp) -> String {
        let part = |segment: &Segment| {
            let (from, to) = (segment.from - origin.as_micros(), segment.to - origin.as_micros());
            format!("{from} {to} {}", u8::from(segment.is_gap))
        };
        self.segments.iter().map(part).collect::<Vec<_>>().join(",")
    }

    /// The compressed idle times.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.is_gap)
    }

    /// The marks, in steps of 1, 2 or 5. They count again after each gap.
    pub(crate) fn ticks(&self) -> Vec<Tick> {
        let mut ticks = Vec::new();
        if self.scale <= 0.0 {
            return ticks;
        }
        let step = nice((TICK_DISTANCE / self.scale).ceil() as i64);
        let (mut origin, mut is_after_gap, mut last_x) = (None, false, f64::MIN);
        for segment in &self.segments {
            if segment.is_gap {
                (origin, is_after_gap, last_x) = (None, true, segment.x + segment.width);
                continue;
            }
            let from = *origin.get_or_insert(segment.from);
            let first = (segment.from - from + step - 1) / step;
            for number in first.. {
                let time = number * step;
                if from + time > segment.to {
                    break;
                }
                let x = segment.x + (from + time - segment.from) as f64 * self.scale;
                // Behind a gap the label of the gap comes first, and before the end there is room for half a label.
                if x - last_x >= TICK_DISTANCE * 0.75 && (x < 1.0 || segment.x + segment.width - x > 6.0) {
                    let time = Duration::from_micros(u64::try_from(time).unwrap_or(0));
                    ticks.push(Tick { x, time, is_after_gap });
                    last_x = x;
                }
            }
        }
        ticks
    }
}

/// The parts of the pieces between two times.
fn clipped(pieces: &[(i64, i64, bool)], begin: i64, end: i64) -> Vec<(i64, i64, bool)> {
    let clip = |&(from, to, is_gap): &(i64, i64, bool)| (from.max(begin), to.min(end), is_gap);
    let shown: Vec<_> = pieces.iter().map(clip).filter(|(from, to, _)| from < to).collect();
    if shown.is_empty() { pieces.to_vec() } else { shown }
}

/// The times of attempts, clipped, in order and without overlaps.
fn merge(busy: &[(Timestamp, Timestamp)], begin: i64, end: i64) -> Vec<(i64, i64)> {
    let clip = |time: Timestamp| time.as_micros().clamp(begin, end);
    let mut all: Vec<_> = busy.iter().map(|(from, to)| (clip(*from), clip(*to))).collect();
    all.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::new();
    for (from, to) in all.into_iter().filter(|(from, to)| from < to) {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// Splits an idle time at the bounds of operations; long parts are gaps.
fn idle_pieces(
    from: i64,
    to: i64,
    bounds: &[Timestamp],
    least: i64,
    scale: Scale,
    pieces: &mut Vec<(i64, i64, bool)>,
) {
    let mut cuts: Vec<i64> = bounds.iter().map(|time| time.as_micros()).collect();
    cuts.retain(|cut| *cut > from && *cut < to);
    cuts.sort_unstable();
    let mut at = from;
    for cut in cuts.into_iter().chain([to]) {
        push(pieces, at, cut, scale == Scale::Compressed && cut - at > least);
        at = cut.max(at);
    }
}

/// Adds a piece, or extends the last one if both are drawn to scale.
fn push(pieces: &mut Vec<(i64, i64, bool)>, from: i64, to: i64, is_gap: bool) {
    match pieces.last_mut() {
        _ if from >= to => {}
        Some(last) if !last.2 && !is_gap && last.1 == from => last.1 = to,
        _ => pieces.push((from, to, is_gap)),
    }
}

/// The smallest of 1, 2, 5, 10, … milliseconds, or of usual parts of minutes, hours and days, that is not less.
fn nice(least: i64) -> i64 {
    const SECOND: i64 = 1_000_000;
    const LARGE: [i64; 14] = [
        15 * SECOND,
        30 * SECOND,
        60 * SECOND,
        120 * SECOND,
        300 * SECOND,
        600 * SECOND,
        1_800 * SECOND,
        3_600 * SECOND,
        7_200 * SECOND,
        21_600 * SECOND,
        43_200 * SECOND,
        86_400 * SECOND,
        172_800 * SECOND,
        604_800 * SECOND,
    ];
    let mut power = 1_000;
    while power <= SECOND {
        for factor in [1, 2, 5] {
            if power * factor >= least {
                return power * factor;
            }
        }
        power *= 10;
    }
    if least <= 10 * SECOND {
        return 10 * SECOND;
    }
    LARGE
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or_else(|| least.div_euclid(604_800 * SECOND) * 604_800 * SECOND + 604_800 * SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000_000;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn axis(end: i64, busy: &[(i64, i64)], bounds: &[i64], scale: Scale) -> Axis {
        let busy: Vec<_> = busy.iter().map(|(from, to)| (at(*from), at(*to))).collect();
        let bounds: Vec<_> = bounds.iter().map(|time| at(*time)).collect();
        Axis::new(at(0), at(end), &busy, &bounds, scale, None)
    }

    #[test]
    fn a_sleep_of_three_days_between_two_steps_is_compressed() {
        let end = 3 * DAY + 2_000_000;
        let busy = [(0, 1_000_000), (3 * DAY + 1_000_000, end)];
        let axis = axis(end, &busy, &[1_000_000, 3 * DAY + 1_000_000], Scale::Compressed);
        let gaps: Vec<_> = axis.gaps().collect();
        assert_eq!(gaps.len(), 1);
        assert_eq!(gaps[0].time(), Duration::from_micros(3 * DAY as u64));
        assert!((gaps[0].width - GAP_WIDTH).abs() < 1e-9);
        assert!((axis.x(at(1_000_000)) - 45.0).abs() < 0.1, "{}", axis.x(at(1_000_000)));
        assert!((axis.x(at(end)) - 98.0).abs() < 0.1);
    }

    #[test]
    fn the_linear_scale_has_no_gaps() {
        let axis = axis(3 * DAY, &[(0, 1_000_000)], &[], Scale::Linear);
        assert_eq!(axis.gaps().count(), 0);
        assert!(axis.x(at(DAY)) > 32.0 && axis.x(at(DAY)) < 33.0);
    }

    #[test]
    fn two_sleeps_in_a_row_are_two_gaps() {
        let axis = axis(2 * DAY, &[], &[DAY], Scale::Compressed);
        assert_eq!(axis.gaps().count(), 2);
    }

    #[test]
    fn short_pauses_are_drawn_to_scale() {
        let axis = axis(3_000_000, &[(0, 1_000_000), (2_000_000, 3_000_000)], &[], Scale::Compressed);
        assert_eq!(axis.gaps().count(), 0);
    }

    #[test]
    fn a_range_is_drawn_over_the_whole_width() {
        let range = Some((at(1_000_000), at(2_000_000)));
        let axis = Axis::new(at(0), at(4_000_000), &[(at(0), at(4_000_000))], &[], Scale::Compressed, range);
        assert!((axis.x(at(1_500_000)) - 49.0).abs() < 0.1, "{}", axis.x(at(1_500_000)));
        assert!(axis.shows(at(1_900_000), at(3_000_000)) && !axis.shows(at(2_100_000), at(3_000_000)));
        assert_eq!(axis.text(at(1_000_000)), "0 1000000 0");
    }

    #[test]
    fn positions_never_decrease_and_stay_inside() {
        let axis = axis(DAY, &[(5, 7), (6, 900_000), (DAY / 2, DAY / 2 + 5)], &[42], Scale::Compressed);
        let mut last = 0.0;
        for step in 0..1_000 {
            let x = axis.x(at(DAY / 1_000 * step));
            assert!((last..=100.0).contains(&x), "{last} {x}");
            last = x;
        }
    }

    #[test]
    fn ticks_keep_their_distance() {
        for end in [3, 900, 40_000, 7_777_777, DAY] {
            let axis = axis(end, &[(0, end)], &[], Scale::Compressed);
            let ticks = axis.ticks();
            assert!(ticks.len() <= 11, "{end}: {}", ticks.len());
            assert!(ticks.windows(2).all(|pair| pair[1].x - pair[0].x > 5.0), "{end}");
        }
    }
}
