//! The check of asks: each ends in one way, however often it is repeated, and as the history of its run says.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast::{Client, Error};
use outlast_core::{Event, Judgement, MessageId, Reply, RunId, TurnRecord};
use serde_json::Value;

use super::check::{FinalRun, FinalRuns};
use super::coverage::{Coverage, Situation};
use super::environment::Environment;
use super::forks::given_outcomes;

/// What a client has asked.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) run: RunId,
    /// The key with which it can be repeated.
    pub(super) key: Option<String>,
    /// How it has ended, each time that a client awaited it.
    pub(super) outcomes: Vec<AskOutcome>,
}

/// How an ask has ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AskOutcome {
    Answered(Value),
    Rejected,
    NotAnswered {
        /// Whether the run had ended.
        has_ended: bool,
    },
}

impl AskOutcome {
    /// `None` if it has not ended: its caller waits no longer, or got no answer of the world.
    pub(super) fn of(reply: &Result<Value, Error>) -> Option<Self> {
        match reply {
            Ok(reply) => Some(Self::Answered(reply.clone())),
            Err(error) => match error.code() {
                Some("rejected") => Some(Self::Rejected),
                Some("not_answered") => {
                    Some(Self::NotAnswered { has_ended: error.message().contains("the run has ended") })
                }
                _ => None,
            },
        }
    }
}

/// How the ask with this message ended, according to a history. The first end counts, also one that a retry has made
/// forgotten: its sender knows it.
fn recorded_end(turns: &[TurnRecord], wanted: MessageId) -> Option<AskOutcome> {
    turns.iter().flat_map(|turn| &turn.events).find_map(|event| match event {
        Event::ReplySent { message, payload, .. } if *message == wanted => {
            Some(AskOutcome::Answered(payload.decode().unwrap_or_default()))
        }
        Event::ReplyDropped { message } if *message == wanted => {
            Some(AskOutcome::NotAnswered { has_ended: false })
        }
        Event::HookRejected { message, .. } if *message == wanted => Some(AskOutcome::Rejected),
        Event::HookReceived { message, judgement: Judgement::Rejected(_), .. } if *message == wanted => {
            Some(AskOutcome::Rejected)
        }
        _ => None,
    })
}

/// Whether the outcome that a client got is right, given how the history says that the ask ended.
fn is_right(outcome: &AskOutcome, recorded: Option<&AskOutcome>, is_retried: bool) -> bool {
    match (outcome, recorded) {
        (AskOutcome::NotAnswered { has_ended: true }, Some(AskOutcome::Answered(_))) => is_retried,
        // Payloads that nobody has taken are discarded with their token.
        (AskOutcome::NotAnswered { .. }, None | Some(AskOutcome::NotAnswered { .. })) => true,
        (AskOutcome::NotAnswered { .. }, Some(_)) => is_retried,
        (outcome, recorded) => Some(outcome) == recorded,
    }
}

/// How an ask has ended, according to the world.
async fn stored_end(env: &Environment, final_run: &FinalRun, message: MessageId) -> Option<AskOutcome> {
    let stored = env.inner.reply(final_run.view.id, message).await.ok()?;
    match stored.map(|stored| stored.reply) {
        Some(Reply::Answered(payload)) => Some(AskOutcome::Answered(payload.decode().unwrap_or_default())),
        Some(Reply::Rejected(_)) => Some(AskOutcome::Rejected),
        Some(_) => Some(AskOutcome::NotAnswered { has_ended: false }),
        None if final_run.view.status.is_final() => Some(AskOutcome::NotAnswered { has_ended: true }),
        None => None,
    }
}

/// Repeats every ask with its key, and compares how it ended.
pub(super) async fn check_asks(
    env: &Arc<Environment>,
    final_runs: &FinalRuns,
    violations: &mut Vec<String>,
    coverage: &mut Coverage,
) {
    let asks = env.controlled.lock().asks.clone();
    let client = Client::new(env.inner.clone());
    for (message, ask) in asks {
        let Some(final_run) = final_runs.get(&ask.run) else {
            violations.push(format!("ask {message} went to run {}, which does not exist", ask.run));
            continue;
        };
        let recorded = recorded_end(&final_run.turns, message);
        let last = match &ask.key {
            Some(key) => {
                let repeated = client.ask_as::<Value>(ask.run, "hook-0", &0).key(key).timeout("1s").await;
                AskOutcome::of(&repeated)
            }
            None => stored_end(env, final_run, message).await,
        };
        if last.is_none() && final_run.view.status.is_final() {
            violations.push(format!("ask {message} of run {} has no end", ask.run));
        }
        let is_retried = final_run.is_retried();
        for outcome in ask.outcomes.iter().chain(&last) {
            if !is_right(outcome, recorded.as_ref(), is_retried) {
                violations.push(format!(
                    "ask {message} of run {} ended with {outcome:?}, and the history says {recorded:?}",
                    ask.run
                ));
            }
            coverage.record(match outcome {
                AskOutcome::Answered(_) => Situation::AskAnswered,
                AskOutcome::Rejected => Situation::AskRejected,
                AskOutcome::NotAnswered { .. } => Situation::AskNotAnswered,
            });
        }
    }
}

/// The reply that a run got from another one is the one that it sent.
pub(super) fn check_asks_of_run(
    final_run: &FinalRun,
    final_runs: &FinalRuns,
    violations: &mut Vec<String>,
    coverage: &mut Coverage,
) {
    let run = final_run.view.id;
    let mut asked = BTreeMap::new();
    let given = given_outcomes(final_run, final_runs);
    for counting in final_run.effective() {
        match counting.event {
            Event::StepStarted { op, name, input, .. } if &**name == "outlast:ask" => {
                let input: Value = input.decode().unwrap_or_default();
                let target = input["run"].as_str().and_then(|run| run.parse::<RunId>().ok());
                asked.extend(target.map(|target| (*op, (target, input["payload"].clone()))));
            }
            Event::StepCompleted { op, output } => {
                let Some((target, payload)) = asked.get(op) else { continue };
                if given.contains(op) {
                    continue;
                }
                let sent = final_runs.get(target).map(|target| replies_to(&target.turns, payload));
                let got: Option<Value> = output.decode().ok();
                if !got.as_ref().is_some_and(|got| sent.iter().flatten().any(|sent| sent == got)) {
                    violations
                        .push(format!("run {run} got the reply {got:?} of {target}, which sent {sent:?}"));
                }
                coverage.record(Situation::AskedByRun);
            }
            _ => {}
        }
    }
}

/// The first replies to the messages with this payload: one, unless the run that asked was forked, and its fork has asked
/// the same.
fn replies_to(turns: &[TurnRecord], wanted: &Value) -> Vec<Value> {
    let events = turns.iter().flat_map(|turn| &turn.events);
    let asked = events.filter_map(|event| match event {
        Event::HookReceived { message, payload, to, .. }
            if to.wants_reply && payload.decode::<Value>().is_ok_and(|payload| payload == *wanted) =>
        {
            Some(*message)
        }
        _ => None,
    });
    let replied = asked.filter_map(|asked| match recorded_end(turns, asked) {
        Some(AskOutcome::Answered(reply)) => Some(reply),
        _ => None,
    });
    replied.collect()
}

#[cfg(test)]
mod tests {
    use outlast_core::{OpNumber, Payload, Timestamp, TurnId};
    use serde_json::json;

    use super::*;

    fn turns(events: Vec<Event>) -> Vec<TurnRecord> {
        let at = Timestamp::from_micros(1);
        vec![TurnRecord { id: TurnId::from_bits(1), seq: 0, at, build: "".into(), events }]
    }

    #[test]
    fn the_first_end_of_an_ask_counts() {
        let message = MessageId::from_bits(7);
        let sent = |number: u64| Event::ReplySent {
            op: OpNumber(number),
            message,
            payload: Payload::json(&number).unwrap(),
        };
        let history = turns(vec![sent(1), sent(2)]);
        assert_eq!(recorded_end(&history, message), Some(AskOutcome::Answered(json!(1))));
        assert_eq!(recorded_end(&history, MessageId::from_bits(8)), None);
    }

    #[test]
    fn an_ask_ends_in_one_way() {
        let (one, two) = (AskOutcome::Answered(json!(1)), AskOutcome::Answered(json!(2)));
        let over = AskOutcome::NotAnswered { has_ended: true };
        assert!(is_right(&one, Some(&one), false));
        assert!(!is_right(&two, Some(&one), true), "another reply");
        assert!(!is_right(&one, None, false), "nobody replied");
        assert!(is_right(&over, None, false));
        assert!(!is_right(&over, Some(&one), false), "there is a reply");
        assert!(is_right(&over, Some(&one), true), "the run was open again");
        assert!(!is_right(&AskOutcome::Rejected, Some(&one), false));
    }
}
