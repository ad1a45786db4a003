//! Ids: 128 bits, time-ordered, written as a prefix and 26 characters.
//!
//! The text form is that of a ULID (Crockford's base 32): ids sort by the time at which they were created, fit into a
//! URL, and have a prefix for what they identify.

use std::fmt;
use std::str::FromStr;

use crate::time::Timestamp;

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const DIGITS: usize = 26;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// The prefix of every id of this kind.
            pub const PREFIX: &'static str = $prefix;

            /// The id with these bits.
            pub const fn from_bits(bits: u128) -> Self {
                Self(bits)
            }

            /// The bits of the id.
            pub const fn bits(self) -> u128 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                let digits = encode(self.0);
                f.write_str(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.strip_prefix($prefix)
                    .and_then(decode)
                    .map(Self)
                    .ok_or_else(|| InvalidId { text: text.into(), prefix: $prefix, suffix: "" })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

ids! {
    /// Identifies a run.
    RunId = "run_";
    /// Identifies a turn. Created before the first commit, so that a repeated commit is recognised.
    TurnId = "turn_";
    /// Identifies a message to a run. Created before the first send, so that a repeated send is recognised.
    MessageId = "msg_";
    /// Identifies the session of a worker.
    SessionId = "wkr_";
}

/// Identifies one attempt at a step: the session of the worker that began it, and the number of attempts that the
/// session began before.
///
/// Ids increase within a session, even if the *number* of an attempt does not: a crash is not a failure, so the
/// attempt after it has the same number but another id. The text is `att_`, the digits of the session, a dot and the
/// count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    session: SessionId,
    count: u64,
}

impl AttemptId {
    /// The prefix of every attempt id.
    pub const PREFIX: &'static str = "att_";

    /// The id of the attempt that a session begins after `count` others.
    pub const fn new(session: SessionId, count: u64) -> Self {
        Self { session, count }
    }

    /// The session of the worker that began the attempt.
    pub const fn session(self) -> SessionId {
        self.session
    }

    /// The number of attempts that the session began before.
    pub const fn count(self) -> u64 {
        self.count
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = encode(self.session.0);
        let digits = std::str::from_utf8(&digits).map_err(|_| fmt::Error)?;
        write!(f, "{}{digits}.{}", Self::PREFIX, self.count)
    }
}

impl fmt::Debug for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for AttemptId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let parts = text.strip_prefix(Self::PREFIX).and_then(|rest| rest.split_once('.'));
        // Accept only the canonical form, so that every id has exactly one text.
        let count = |digits: &str| digits.parse().ok().filter(|count: &u64| count.to_string() == digits);
        parts
            .and_then(|(session, digits)| Some(Self::new(SessionId(decode(session)?), count(digits)?)))
            .ok_or_else(|| InvalidId {
                text: text.into(),
                prefix: Self::PREFIX,
                suffix: ", a dot and a number",
            })
    }
}

impl serde::Serialize for AttemptId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for AttemptId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl RunId {
    /// The id of a child. It depends only on parent, operation, time and rules, so that a repeated turn starts the
    /// same run.
    ///
    /// From rules 2 on, the children of one turn are in the order of their operations. Their rows are then adjacent in
    /// every index, which makes a large fan-out considerably cheaper.
    pub fn of_child(parent: Self, op: u64, at: Timestamp, rules: u32) -> Self {
        let millis = (at.as_micros().max(0) / 1_000) as u128;
        // Mix the parent before adding the operation: ids of one millisecond differ only in their last bits, and so do
        // operations, so that the plain sum would be the same for many pairs.
        let family = mix(mix((parent.0 >> 64) as u64) ^ parent.0 as u64);
        let entropy = if rules < 2 { spread(family, op) } else { in_order(family, op) };
        Self((millis << 80) | entropy)
    }
}

/// The last 80 bits of a child's id under rules 1.
fn spread(family: u64, op: u64) -> u128 {
    let high = mix(family ^ op);
    let low = mix(high ^ family.rotate_left(32));
    ((u128::from(high) << 64) | u128::from(low)) >> 48
}

/// The last 80 bits of a child's id under rules 2: 60 bits for its parent, then the operation.
fn in_order(family: u64, op: u64) -> u128 {
    const OP_BITS: u32 = 20;
    let group = mix(family ^ (op >> OP_BITS));
    let position = op & ((1 << OP_BITS) - 1);
    (u128::from(group >> 4) << OP_BITS) | u128::from(position)
}

impl TurnId {
    /// The highest bit. An id begins with its time, and no time before the year 6429 has it.
    const CONTINUES: u128 = 1 << 127;

    /// The id of a turn that is a part of a larger one, and not its last part: the requests at its end are incomplete,
    /// and a replay does not treat the missing ones as a divergence.
    #[must_use]
    pub const fn continued(self) -> Self {
        Self(self.0 | Self::CONTINUES)
    }

    /// Whether the turn is a part of a larger one, and not its last part.
    pub const fn is_continued(self) -> bool {
        self.0 & Self::CONTINUES != 0
    }
}

impl MessageId {
    /// The id of the message with which a transactional step records the outcome of an attempt. An attempt that is
    /// repeated after a crash has the same number, and therefore the same id: a run accepts its outcome once. The
    /// attempts of a step that a retry of its run has opened again begin at 1; `reopened_by` is the message of that
    /// retry.
    pub fn of_outcome(run: RunId, op: u64, attempt: u32, reopened_by: Option<Self>) -> Self {
        let reopened = reopened_by.map_or(0, |message| mix((message.0 >> 64) as u64 ^ mix(message.0 as u64)));
        let (high, low) = ((run.0 >> 64) as u64, run.0 as u64 ^ reopened);
        let first = mix(high ^ mix(low ^ mix(op.wrapping_add(0x6f75_7463_6f6d_6573))));
        let second = mix(first ^ mix(low.rotate_left(32) ^ mix(op ^ (u64::from(attempt) << 40))));
        // Without the time of other ids, so that it never equals one of them in practice.
        Self((u128::from(first) << 64) | u128::from(second))
    }

    /// The id of the message about a turn's child. It is the same whenever the turn is committed again.
    pub fn of_answer(turn: TurnId, index: usize) -> Self {
        // Mix all bits: ids close to the turn's own may belong to other messages.
        let spread = (index as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        Self(turn.0 ^ (spread >> 48))
    }
}

/// The finalizer of SplitMix64: every bit of the input changes half of the output's.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A text that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not an id; expected `{prefix}` and 26 characters of 0-9 and A-Z without I, L, O and U{suffix}"
)]
pub struct InvalidId {
    text: String,
    prefix: &'static str,
    suffix: &'static str,
}

/// Generates bits for new ids: ordered by time, and strictly increasing within one source.
#[derive(Debug, Default)]
pub struct IdSource {
    last: u128,
}

impl IdSource {
    /// A source that has not generated an id yet.
    pub const fn new() -> Self {
        Self { last: 0 }
    }

    /// The bits of the next id, generated at `now` from `entropy`.
    pub fn next(&mut self, now: Timestamp, entropy: u128) -> u128 {
        let millis = (now.as_micros().max(0) / 1_000) as u128;
        let fresh = (millis << 80) | (entropy >> 48);
        // In the same millisecond, or if the clock went back, increment the last id.
        self.last = if fresh > self.last { fresh } else { self.last + 1 };
        self.last
    }
}

fn encode(mut bits: u128) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[(bits & 31) as usize];
        bits >>= 5;
    }
    digits
}

fn decode(text: &str) -> Option<u128> {
    if text.len() != DIGITS || text.as_bytes()[0] > b'7' {
        return None;
    }
    text.bytes().try_fold(0_u128, |bits, byte| {
        let digit = ALPHABET.iter().position(|&letter| letter == byte)?;
        Some((bits << 5) | digit as u128)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text() {
        for bits in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let id = RunId::from_bits(bits);
            assert_eq!(id.to_string().parse::<RunId>(), Ok(id));
        }
    }

    #[test]
    fn only_the_id_of_a_turn_that_is_continued_says_so() {
        let mut source = IdSource::new();
        let id = TurnId::from_bits(source.next(Timestamp::from_micros(64_000_000_000_000_000), u128::MAX));
        assert!(!id.is_continued() && id.continued().is_continued());
        assert_eq!(id.continued().to_string().parse::<TurnId>(), Ok(id.continued()));
    }

    #[test]
    fn an_id_of_another_kind_is_refused_with_the_remedy() {
        let error = "msg_00000000000000000000000001".parse::<RunId>().unwrap_err();
        assert!(error.to_string().contains("expected `run_`"), "{error}");
        assert!("run_8ZZZZZZZZZZZZZZZZZZZZZZZZZ".parse::<RunId>().is_err(), "more than 128 bits");
    }

    #[test]
    fn the_id_of_an_attempt_survives_its_text() {
        for (session, count) in [(0, 0), (1, 10), (u128::MAX, u64::MAX)] {
            let id = AttemptId::new(SessionId::from_bits(session), count);
            assert_eq!(id.to_string().parse::<AttemptId>(), Ok(id));
            assert_eq!(serde_json::from_value::<AttemptId>(serde_json::json!(id)).unwrap(), id);
        }
        let zeros = "0".repeat(DIGITS);
        for text in ["", "att_", ".1", ".", ".01", ".+1", ".18446744073709551616"] {
            assert!(format!("att_{zeros}{text}").parse::<AttemptId>().is_err() || text == ".1", "{text}");
        }
        let error = format!("wkr_{zeros}").parse::<AttemptId>().unwrap_err();
        assert!(error.to_string().contains("expected `att_`"), "{error}");
    }

    #[test]
    fn ids_of_attempts_increase_within_a_session_and_from_one_to_the_next() {
        let id = |session, count| AttemptId::new(SessionId::from_bits(session), count);
        assert!(id(1, 9) < id(1, 10) && id(1, 10) < id(2, 0));
    }

    #[test]
    fn outcomes_of_attempts_have_ids_of_their_own_and_keep_them() {
        let ids = (0..100_u128).flat_map(|run| {
            let run = RunId::from_bits(run << 70 | run);
            (0..100).flat_map(move |op| {
                (1..=10).map(move |attempt| MessageId::of_outcome(run, op, attempt, None))
            })
        });
        let ids: std::collections::BTreeSet<_> = ids.collect();
        assert_eq!(ids.len(), 100_000);
        // Frozen: a process of another build looks for the same id.
        let id = MessageId::of_outcome(RunId::from_bits(7), 3, 1, None);
        assert_eq!(id.bits(), 0xca9e_893d_3a49_064b_18eb_6ec4_171b_9ebe);
        assert_ne!(id, MessageId::of_outcome(RunId::from_bits(7), 3, 1, Some(id)), "the step was reopened");
    }

    #[test]
    fn children_have_ids_of_their_own() {
        let noon = Timestamp::from_micros(1_000_000_000);
        for rules in [1, 2] {
            let ids = (0..100_u128).flat_map(|parent| {
                let parent = RunId::from_bits(parent << 70 | parent);
                (0..1_000).map(move |op| RunId::of_child(parent, op, noon, rules))
            });
            let ids: std::collections::BTreeSet<_> = ids.collect();
            assert_eq!(ids.len(), 100_000, "rules {rules}");
            assert!(
                ids.iter().all(|id| id.bits() >> 80 == 1_000_000),
                "they sort by the time they were made"
            );
        }
    }

    #[test]
    fn children_of_one_turn_are_in_the_order_of_their_operations() {
        let (noon, parent) = (Timestamp::from_micros(1_000_000_000), RunId::from_bits(7));
        let ids: Vec<_> = (1..20_000).map(|op| RunId::of_child(parent, op, noon, 2)).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn children_of_parents_whose_ids_follow_each_other_have_ids_of_their_own() {
        let noon = Timestamp::from_micros(1_000_000_000);
        for family in 0..20_000_u128 {
            let first = family.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834);
            for rules in [1, 2] {
                let parents = (0..4).map(|next| RunId::from_bits(first + next));
                let children =
                    parents.flat_map(|parent| (0..8).map(move |op| RunId::of_child(parent, op, noon, rules)));
                let children: std::collections::BTreeSet<_> = children.collect();
                assert_eq!(children.len(), 32, "family {family}, rules {rules}");
            }
        }
    }

    #[test]
    fn ids_of_one_source_rise_even_when_the_clock_does_not() {
        let mut source = IdSource::new();
        let noon = Timestamp::from_micros(1_000_000_000);
        let first = source.next(noon, u128::MAX);
        let second = source.next(noon, 0);
        let third = source.next(Timestamp::from_micros(0), 0);
        assert!(first < second && second < third);
    }
}
