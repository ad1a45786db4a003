//! Values that a workflow computes once, for all replays.

use outlast_core::{Event, Failure, FailureKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::names::name_problem;
use super::operation_table::Recording;
use super::state::{OUTSIDE_TURN_PANIC, RunState};
use crate::error::{Error, stuck_on_unreadable};

impl RunState {
    /// The recorded value. In a live run it is computed and recorded first, and then decoded as a replay will decode
    /// it.
    #[track_caller]
    pub(crate) fn record<T, F>(&self, name: &str, compute: F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> T,
    {
        self.record_unless(name_problem("value", name), name, compute)
    }

    /// As [`record`](Self::record), for a value of the engine, whose name is reserved.
    #[track_caller]
    pub(super) fn record_built_in<T, F>(&self, name: &str, compute: F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> T,
    {
        self.record_unless(None, name, compute)
    }

    #[track_caller]
    fn record_unless<T, F>(&self, problem: Option<Failure>, name: &str, compute: F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> T,
    {
        if self.is_outside_turn(|| format!("it recorded value `{name}`")) {
            return Err(Error::invalid(OUTSIDE_TURN_PANIC));
        }
        let recording = self.table.lock().record(name, problem);
        let (op, value) = match recording {
            Recording::Never(failure) => return Err(Error::of_failure(failure)),
            Recording::Recorded(op, value) => (op, value),
            Recording::New(op) => {
                let before = self.table.lock().side_effect_counters();
                let value = compute();
                assert!(
                    self.table.lock().side_effect_counters() == before,
                    "the closure of value `{name}` uses the context, but a replay does not call the closure; \
                     call the context before `ctx.record`"
                );
                let value = self.encode(&value);
                let event = Event::ValueRecorded { op, name: name.into(), value: value.clone() };
                self.table.lock().recorded(event);
                (op, value)
            }
        };
        let decoded = self.codec().decode(value.map_err(Error::of_failure)?).and_then(|plain| plain.decode());
        decoded.map_err(|error| {
            if self.rules() >= 2 {
                let problem = error.cannot_be_read();
                let message = format!("the recorded value `{name}` (operation {op}) {problem}");
                self.set_unreadable(stuck_on_unreadable(error.is_coded(), message));
                if cfg!(panic = "unwind") {
                    // The code after this call must not run, and the call cannot return `Pending`. The turn is
                    // discarded, so this panic is not reported, and `resume_unwind` calls no panic hook.
                    std::panic::resume_unwind(Box::new("a recorded value cannot be read"));
                }
            }
            let message = format!("value `{name}`, operation {op} of {}: {error}", self.run());
            Error::of_failure(Failure::new(FailureKind::Invalid, message))
        })
    }
}
