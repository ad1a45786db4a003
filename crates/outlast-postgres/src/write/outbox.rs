//! The outboxes of turns as parameters of `commit.sql`: children to start, and messages to other runs.

use outlast_core::refusal::{check_start, child_exists, child_refused, key_taken};
use outlast_core::{Failure, MessageId, NewChild, RunId, Then, Turn, WorldError};

use crate::encoding::message::{NewMessages, json_text};
use crate::write::start::{NewRuns, with_known_rules};

/// A placeholder in failure messages for the id of an existing run, which only the database knows.
pub(crate) const RUN_PLACEHOLDER: RunId = RunId::from_bits(u128::MAX);

/// A placeholder in failure messages for the workflow of an existing run, which only the database knows.
const WORKFLOW_PLACEHOLDER: &str = "\u{E000}workflow\u{E000}";

/// The outboxes of all turns of one statement.
#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    pub(crate) children: NewRuns,
    pub(crate) messages: NewMessages,
}

impl Outboxes {
    /// Adds the outbox of a turn; `turn_nth` is the turn's number in its batch. New runs get at most these rules.
    pub(crate) fn add(&mut self, turn: &Turn, turn_nth: i64, rules: Option<u32>) -> Result<(), WorldError> {
        let Some(outbox) = effective_outbox(turn) else { return Ok(()) };
        self.messages.add(&outbox.messages, Some(turn_nth))?;
        for (index, child) in outbox.children.iter().enumerate() {
            // Without a parent there is no receiver for the answer.
            if child.start.parent.is_some() {
                self.add_child(child, MessageId::of_answer(turn.id, index), turn_nth, rules)?;
            }
        }
        Ok(())
    }

    /// Adds a child, with the failures that its parent receives in each possible case.
    fn add_child(
        &mut self,
        child: &NewChild,
        answer: MessageId,
        turn_nth: i64,
        rules: Option<u32>,
    ) -> Result<(), WorldError> {
        let start = &child.start;
        let refused = check_start(start).err().map(|error| child_refused(start, &error));
        self.children.add(&with_known_rules(start, rules));
        let rows = &mut self.children.rows;
        rows.number("turn_nth", turn_nth);
        rows.word("answer", answer);
        rows.flag("asks", child.notify_parent);
        if let Some(refused) = refused {
            rows.plain_text("refused", &json_text(&refused)?);
        }
        if start.key.is_some() {
            let taken = child_refused(start, &key_taken(start, RUN_PLACEHOLDER, &start.workflow));
            let foreign = child_refused(start, &key_taken(start, RUN_PLACEHOLDER, WORKFLOW_PLACEHOLDER));
            let texts: [(&str, Failure); 3] =
                [("other", child_exists(start, RUN_PLACEHOLDER)), ("taken", taken), ("foreign", foreign)];
            for (name, failure) in texts {
                rows.plain_text(name, &json_text(&failure)?);
            }
            rows.word("mark_run", RUN_PLACEHOLDER);
            rows.plain_text("mark_workflow", WORKFLOW_PLACEHOLDER);
        }
        Ok(())
    }
}

/// The outbox of a turn, unless it is empty or ignored. The outbox of a stuck turn is ignored.
pub(crate) fn effective_outbox(turn: &Turn) -> Option<&outlast_core::Outbox> {
    let is_stuck = matches!(turn.then, Then::Stuck(_));
    turn.outbox.as_deref().filter(|outbox| !is_stuck && !outbox.is_empty())
}

/// The runs to which a turn sends messages.
pub(crate) fn receivers(turn: &Turn) -> impl Iterator<Item = RunId> {
    effective_outbox(turn).into_iter().flat_map(|outbox| outbox.messages.iter().map(|message| message.run))
}
