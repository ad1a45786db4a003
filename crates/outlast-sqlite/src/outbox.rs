//! What a turn does to other runs: children, messages; and the tags of its own.

use outlast_core::refusal::{child_exists, child_refused};
use outlast_core::{Headers, MessageBody, MessageId, NewMessage, Outbox, Started, Tags, WorldError};

use crate::error::Refusal;
use crate::message::NewLetter;
use crate::send::send;
use crate::start::{NewRun, put_tags, start};
use crate::turn::NewTurn;
use crate::tx::Tx;

/// The same, written out by the caller so that the writer does not have to.
pub(crate) struct NewOutbox {
    children: Vec<NewChild>,
    letters: Vec<NewLetter>,
    tags: Tags,
}

struct NewChild {
    /// Its place among the children of the turn.
    index: usize,
    new: NewRun,
    wants_answer: bool,
}

impl NewOutbox {
    pub(crate) fn encode(outbox: &Outbox) -> Result<Self, WorldError> {
        let children = outbox.children.iter().enumerate().map(|(index, child)| NewChild {
            index,
            new: NewRun::encode(child.start.clone()),
            wants_answer: child.wants_answer,
        });
        let letters = outbox.messages.iter().map(|message| NewLetter::encode(message.clone()));
        Ok(Self {
            children: children.collect(),
            letters: letters.collect::<Result<_, _>>()?,
            tags: outbox.tags.clone(),
        })
    }
}

/// Does it before the run's row lets go of it, so that an answer is unread when the run goes to wait.
pub(crate) fn deliver(tx: &mut Tx<'_>, new: &NewTurn, outbox: &NewOutbox) -> Result<(), Refusal> {
    let ends = new.change.has_ended();
    for child in &outbox.children {
        let answer = start_child(tx, child)?;
        if let Some(body) = answer.filter(|_| !ends) {
            let (id, run, headers) =
                (MessageId::of_answer(new.terms.id, child.index), new.terms.run, Headers::new());
            tell(tx, &NewLetter::encode(NewMessage { id, run, body, headers })?)?;
        }
    }
    for letter in &outbox.letters {
        tell(tx, letter)?;
    }
    Ok(put_tags(tx, &new.run, &outbox.tags)?)
}

/// Starts a child; answers what its parent is told.
fn start_child(tx: &mut Tx<'_>, child: &NewChild) -> Result<Option<MessageBody>, Refusal> {
    let of = &child.new.start;
    let Some(op) = of.parent.map(|parent| parent.op) else { return Ok(None) };
    Ok(match start(tx, &child.new) {
        Ok(Started { run, .. }) if child.wants_answer => Some(MessageBody::ChildStarted { op, run }),
        Ok(Started { is_new: true, .. }) => None,
        Ok(Started { run, .. }) => Some(MessageBody::Refused { op, failure: child_exists(of, run) }),
        Err(Refusal::World(error)) => Some(MessageBody::Refused { op, failure: child_refused(of, &error) }),
        Err(Refusal::Store(error)) => return Err(error.into()),
    })
}

/// Sends a message whose refusal comes to nothing: the run is gone, or has ended.
fn tell(tx: &mut Tx<'_>, letter: &NewLetter) -> Result<(), Refusal> {
    match send(tx, letter) {
        Err(Refusal::Store(error)) => Err(error.into()),
        Ok(_) | Err(Refusal::World(_)) => Ok(()),
    }
}
