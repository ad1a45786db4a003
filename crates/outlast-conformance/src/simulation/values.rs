//! Values of the simulated programs: what hooks wait for, what they are sent, and which builds can read what.
//!
//! The older of two builds does not know some values that the newer one writes. A run with such a value is stuck
//! for the older build and continues with the newer one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use outlast_core::{OpNumber, Payload, RunId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

/// Whether the older build does not know a number, or a text of this length.
fn is_unknown_to_older(number: u64) -> bool {
    number % 2 == 1
}

/// A number. The older build does not know all of them.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Number<const OLDER: bool>(pub(super) u64);

impl<'de, const OLDER: bool> Deserialize<'de> for Number<OLDER> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        if OLDER && is_unknown_to_older(number) {
            return Err(D::Error::custom(format_args!("this build does not know the number {number}")));
        }
        Ok(Self(number))
    }
}

/// A text. The older build does not know all of them.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Text<const OLDER: bool>(pub(super) String);

impl<'de, const OLDER: bool> Deserialize<'de> for Text<OLDER> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if OLDER && is_unknown_to_older(text.len() as u64) {
            return Err(D::Error::custom("this build does not know such a text"));
        }
        Ok(Self(text))
    }
}

/// What a hook waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Wanted {
    Number,
    Text,
    Pair,
}

impl Wanted {
    pub(super) const ALL: [Self; 3] = [Self::Number, Self::Text, Self::Pair];

    /// Whether a hook of a build can read a payload as what it waits for.
    pub(super) fn can_read(self, payload: &Payload, is_older: bool) -> bool {
        match self {
            Self::Number if is_older => payload.decode::<Number<true>>().is_ok(),
            Self::Number => payload.decode::<u64>().is_ok(),
            Self::Text => payload.decode::<String>().is_ok(),
            Self::Pair => payload.decode::<(u64, bool)>().is_ok(),
        }
    }

    /// A payload that can be read as this, unlike any other.
    pub(super) fn payload(self, token: u64) -> Value {
        match self {
            Self::Number => json!(token),
            Self::Text => json!(token.to_string()),
            Self::Pair => json!([token, true]),
        }
    }
}

/// A payload that no hook can read.
pub(super) fn unreadable_payload(token: u64) -> Value {
    json!({ "token": token })
}

/// The number that makes a payload unlike any other.
pub(super) fn token_of(payload: &Payload) -> Option<u64> {
    match payload.decode::<Value>().ok()? {
        Value::Number(token) => token.as_u64(),
        Value::String(token) => token.parse().ok(),
        Value::Array(pair) => pair.first()?.as_u64(),
        Value::Object(fields) => fields.get("token")?.as_u64(),
        _ => None,
    }
}

thread_local! {
    /// What the hooks of the simulation on this thread wait for. Histories do not record types.
    static WANTED: RefCell<BTreeMap<(RunId, OpNumber), Wanted>> = const { RefCell::new(BTreeMap::new()) };
}

/// Forgets the hooks of the simulation before.
pub(super) fn forget_hooks() {
    WANTED.with_borrow_mut(BTreeMap::clear);
}

/// Remembers what a hook waits for.
pub(super) fn note_hook(run: RunId, hook: &impl fmt::Debug, wanted: Wanted) {
    // The number of an operation is shown, and is no part of its interface.
    let shown = format!("{hook:?}");
    let op = shown.split_once("operation ").and_then(|(_, rest)| rest.split_once(" of "));
    if let Some(op) = op.and_then(|(op, _)| op.parse().ok()) {
        WANTED.with_borrow_mut(|hooks| hooks.insert((run, OpNumber(op)), wanted));
    }
}

/// What a hook waits for; `None` when no workflow asked for it.
pub(super) fn wanted_by(run: RunId, op: OpNumber) -> Option<Wanted> {
    WANTED.with_borrow(|hooks| hooks.get(&(run, op)).copied())
}
