//! Turns that do something beyond their own run: children, messages to other runs, tags, a start by a key.

use outlast_core::refusal::{check_start, child_exists, child_refused, key_taken};
use outlast_core::turn::From;
use outlast_core::{Failure, MessageId, NewChild, RunId, SessionId, Tags, Turn, WorldError};
use tokio_postgres::Row;

use crate::clock::Time;
use crate::message::{Letters, Values1, json_text};
use crate::skew::millis_of;
use crate::start::NewRuns;
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

    fn values(&self) -> [Values1<'_>; 26] {
        let runs = &self.new;
        [
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
            &self.ops,
            &runs.parent_awaits,
            &runs.roots,
            &runs.parents,
            &runs.not_before,
            &runs.deadlines,
            &runs.tag_of,
            &runs.tag_names,
            &runs.tag_values,
            &self.answers,
            &self.asks,
            &self.refused,
            &self.others,
            &self.taken,
            &self.foreign,
        ]
    }
}

fn written(failure: &Failure) -> Result<String, WorldError> {
    json_text(failure)
}

/// The run that a turn starts, or nothing.
#[derive(Debug, Default)]
struct Birth {
    born: i64,
    workflow: Option<String>,
    version: Option<i64>,
    queue: Option<String>,
    priority: Option<i16>,
    key: Option<String>,
    digest: Option<String>,
    window: Option<i64>,
    parent: Option<String>,
    parent_op: Option<i64>,
    parent_awaits: Option<bool>,
    root: Option<String>,
    deadline: Option<i64>,
}

impl Birth {
    fn of(turn: &Turn) -> Self {
        let From::Start(start) = &turn.from else { return Self::default() };
        let mut new = NewRuns::default();
        new.add(start);
        Self {
            born: millis_of(turn.run),
            workflow: new.workflows.pop(),
            version: new.versions.pop(),
            queue: new.queues.pop(),
            priority: new.priorities.pop(),
            key: new.keys.pop().flatten(),
            digest: new.digests.pop().flatten(),
            window: new.windows.pop().flatten(),
            parent: new.parents.pop().flatten(),
            parent_op: new.parent_ops.pop().flatten(),
            parent_awaits: new.parent_awaits.pop().flatten(),
            root: new.roots.pop().flatten(),
            deadline: new.deadlines.pop().flatten(),
        }
    }

    fn values(&self) -> [Values1<'_>; 13] {
        [
            &self.born,
            &self.workflow,
            &self.version,
            &self.queue,
            &self.priority,
            &self.key,
            &self.digest,
            &self.window,
            &self.parent,
            &self.parent_op,
            &self.parent_awaits,
            &self.root,
            &self.deadline,
        ]
    }
}

/// What a turn does beyond its own run, written out.
pub(crate) struct NewBeyond {
    turns: Turns,
    birth: Birth,
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
        let mut tags = if let From::Start(new) = &turn.from { new.tags.clone() } else { Tags::new() };
        let is_stuck = matches!(turn.then, outlast_core::Then::Stuck(_));
        let beyond = turn.beyond.as_ref().filter(|_| !is_stuck);
        if let Some(beyond) = beyond {
            tags.extend(beyond.tags.clone());
        }
        let (children, messages) =
            beyond.map_or((&[][..], &[][..]), |beyond| (&beyond.children[..], &beyond.messages[..]));
        Ok(Self {
            turns,
            birth: Birth::of(turn),
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
    new: &NewBeyond,
) -> Result<Vec<Row>, Failed> {
    let (session, at) = (session.to_string(), time.at());
    let (mark_run, mark_workflow) = (MARK_RUN.to_string(), MARK_WORKFLOW);
    let mut values: Vec<Values1<'_>> = vec![&session, &at];
    values.extend(new.turns.values_of_one());
    values.extend(new.birth.values());
    let rest: [Values1<'_>; 2] = [&new.tag_names, &new.tag_values];
    values.extend(rest);
    values.extend(new.children.values());
    let marks: [Values1<'_>; 2] = [&mark_run, &mark_workflow];
    values.extend(marks);
    values.extend(new.letters.values());
    store.try_call(&store.sql.commit_beyond, &values).await
}
