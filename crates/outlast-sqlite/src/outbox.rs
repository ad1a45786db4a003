//! What a turn does beyond its own history: children, messages to other runs, tags.

use outlast_core::refusal::{child_exists, child_refused};
use outlast_core::{Beyond, Headers, MessageBody, MessageId, NewMessage, Started, Tags, Then, WorldError};

use crate::error::Refusal;
use crate::message::NewLetter;
use crate::send::send;
use crate::start::{NewRun, put_tags, start};
use crate::turn::NewTurn;
use crate::tx::Tx;

/// The same, written out by the caller so that the writer does not have to.
pub(crate) struct NewBeyond {
    children: Vec<NewChild>,
    letters: Vec<NewLetter>,
    tags: Tags,
}

struct NewChild {
    new: NewRun,
    wants_answer: bool,
}

impl NewBeyond {
    pub(crate) fn encode(beyond: &Beyond) -> Result<Self, WorldError> {
        let children = beyond.children.iter().map(|child| NewChild {
            new: NewRun::encode(child.start.clone()),
            wants_answer: child.wants_answer,
        });
        let letters = beyond.messages.iter().map(|message| NewLetter::encode(message.clone()));
        Ok(Self {
            children: children.collect(),
            letters: letters.collect::<Result<_, _>>()?,
            tags: beyond.tags.clone(),
        })
    }
}

/// Does it before the run's row lets go of it, so that an answer is unread when the run goes to wait.
pub(crate) fn reach(tx: &mut Tx<'_>, new: &NewTurn, beyond: &NewBeyond) -> Result<(), Refusal> {
    let ends = matches!(new.turn.then, Then::End(_));
    for (index, child) in beyond.children.iter().enumerate() {
        let answer = start_child(tx, child)?;
        if let Some(body) = answer.filter(|_| !ends) {
            let (id, run, headers) = (MessageId::of_answer(new.turn.id, index), new.turn.run, Headers::new());
            tell(tx, &NewLetter::encode(NewMessage { id, run, body, headers })?)?;
        }
    }
    for letter in &beyond.letters {
        tell(tx, letter)?;
    }
    Ok(put_tags(tx, &new.run, &beyond.tags)?)
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
