//! The outbox of a turn: children to start, messages to other runs, and the tags, streams and state of its own run.

use outlast_core::refusal::{child_exists, child_refused};
use outlast_core::{
    Headers, MessageBody, MessageId, NewMessage, NewReply, Outbox, Started, Tags, TokenChanges, TurnId,
    WorldError,
};

use crate::connection::error::Refusal;
use crate::write::message::EncodedMessage;
use crate::write::send::send;
use crate::write::start::{EncodedStart, put_tags, start};
use crate::write::streams::{EncodedWrites, apply_writes};
use crate::write::tokens::{change_tokens, put_replies};
use crate::write::turn::EncodedTurn;
use crate::write::tx::Tx;

/// An outbox, encoded on the caller's thread to relieve the writer.
pub(crate) struct EncodedOutbox {
    children: Vec<EncodedChild>,
    messages: Vec<EncodedMessage>,
    tags: Tags,
    writes: Option<EncodedWrites>,
    tokens: TokenChanges,
    replies: Vec<NewReply>,
    /// The ids of the answers to tokens that are taken.
    token_answers: Vec<MessageId>,
}

/// A child to start, encoded on the caller's thread.
struct EncodedChild {
    /// Its index among the children of the turn.
    index: usize,
    encoded: EncodedStart,
    notify_parent: bool,
}

impl EncodedOutbox {
    pub(crate) fn encode(turn: TurnId, outbox: &Outbox) -> Result<Self, WorldError> {
        let children = outbox.children.iter().enumerate().map(|(index, child)| EncodedChild {
            index,
            encoded: EncodedStart::encode(child.start.clone()),
            notify_parent: child.notify_parent,
        });
        let messages = outbox.messages.iter().map(|message| EncodedMessage::encode(message.clone()));
        Ok(Self {
            children: children.collect(),
            messages: messages.collect::<Result<_, _>>()?,
            tags: outbox.tags.clone(),
            writes: EncodedWrites::encode(&outbox.writes),
            token_answers: (0..outbox.tokens.taken.len()).map(|nth| outbox.token_answer(turn, nth)).collect(),
            tokens: outbox.tokens.clone(),
            replies: outbox.replies.clone(),
        })
    }
}

/// Applies an outbox. This happens before the run is released, so that the run does not wait if it gets an answer.
pub(crate) fn apply_outbox(
    tx: &mut Tx<'_>,
    new: &EncodedTurn,
    outbox: &EncodedOutbox,
) -> Result<(), Refusal> {
    let ends = new.change.has_ended();
    for child in &outbox.children {
        let answer = start_child(tx, child)?;
        if let Some(body) = answer.filter(|_| !ends) {
            let (id, run, headers) =
                (MessageId::of_answer(new.terms.id, child.index), new.terms.run, Headers::new());
            send_if_possible(tx, &EncodedMessage::encode(NewMessage { id, run, body, headers })?)?;
        }
    }
    for message in &outbox.messages {
        send_if_possible(tx, message)?;
    }
    let run = new.terms.run;
    let answers = change_tokens(tx, run, &outbox.tokens)?;
    for (id, body) in outbox.token_answers.iter().zip(answers) {
        if let Some(body) = body.filter(|_| !ends) {
            let headers = Headers::new();
            send_if_possible(tx, &EncodedMessage::encode(NewMessage { id: *id, run, body, headers })?)?;
        }
    }
    put_replies(tx, run, &outbox.replies)?;
    if let Some(writes) = &outbox.writes {
        apply_writes(tx, new, writes)?;
    }
    Ok(put_tags(tx, &new.run, &outbox.tags)?)
}

/// Starts a child, and returns the message that its parent gets in answer: that the child was started, if the parent
/// asked to know, or that it was refused. Nothing is started without a parent.
fn start_child(tx: &mut Tx<'_>, child: &EncodedChild) -> Result<Option<MessageBody>, Refusal> {
    let new = &child.encoded.start;
    let Some(op) = new.parent.map(|parent| parent.op) else { return Ok(None) };
    Ok(match start(tx, &child.encoded) {
        Ok(Started { run, .. }) if child.notify_parent => Some(MessageBody::ChildStarted { op, run }),
        Ok(Started { is_new: true, .. }) => None,
        Ok(Started { run, .. }) => Some(MessageBody::Refused { op, failure: child_exists(new, run) }),
        Err(Refusal::World(error)) => Some(MessageBody::Refused { op, failure: child_refused(new, &error) }),
        Err(Refusal::Sqlite(error)) => return Err(error.into()),
    })
}

/// Sends a message. If the world refuses it, because the run does not exist or has ended, it is dropped.
fn send_if_possible(tx: &mut Tx<'_>, encoded: &EncodedMessage) -> Result<(), Refusal> {
    match send(tx, encoded) {
        Err(Refusal::Sqlite(error)) => Err(error.into()),
        Ok(_) | Err(Refusal::World(_)) => Ok(()),
    }
}
