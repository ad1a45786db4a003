//! Events that record who asked for them.

use super::*;

/// Those that runs with any rules have. They need no later format than events without the field, which older builds ignore.
pub(super) fn control_examples() -> Vec<Event> {
    let message = MessageId::from_bits(0x2a);
    vec![
        Event::TimerWoken { message, ops: vec![OpNumber(4)], actor: ada() },
        Event::CancelRequested {
            message: Some(message),
            reason: "enough".into(),
            actor: ada(),
            pauses: Vec::new(),
            ends: Vec::new(),
            maybe_attempted: Vec::new(),
        },
        Event::RunTerminated { failure: Failure::terminated("no \"code\""), actor: ada() },
    ]
}

pub(super) fn ada() -> Option<Arc<str>> {
    Some("ada@example.com \"a\"".into())
}

pub(super) fn any_actor() -> impl Strategy<Value = Option<Arc<str>>> {
    prop::option::of(any_text().prop_map(Arc::from))
}
