//! Turns that do something beyond their own run: children, messages to other runs, tags, a start by a key.

use outlast_core::refusal::{check_start, child_exists, child_refused, key_taken};
use outlast_core::turn::From;
use outlast_core::{Failure, MessageId, NewChild, RunId, SessionId, Tags, Turn, WorldError};
use tokio_postgres::Row;

use crate::clock::Time;
use crate::message::{Letters, Values1, json_text};
use crate::skew::millis_of;
use crate::start::{FORMAT_STORED, NewRuns};
use crate::store::{Failed, Store};
use crate::text::stored;
use crate::turn::Turns;

/// Stands in a text for a run that only the world knows.
const MARK_RUN: RunId = RunId::from_bits(u128::MAX);

/// Stands in a text for a workflow that only the world knows.
const MARK_WORKFLOW: &str = "\u{E000}workflow\u{E000}";

/// Children, column by column, with what their parent is told in each case.
#[derive(Debug, Default)]
struct Children {
    new: NewRuns,
    /// The operation of each, which the new runs have only if they have a parent.
    ops: Vec<i64>,
    answers: Vec<String>,
    asks: Vec<bool>,
    refused: Vec<Option<String>>,
    others: Vec<String>,
    taken: Vec<String>,
    foreign: Vec<String>,
}

impl Children {
    fn encode(turn: &Turn, children: &[NewChild]) -> Result<Self, WorldError> {
        let mut all = Self::default();
        for (index, child) in children.iter().enumerate() {
            // Without a parent there is nobody to answer.
            let Some(parent) = child.start.parent else { continue };
            all.add(child, MessageId::of_answer(turn.id, index))?;
            all.ops.push(i64::from(parent.op.0));
        }
        Ok(all)
    }

    fn add(&mut self, child: &NewChild, answer: MessageId) -> Result<(), WorldError> {
        let start = &child.start;
        let refused = check_start(start).err().map(|error| child_refused(start, &error));
        let taken = child_refused(start, &key_taken(start, MARK_RUN, &start.workflow));
        let foreign = child_refused(start, &key_taken(start, MARK_RUN, MARK_WORKFLOW));
        self.new.add(start);
        self.answers.push(answer.to_string());
        self.asks.push(child.wants_answer);
        self.refused.push(refused.as_ref().map(written).transpose()?);
        self.others.push(written(&child_exists(start, MARK_RUN))?);
        self.taken.push(written(&taken)?);
        self.foreign.push(written(&foreign)?);
        Ok(())
    }
}

fn written(failure: &Failure) -> Result<String, WorldError> {
    json_text(failure)
}

/// What a turn does beyond its own run, written out.
pub(crate) struct NewBeyond {
    turns: Turns,
    start: NewRuns,
    tag_names: Vec<String>,
    tag_values: Vec<String>,
    children: Children,
    letters: Letters,
}

impl NewBeyond {
    /// Writes a turn out.
    pub(crate) fn encode(turn: &Turn, refused: Option<&WorldError>) -> Result<Self, WorldError> {
        let mut turns = Turns::default();
        turns.add(turn, refused);
        let (mut start, mut tags) = (NewRuns::default(), Tags::new());
        if let From::Start(new) = &turn.from {
            start.add(new);
            tags.clone_from(&new.tags);
        }
        let is_stuck = matches!(turn.then, outlast_core::Then::Stuck(_));
        let beyond = turn.beyond.as_ref().filter(|_| !is_stuck);
        if let Some(beyond) = beyond {
            tags.extend(beyond.tags.clone());
        }
        let (children, messages) =
            beyond.map_or((&[][..], &[][..]), |beyond| (&beyond.children[..], &beyond.messages[..]));
        Ok(Self {
            turns,
            start,
            tag_names: tags.keys().map(|name| stored(name).into_owned()).collect(),
            tag_values: tags.values().map(|value| stored(value).into_owned()).collect(),
            children: Children::encode(turn, children)?,
            letters: Letters::encode(messages)?,
        })
    }

    /// Whether runs or messages came to be, so that a worker may have to know.
    pub(crate) fn rings(&self) -> bool {
        !self.children.answers.is_empty() || !self.letters.runs.is_empty()
    }
}

/// Commits one turn.
pub(crate) async fn commit_beyond(
    store: &Store,
    time: &Time,
    session: SessionId,
    turn: &Turn,
    new: &NewBeyond,
) -> Result<Vec<Row>, Failed> {
    let (session, at, turns, start) = (session.to_string(), time.at(), &new.turns, &new.start);
    let (mark_run, mark_workflow) = (MARK_RUN.to_string(), MARK_WORKFLOW);
    let born = millis_of(turn.run);
    let (children, runs) = (&new.children, &new.children.new);
    let version = start.versions.first().copied();
    let priority = start.priorities.first().copied();
    let (workflow, queue) = (start.workflows.first(), start.queues.first());
    let (key, digest, window) =
        (flat(&start.keys), flat(&start.digests), start.windows.first().copied().flatten());
    let (parent, root) = (flat(&start.parents), flat(&start.roots));
    let parent_op = start.parent_ops.first().copied().flatten();
    let parent_awaits = start.parent_awaits.first().copied().flatten();
    let deadline = start.deadlines.first().copied().flatten();
    let mut values: Vec<Values1<'_>> = vec![
        &session,
        &at,
        &turns.exclusive,
        &turns.runs[0],
        &turns.ids[0],
        &turns.froms[0],
        &turns.seqs[0],
        &turns.next_seqs[0],
        &turns.ats[0],
        &turns.builds[0],
        &turns.events[0],
        &turns.consumed[0],
        &turns.fired_until[0],
        &turns.thens[0],
        &turns.clears_deadline[0],
        &turns.invalid[0],
        &turns.wake_at[0],
        &turns.waits[0],
        &turns.stuck_reasons[0],
        &turns.stuck_messages[0],
        &turns.stuck_builds[0],
        &FORMAT_STORED,
        &born,
        &workflow,
        &version,
        &queue,
        &priority,
        &key,
        &digest,
        &window,
        &parent,
        &parent_op,
        &parent_awaits,
        &root,
        &deadline,
        &new.tag_names,
        &new.tag_values,
    ];
    let of_children: [Values1<'_>; 28] = [
        &runs.runs,
        &runs.turns,
        &runs.born,
        &runs.workflows,
        &runs.versions,
        &runs.queues,
        &runs.priorities,
        &runs.keys,
        &runs.digests,
        &runs.windows,
        &runs.events,
        &children.ops,
        &runs.parent_awaits,
        &runs.roots,
        &runs.parents,
        &runs.not_before,
        &runs.deadlines,
        &runs.tag_of,
        &runs.tag_names,
        &runs.tag_values,
        &children.answers,
        &children.asks,
        &children.refused,
        &children.others,
        &children.taken,
        &children.foreign,
        &mark_run,
        &mark_workflow,
    ];
    values.extend(of_children);
    values.extend(new.letters.values());
    store.try_call(&store.sql.commit_beyond, &values).await
}

fn flat(column: &[Option<String>]) -> Option<&str> {
    column.first().and_then(Option::as_deref)
}
