//! The directory of tokens, and replies to messages.

use std::collections::BTreeMap;

use outlast_core::limits::{PRUNE_REPLIES_MAX, REPLY_KEPT};
use outlast_core::refusal::{token_not_held, token_taken};
use outlast_core::{
    FreedToken, MessageBody, MessageId, NewReply, NewToken, RunId, StoredReply, StoredToken, Timestamp,
    TokenHash, TokenOwner, TokenView, WorldError,
};

use crate::state::State;

/// The tokens of all runs.
pub(crate) type Tokens = BTreeMap<TokenHash, StoredToken>;

/// The replies of all runs.
pub(crate) type Replies = BTreeMap<(RunId, MessageId), StoredReply>;

impl State {
    pub(crate) fn token(&self, hash: TokenHash, now: Timestamp) -> Option<TokenView> {
        let stored = self.tokens.get(&hash)?;
        let is_over = stored.kept_until.is_some_and(|until| until <= now);
        (!is_over).then(|| stored.clone().view(self.token_owner(stored.run)))
    }

    fn token_owner(&self, run: RunId) -> TokenOwner {
        let run = self.runs.get(&run);
        TokenOwner::of_run(run.is_some(), run.and_then(|run| run.ended_at))
    }

    /// Checks that a run holds the token to which a message is sent, if it is sent to one.
    pub(crate) fn check_token(&self, run: RunId, body: &MessageBody) -> Result<(), WorldError> {
        let Some(hash) = body.token_hash() else { return Ok(()) };
        let stored = self.tokens.get(&hash).filter(|stored| stored.run == run);
        let is_open = stored.is_some_and(|stored| stored.is_open(self.token_owner(run)));
        if is_open { Ok(()) } else { Err(token_not_held(run)) }
    }

    pub(crate) fn free_token(&mut self, run: RunId, freed: &FreedToken) {
        let FreedToken { hash, op, kept_until } = freed;
        let Some(stored) = self.tokens.get_mut(hash) else { return };
        if stored.run != run || stored.op != *op || stored.kept_until.is_some() {
            return;
        }
        match kept_until {
            Some(until) => stored.kept_until = Some(*until),
            None => drop(self.tokens.remove(hash)),
        }
    }

    /// Takes a token, and returns the message to its run.
    pub(crate) fn take_token(&mut self, run: RunId, new: &NewToken, now: Timestamp) -> Option<MessageBody> {
        let op = new.op;
        if let Some(stored) = self.tokens.get(&new.hash)
            && stored.is_taken_from(run, self.token_owner(stored.run), now)
        {
            return Some(MessageBody::Refused { op, failure: token_taken(&new.hook, stored.run) });
        }
        self.tokens.insert(new.hash, StoredToken::of(new, run, now));
        new.notify.then_some(MessageBody::TokenTaken { op })
    }

    pub(crate) fn put_replies(&mut self, run: RunId, replies: &[NewReply], now: Timestamp) {
        for NewReply { message, reply } in replies {
            let stored = StoredReply { at: now, reply: reply.clone() };
            self.replies.entry((run, *message)).or_insert(stored);
        }
    }

    /// Deletes the tokens and replies of a run that is deleted. Tokens that are kept stay.
    pub(crate) fn forget_tokens(&mut self, run: RunId, ended_at: Timestamp) {
        self.tokens.retain(|_, stored| {
            if stored.run != run {
                return true;
            }
            let kept = stored.kept_until.or_else(|| Some(ended_at.plus(stored.keep_for?)));
            stored.kept_until = kept;
            kept.is_some()
        });
        self.replies.retain(|(of, _), _| *of != run);
    }

    /// Deletes some replies that are old, and tokens that are not kept any more.
    pub(crate) fn prune_tokens(&mut self, now: Timestamp) {
        let old = self.replies.iter().filter(|(_, reply)| reply.at.plus(REPLY_KEPT) <= now);
        let old: Vec<_> = old.map(|(key, _)| *key).take(PRUNE_REPLIES_MAX).collect();
        old.iter().for_each(|key| drop(self.replies.remove(key)));
        self.tokens.retain(|_, stored| stored.kept_until.is_none_or(|until| until > now));
    }
}
