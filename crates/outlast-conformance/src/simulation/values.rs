//! Values of the simulated programs: the types of hooks and payloads, and which builds can decode which values.
//!
//! The older of two builds cannot decode some values that the newer one writes. A run with such a value is stuck
//! for the older build and continues with the newer one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use outlast_core::{OpNumber, Payload, RunId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

/// Whether the older build cannot decode this number, or a text of this length.
fn is_unknown_to_older(number: u64) -> bool {
    number % 2 == 1
}

/// A number. The older build cannot decode all of them.
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

/// A text. The older build cannot decode all of them.
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

/// The payload type of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum PayloadType {
    Number,
    Text,
    Pair,
}

impl PayloadType {
    pub(super) const ALL: [Self; 3] = [Self::Number, Self::Text, Self::Pair];

    /// Whether a hook of this type can decode a payload.
    pub(super) fn can_read(self, payload: &Payload, is_older: bool) -> bool {
        match self {
            Self::Number if is_older => payload.decode::<Number<true>>().is_ok(),
            Self::Number => payload.decode::<u64>().is_ok(),
            Self::Text => payload.decode::<String>().is_ok(),
            Self::Pair => payload.decode::<(u64, bool)>().is_ok(),
        }
    }

    /// A unique payload of this type.
    pub(super) fn payload(self, token: u64) -> Value {
        match self {
            Self::Number => json!(token),
            Self::Text => json!(token.to_string()),
            Self::Pair => json!([token, true]),
        }
    }
}

/// A unique payload that no hook can decode.
pub(super) fn unreadable_payload(token: u64) -> Value {
    json!({ "token": token })
}

/// The number that makes a payload unique.
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
/// The types of the hooks of the simulation on this thread. Histories do not record types.
    static HOOK_TYPES: RefCell<BTreeMap<(RunId, OpNumber), PayloadType>> = const { RefCell::new(BTreeMap::new()) };
}

/// Removes the hooks of the previous simulation.
pub(super) fn clear_hooks() {
    HOOK_TYPES.with_borrow_mut(BTreeMap::clear);
}

/// Stores the type of a hook.
pub(super) fn register_hook(run: RunId, hook: &impl fmt::Debug, payload_type: PayloadType) {
    // The operation's number is in its debug text, but not in its interface.
    let shown = format!("{hook:?}");
    let op = shown.split_once("operation ").and_then(|(_, rest)| rest.split_once(" of "));
    if let Some(op) = op.and_then(|(op, _)| op.parse().ok()) {
        HOOK_TYPES.with_borrow_mut(|hooks| hooks.insert((run, OpNumber(op)), payload_type));
    }
}

/// The type of a hook; `None` when no workflow requested it.
pub(super) fn payload_type_of(run: RunId, op: OpNumber) -> Option<PayloadType> {
    HOOK_TYPES.with_borrow(|hooks| hooks.get(&(run, op)).copied())
}
