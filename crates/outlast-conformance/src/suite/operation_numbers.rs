//! Numbers of operations: a run never uses one twice, so they have 64 bits everywhere.

use outlast_core::{
    AttemptId, ChunkContent, ChunkOrigin, Event, HeartbeatDetails, MessageBody, NewToken, OpNumber, Outcome,
    Parent, Report, StreamWrite, Then, TokenHash, Wait,
};

use super::Case;
use super::case::{one, text};
use super::turn_ext::TurnExt;

/// A number that neither 32 bits nor a floating-point number can represent.
const FIRST: u64 = (1 << 62) + 7;

const TIMER: OpNumber = OpNumber(FIRST);
const CHILD: OpNumber = OpNumber(FIRST + 1);
const TOKEN: OpNumber = OpNumber(FIRST + 2);

/// Events, waits, children, their messages and tokens keep a large number.
pub async fn large_operation_numbers_are_read_as_they_were_written(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let (run, until) = (parent.run, case.later(3_600));
    let mut child = case.new_child(run, CHILD.0, "child");
    child.notify_parent = true;
    let token = NewToken {
        hash: TokenHash::of("order-42"),
        op: TOKEN,
        hook: "review".into(),
        metadata: None,
        webhook: None,
        keep_for: None,
        notify: true,
    };
    let waits = vec![Wait::Timer { op: TIMER.0, until }];
    let mut turn = case.turn(&parent).child(child.clone());
    turn.events.push(Event::TimerStarted { op: TIMER, fire_at: until });
    turn.outbox.get_or_insert_default().tokens.taken.push(token);
    worker.commit_done(turn.then(Then::Wait { wake_at: Some(until), waits: waits.clone() })).await;

    let history = case.world.history(run, 0, 10).await.unwrap();
    let last = history.last().and_then(|turn| turn.events.last());
    assert_eq!(last, Some(&Event::TimerStarted { op: TIMER, fire_at: until }));
    assert_eq!(case.view(run).await.waits, waits);
    let expected = Parent { run, op: CHILD, root: run, awaits: true };
    assert_eq!(case.view(child.start.run).await.parent, Some(expected));
    assert_eq!(case.world.token(TokenHash::of("order-42")).await.unwrap().unwrap().op, TOKEN);

    let child = child.start.run;
    let sent = [
        MessageBody::Wake { op: Some(TIMER) },
        MessageBody::ChildEnded { op: CHILD, outcome: Outcome::Completed(text("out")) },
    ];
    for body in &sent {
        case.try_send(case.new_message_of(run, body.clone())).await.unwrap();
    }
    let bodies = case.inbox_bodies(run).await;
    assert_eq!(bodies.len(), 4, "{bodies:?}");
    let answers =
        [MessageBody::ChildStarted { op: CHILD, run: child }, MessageBody::TokenTaken { op: TOKEN }];
    for body in sent.iter().chain(&answers) {
        assert!(bodies.contains(body), "{body:?} is not in {bodies:?}");
    }
}

/// Heartbeat details and chunks of an attempt keep a large number.
pub async fn attempts_of_large_operation_numbers_are_told_apart(case: Case) {
    let worker = case.join("wf").await;
    let run = case.held(&worker).await.run;
    let said = [TIMER, CHILD].map(|op| HeartbeatDetails {
        run,
        op,
        attempt: 1,
        details: Some(text(&op.to_string())),
    });
    worker.world.beat(worker.session, &Report::default(), &said).await.unwrap();
    for op in [TIMER, CHILD] {
        let write = StreamWrite {
            run,
            stream: "s".into(),
            op,
            attempt: AttemptId::new(worker.session, 0),
            first: 0,
            chunks: vec![ChunkContent::of("x").unwrap()],
            keep_last: None,
            closes: false,
        };
        one(worker.world.write_chunks(worker.session, vec![write]).await).unwrap();
    }
    let page = case.world.chunks(run, "s", 0, 10).await.unwrap();
    let writers: Vec<_> = page
        .entries
        .iter()
        .map(|entry| match entry.origin {
            ChunkOrigin::Step { op, .. } => (op, entry.is_superseded),
            other => panic!("{other:?} wrote nothing"),
        })
        .collect();
    assert_eq!(writers, [(TIMER, false), (CHILD, false)]);
    worker.leave().await;
    assert_eq!(case.join("wf").await.claim_one().await.details, said);
}
