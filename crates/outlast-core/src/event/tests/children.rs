//! Events of children: examples.

use super::*;

pub(super) fn child_examples() -> Vec<Event> {
    let op = OpNumber(5);
    let child = ChildStarted {
        op,
        run: RunId::from_bits(9),
        workflow: "ship".into(),
        version: 1,
        key: None,
        input: Payload::null(),
        timeout_at: None,
        queue: default_queue(),
        priority: 0,
        on_parent_end: ParentEnd::Cancel,
        is_detached: false,
    };
    vec![
        Event::ChildStarted(Box::new(child.clone())),
        Event::ChildStarted(Box::new(ChildStarted {
            version: 3,
            queue: "parcels".into(),
            priority: 9,
            key: Some("parcel-\"7\"".into()),
            input: plain(json!({"order": 42})),
            timeout_at: Some(moment()),
            on_parent_end: ParentEnd::Wait,
            ..child.clone()
        })),
        Event::ChildStarted(Box::new(ChildStarted {
            input: Payload::coded("aes-1", vec![7]),
            on_parent_end: ParentEnd::Abandon,
            is_detached: true,
            ..child
        })),
        Event::ChildDetached { op, run: RunId::from_bits(9) },
        Event::ChildCompleted { op, output: plain(json!("shipped")) },
        Event::ChildCompleted { op, output: Payload::coded("aes-1", vec![1, 2]) },
        Event::ChildFailed { op, failure: full_failure() },
        Event::ChildFailed { op, failure: Failure::new(FailureKind::Conflict, "the key is taken") },
        Event::ChildCancelled { op, failure: Failure::new(FailureKind::Cancelled, "cancelled: no") },
        Event::ChildDropped { op },
        Event::TagsSet { op, tags: [("tier".into(), "gold".into())].into() },
    ]
}
