//! The outbox of a turn on its way to the database: children, and messages to other runs.

use outlast_core::refusal::{check_start, child_exists, child_refused, key_taken};
use outlast_core::{Failure, MessageId, NewChild, RunId, Then, Turn, WorldError};

use crate::message::{NewMessages, json_text};
use crate::start::{NewRuns, lowered};

/// Stands in a text for a run that only the database knows.
const MARK_RUN: RunId = RunId::from_bits(u128::MAX);

/// Stands in a text for a workflow that only the database knows.
const MARK_WORKFLOW: &str = "\u{E000}workflow\u{E000}";

/// The outboxes of the turns of one statement.
#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    pub(crate) children: NewRuns,
    pub(crate) messages: NewMessages,
}

impl Outboxes {
    /// Adds the outbox of the turn with this number in its batch. New runs get these rules at the most.
    pub(crate) fn add(&mut self, turn: &Turn, nth: i64, rules: Option<u32>) -> Result<(), WorldError> {
        let Some(outbox) = outbox(turn) else { return Ok(()) };
        self.messages.add(&outbox.messages, Some(nth))?;
        for (index, child) in outbox.children.iter().enumerate() {
            // Without a parent there is nobody to answer.
            if child.start.parent.is_some() {
                self.child(child, MessageId::of_answer(turn.id, index), nth, rules)?;
            }
        }
        Ok(())
    }

    /// A child, with what its parent is told in each case.
    fn child(
        &mut self,
        child: &NewChild,
        answer: MessageId,
        nth: i64,
        rules: Option<u32>,
    ) -> Result<(), WorldError> {
        let start = &child.start;
        let refused = check_start(start).err().map(|error| child_refused(start, &error));
        self.children.add(&lowered(start, rules));
        let rows = &mut self.children.rows;
        rows.number("turn_nth", nth);
        rows.word("answer", answer);
        rows.flag("asks", child.wants_answer);
        if let Some(refused) = refused {
            rows.json_text("refused", &json_text(&refused)?);
        }
        if start.key.is_some() {
            let taken = child_refused(start, &key_taken(start, MARK_RUN, &start.workflow));
            let foreign = child_refused(start, &key_taken(start, MARK_RUN, MARK_WORKFLOW));
            let texts: [(&str, Failure); 3] =
                [("other", child_exists(start, MARK_RUN)), ("taken", taken), ("foreign", foreign)];
            for (name, failure) in texts {
                rows.json_text(name, &json_text(&failure)?);
            }
            rows.word("mark_run", MARK_RUN);
            rows.json_text("mark_workflow", MARK_WORKFLOW);
        }
        Ok(())
    }
}

/// The outbox of a turn, if it counts: that of a stuck turn does not.
pub(crate) fn outbox(turn: &Turn) -> Option<&outlast_core::Outbox> {
    let is_stuck = matches!(turn.then, Then::Stuck(_));
    turn.outbox.as_deref().filter(|outbox| !is_stuck && !outbox.is_empty())
}

/// The runs that a turn sends to.
pub(crate) fn receivers(turn: &Turn) -> impl Iterator<Item = RunId> {
    outbox(turn).into_iter().flat_map(|outbox| outbox.messages.iter().map(|message| message.run))
}
