//! Turns that do something beyond their own run: children, messages to other runs, tags, a start by a key.

use outlast_core::refusal::{check_start, child_exists, child_refused, key_taken};
use outlast_core::turn::From;
use outlast_core::{Failure, MessageId, NewChild, RunId, SessionId, Tags, Turn, WorldError};
use tokio_postgres::Row;

use crate::clock::Time;
use crate::message::{Letters, Values1, json_text};
use crate::skew::millis_of;
use crate::start::{NewRuns, STATEMENT_BYTES_MAX};
use crate::store::{Failed, Store};
use crate::text::stored;
use crate::turn::Turns;

/// How many turns one statement commits: it takes its columns apart for each of them.
const FAR_TURNS_MAX: usize = 64;

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
    /// Adds those of another turn.
    fn extend(&mut self, other: Self) {
        self.new.extend(other.new);
        self.ops.extend(other.ops);
        self.answers.extend(other.answers);
        self.asks.extend(other.asks);
        self.refused.extend(other.refused);
        self.others.extend(other.others);
        self.taken.extend(other.taken);
        self.foreign.extend(other.foreign);
    }

    fn encode(turn: &Turn, children: &[NewChild]) -> Result<Self, WorldError> {
        let mut all = Self::default();
        for (index, child) in children.iter().enumerate() {
            // Without a parent there is nobody to answer.
            let Some(parent) = child.start.parent else { continue };
            all.add(child, MessageId::of_answer(turn.id, index))?;
            all.ops.push(parent.op.0 as i64);
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

/// The runs that turns start, column by column; nothing where a turn starts none.
#[derive(Debug, Default)]
struct Births {
    born: Vec<i64>,
    workflows: Vec<Option<String>>,
    versions: Vec<Option<i64>>,
    queues: Vec<Option<String>>,
    priorities: Vec<Option<i16>>,
    keys: Vec<Option<String>>,
    digests: Vec<Option<String>>,
    windows: Vec<Option<i64>>,
    parents: Vec<Option<String>>,
    parent_ops: Vec<Option<i64>>,
    parent_awaits: Vec<Option<bool>>,
    roots: Vec<Option<String>>,
    deadlines: Vec<Option<i64>>,
}

impl Births {
    fn add(&mut self, turn: &Turn) {
        let mut new = NewRuns::default();
        if let From::Start(start) = &turn.from {
            new.add(start);
        }
        self.born.push(millis_of(turn.run));
        self.workflows.push(new.workflows.pop());
        self.versions.push(new.versions.pop());
        self.queues.push(new.queues.pop());
        self.priorities.push(new.priorities.pop());
        self.keys.push(new.keys.pop().flatten());
        self.digests.push(new.digests.pop().flatten());
        self.windows.push(new.windows.pop().flatten());
        self.parents.push(new.parents.pop().flatten());
        self.parent_ops.push(new.parent_ops.pop().flatten());
        self.parent_awaits.push(new.parent_awaits.pop().flatten());
        self.roots.push(new.roots.pop().flatten());
        self.deadlines.push(new.deadlines.pop().flatten());
    }

    fn values(&self) -> [Values1<'_>; 13] {
        [
            &self.born,
            &self.workflows,
            &self.versions,
            &self.queues,
            &self.priorities,
            &self.keys,
            &self.digests,
            &self.windows,
            &self.parents,
            &self.parent_ops,
            &self.parent_awaits,
            &self.roots,
            &self.deadlines,
        ]
    }
}

/// Turns that do something beyond their own runs, column by column, and how much of each column is whose.
#[derive(Debug, Default)]
pub(crate) struct FarTurns {
    turns: Turns,
    births: Births,
    tag_names: Vec<String>,
    tag_values: Vec<String>,
    children: Children,
    letters: Letters,
    tags_each: Vec<i32>,
    children_each: Vec<i32>,
    child_tags_each: Vec<i32>,
    letters_each: Vec<i32>,
    bytes: usize,
}

impl FarTurns {
    /// Adds a turn, or says why it cannot be written.
    pub(crate) fn add(&mut self, turn: &Turn, refused: Option<&WorldError>) -> Result<(), WorldError> {
        let is_stuck = matches!(turn.then, outlast_core::Then::Stuck(_));
        let beyond = turn.beyond.as_ref().filter(|_| !is_stuck);
        let (new_children, messages) =
            beyond.map_or((&[][..], &[][..]), |beyond| (&beyond.children[..], &beyond.messages[..]));
        let (children, letters) = (Children::encode(turn, new_children)?, Letters::encode(messages)?);
        let mut tags = if let From::Start(new) = &turn.from { new.tags.clone() } else { Tags::new() };
        tags.extend(beyond.map(|beyond| beyond.tags.clone()).unwrap_or_default());
        self.bytes += self.turns.add(turn, refused) + children.new.bytes() + letters.bytes();
        self.births.add(turn);
        self.tags_each.push(tags.len() as i32);
        self.children_each.push(children.answers.len() as i32);
        self.child_tags_each.push(children.new.tag_of.len() as i32);
        self.letters_each.push(letters.runs.len() as i32);
        self.tag_names.extend(tags.keys().map(|name| stored(name).into_owned()));
        self.tag_values.extend(tags.values().map(|value| stored(value).into_owned()));
        self.children.extend(children);
        self.letters.extend(letters);
        Ok(())
    }

    /// Whether one statement has enough with these.
    pub(crate) fn is_full(&self) -> bool {
        self.tags_each.len() >= FAR_TURNS_MAX || self.bytes >= STATEMENT_BYTES_MAX
    }
}

/// Commits turns, one by one in their order, by one statement.
pub(crate) async fn commit_each(
    store: &Store,
    time: &Time,
    session: SessionId,
    far: &FarTurns,
) -> Result<Vec<Row>, Failed> {
    let (session, at) = (session.to_string(), time.at());
    let (mark_run, mark_workflow) = (MARK_RUN.to_string(), MARK_WORKFLOW);
    let mut values: Vec<Values1<'_>> = vec![&session, &at];
    values.extend(far.turns.values_of_each());
    values.extend(far.births.values());
    let tags: [Values1<'_>; 2] = [&far.tag_names, &far.tag_values];
    values.extend(tags);
    values.extend(far.children.values());
    let marks: [Values1<'_>; 2] = [&mark_run, &mark_workflow];
    values.extend(marks);
    values.extend(far.letters.values());
    let each: [Values1<'_>; 4] =
        [&far.tags_each, &far.children_each, &far.child_tags_each, &far.letters_each];
    values.extend(each);
    store.try_call(&store.sql.commit_each, &values).await
}
