//! Tokens: hooks that are open under a public name, from a request of the workflow until it closes them.
//!
//! `token_requested` records the request. A chosen token is taken when the world has answered (`token_taken`, or
//! `token_refused` with the run that holds it). A generated token cannot be held by another run, so the request
//! completes at once. From then on the run holds the token. It is closed when its handle is dropped (`token_closed`),
//! and each commit contains what it changes in the directory of the world.
//!
//! When the workflow returns, its handles are dropped in the same poll. If the run has ended, this changes nothing: the
//! world frees the tokens of ended runs. If the run continues as a new generation, it keeps those tokens, and
//! `run_continued` lists them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::event::hidden_tokens::{GENERATED_TOKEN, GENERATED_TOKEN_PREFIX};
use outlast_core::limits::{REPLY_KEPT, TOKEN_BYTES_MAX, TOKEN_KEPT_MAX, TOKEN_METADATA_BYTES_MAX};
use outlast_core::queue::check_name;
use outlast_core::{
    CarriedToken, Event, Failure, FailureKind, FreedToken, NewToken, OpNumber, Payload, Timestamp, TokenHash,
    TokenRequested, WebhookTerms,
};
use serde::Serialize;

use super::handle::OpHandle;
use super::misuse::OUTSIDE_TURN;
use super::names::hook_problem;
use super::operation_table::{Op, OpKind, OperationTable, Phase};
use super::state::{RunState, wake_all};
use crate::ids;

/// The name of the recorded value that is the public URL of the worker.
const PUBLIC_URL: &str = "outlast:public_url";

/// A token that the workflow has requested.
pub(super) struct TokenOp {
    name: Arc<str>,
    token: Arc<str>,
    is_generated: bool,
    metadata: Option<Result<Payload, Failure>>,
    webhook: Option<Arc<WebhookTerms>>,
    keep_for: Option<Duration>,
}

/// A token that is about to be requested.
#[derive(Default)]
pub(crate) struct TokenOptions {
    /// `None` for a generated token.
    pub(crate) token: Option<String>,
    /// The metadata as JSON.
    pub(crate) metadata: Option<Result<Payload, Failure>>,
    pub(crate) webhook: Option<WebhookTerms>,
    pub(crate) keep_for: Option<Duration>,
}

/// The tokens that a run holds, and those that it is closing.
#[derive(Default)]
pub(super) struct HeldTokens {
    held: BTreeMap<OpNumber, HeldToken>,
    /// Closed, but the decision was not taken yet.
    closing: BTreeMap<OpNumber, HeldToken>,
    /// Whether dropped handles keep their tokens, because the run continues as a new generation.
    is_continuing: bool,
}

#[derive(Clone, Debug)]
struct HeldToken {
    name: Arc<str>,
    token: Arc<str>,
    keep_for: Option<Duration>,
    /// Whether the workflow has closed it explicitly.
    is_closed: bool,
}

impl HeldTokens {
    /// The tokens that an earlier generation has taken.
    pub(super) fn carried(carried: &[CarriedToken]) -> Option<Box<Self>> {
        let held = carried.iter().map(|CarriedToken { op, hook, token, keep_for }| {
            let (name, token, keep_for) = (hook.clone(), token.clone(), *keep_for);
            (*op, HeldToken { name, token, keep_for, is_closed: false })
        });
        (!carried.is_empty()).then(|| Box::new(Self { held: held.collect(), ..Self::default() }))
    }

    /// The number of tokens that operations before `op` have taken, and of those that later ones have.
    pub(super) fn counts(&self, op: u64) -> (usize, usize) {
        let later = self.held.range(OpNumber(op)..).count();
        (self.held.len() - later, later)
    }

    /// The tokens as text, for a summary.
    pub(super) fn summary(&self) -> Vec<(u64, &str)> {
        self.held.iter().map(|(op, held)| (op.0, &*held.token)).collect()
    }
}

impl TokenOp {
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// How long the token is kept after it was closed. That of a webhook is found as long as replies are stored, so that a
    /// sender who repeats a request gets its response; nobody else wants a generated token in the meantime.
    fn kept_for(&self) -> Option<Duration> {
        let is_found = self.is_generated && self.webhook.is_some();
        self.keep_for.or(is_found.then_some(REPLY_KEPT))
    }

    /// What the operation completes with: the token, and for a webhook also the recorded public URL.
    fn outcome(&self) -> Payload {
        let outcome = match &self.webhook {
            None => Payload::json(&*self.token),
            Some(terms) => Payload::json(&(&*self.token, terms.public_url.as_deref())),
        };
        outcome.unwrap_or_else(|_| Payload::null())
    }
}

impl OperationTable {
    fn held_tokens(&mut self) -> &mut HeldTokens {
        self.tokens.get_or_insert_default()
    }

    /// Requests a token.
    pub(super) fn request_token(&mut self, op: OpNumber) -> Option<Event> {
        let Some(Op { kind: OpKind::Token(token), .. }) = self.ops.get(op) else { return None };
        let TokenOp { name, token, is_generated, metadata, webhook, keep_for } = &**token;
        let (name, token, webhook, keep_for) = (name.clone(), token.clone(), webhook.clone(), *keep_for);
        let is_generated = *is_generated;
        let (metadata, problem) = match metadata.clone().transpose() {
            Ok(metadata) => (metadata, None),
            Err(failure) => (None, Some(failure)),
        };
        let is_invalid = problem.is_some();
        self.invalid_requests.extend(problem.map(|failure| (op, failure)));
        if !is_invalid && !self.is_recorded(op) {
            let hash = TokenHash::of(&token);
            let (hook, notify) = (name.clone(), !is_generated);
            let (metadata, webhook) = (metadata.clone(), webhook.clone());
            let new = NewToken { hash, op, hook, metadata, webhook, keep_for, notify };
            self.pending_outbox().tokens.taken.push(new);
        }
        if is_generated && !is_invalid {
            self.take_token(op);
        }
        let requested = TokenRequested { op, name, token, is_generated, metadata, webhook, keep_for };
        Some(Event::TokenRequested(Box::new(requested)))
    }

    /// Takes a token again after a retry: one that the run holds, or that it has asked for without an answer. Nothing is
    /// known any more of what an earlier generation has published with it.
    pub(super) fn take_again(&mut self, op: OpNumber) {
        let is_open = self.is_open(op) && self.is_token(op);
        let requested = match self.ops.get(op).map(|slot| &slot.kind) {
            Some(OpKind::Token(requested)) => Some((
                requested.name.clone(),
                requested.token.clone(),
                requested.keep_for,
                requested.metadata.clone().and_then(Result::ok),
                requested.webhook.clone(),
            )),
            _ => None,
        };
        let held = || {
            let held = self.tokens.as_ref()?.held.get(&op)?;
            Some((held.name.clone(), held.token.clone(), held.keep_for, None, None))
        };
        let Some((hook, token, keep_for, metadata, webhook)) = requested.or_else(held) else { return };
        let hash = TokenHash::of(&token);
        let new = NewToken { hash, op, hook, metadata, webhook, keep_for, notify: is_open };
        self.pending_outbox().tokens.taken.push(new);
    }

    /// Replaces the parameters of a request with the recorded ones.
    pub(super) fn apply_recorded_token(&mut self, recorded: &TokenRequested) {
        let Some(Op { kind: OpKind::Token(token), .. }) = self.ops.get_mut(recorded.op) else { return };
        token.token = recorded.token.clone();
        token.keep_for = recorded.keep_for;
        token.webhook = recorded.webhook.clone();
    }

    /// Ends a request: the run holds its token. Returns false when there is no such request.
    pub(super) fn take_token(&mut self, op: OpNumber) -> bool {
        let Some(Op { phase: Phase::Open, kind: OpKind::Token(requested), .. }) = self.ops.get(op) else {
            return false;
        };
        let (name, token, keep_for) = (requested.name.clone(), requested.token.clone(), requested.kept_for());
        let outcome = requested.outcome();
        let tokens = self.held_tokens();
        // A token that the run holds already belongs to the new operation from now on.
        tokens.held.retain(|_, held| held.token != token);
        tokens.held.insert(op, HeldToken { name, token, keep_for, is_closed: false });
        self.end(op, Ok(outcome))
    }

    /// Whether an operation is a request of a token.
    pub(super) fn is_token(&self, op: OpNumber) -> bool {
        matches!(self.ops.get(op), Some(Op { kind: OpKind::Token(_), .. }))
    }

    /// The workflow does not need the token of an operation any more: `is_closed` if it said so, otherwise it has dropped
    /// the handle.
    pub(super) fn close_token(&mut self, op: OpNumber, is_closed: bool) {
        let Some(tokens) = &mut self.tokens else { return };
        if tokens.is_continuing && !is_closed {
            return;
        }
        // Another operation of the run may have taken over the token.
        let Some(held) = tokens.held.remove(&op) else { return };
        tokens.closing.insert(op, HeldToken { is_closed, ..held });
        self.dropped(Event::TokenClosed { op });
    }

    /// The workflow dropped the request of a token before the world has answered.
    pub(super) fn drop_token_request(&mut self, op: OpNumber, requested: &TokenOp) {
        let (name, token, keep_for) = (requested.name.clone(), requested.token.clone(), requested.kept_for());
        let held = HeldToken { name, token, keep_for, is_closed: true };
        self.held_tokens().closing.insert(op, held);
        self.dropped(Event::TokenClosed { op });
    }

    /// The decision to close a token is recorded: the world frees the token, and payloads that were sent to it and that
    /// nobody has taken are discarded.
    pub(super) fn free_closed_token(&mut self, op: OpNumber) {
        let Some(held) = self.tokens.as_mut().and_then(|tokens| tokens.closing.remove(&op)) else { return };
        if !self.holds_token(&held.token) {
            self.discard_payloads_of(&held.token);
        }
        if self.withdraw_request(op) {
            return;
        }
        if !self.is_replaying() {
            let kept_until = held.keep_for.map(|keep_for| self.now.plus(keep_for));
            let freed = FreedToken { hash: TokenHash::of(&held.token), op, kept_until };
            self.pending_outbox().tokens.freed.push(freed);
        }
    }

    /// Keeps the tokens whose closes a replay has decided at a time as long as if they were closed now: their closes are
    /// recorded only now.
    pub(super) fn keep_closed_tokens_longer(&mut self, decided_at: Timestamp) {
        let later = self.now.since(decided_at);
        let freed = self.pending_outbox.iter_mut().flat_map(|pending| &mut pending.tokens.freed);
        for kept_until in freed.filter_map(|freed| freed.kept_until.as_mut()) {
            *kept_until = kept_until.plus(later);
        }
    }

    /// Whether the run holds a token.
    pub(super) fn holds_token(&self, token: &Arc<str>) -> bool {
        let mut held = self.tokens.iter().flat_map(|tokens| tokens.held.values());
        held.any(|held| held.token == *token)
    }

    /// Removes the request of a token that is closed in the turn in which it was requested. Returns whether there was one: the
    /// world frees tokens before it takes others, so it would take this one.
    fn withdraw_request(&mut self, op: OpNumber) -> bool {
        let Some(pending_outbox) = &mut self.pending_outbox else { return false };
        let requested = pending_outbox.tokens.taken.len();
        pending_outbox.tokens.taken.retain(|new| new.op != op);
        pending_outbox.tokens.taken.len() < requested
    }

    /// The iteration of a loop that has closed tokens ends: they stay closed, even if the run continues as a new generation
    /// in the same poll, and payloads that were sent to them are not kept beyond the iteration.
    pub(super) fn settle_closed_tokens(&mut self) {
        let Some(tokens) = &mut self.tokens else { return };
        tokens.closing.values_mut().for_each(|closing| closing.is_closed = true);
        let is_held = |token: &Arc<str>| tokens.held.values().any(|held| held.token == *token);
        let closed = tokens.closing.values().map(|closing| &closing.token);
        let closed: Vec<_> = closed.filter(|token| !is_held(token)).cloned().collect();
        closed.iter().for_each(|token| self.discard_payloads_of(token));
    }

    /// From now on dropped handles keep their tokens. Those that were dropped since the last decisions were taken are held
    /// again, and their events removed.
    pub(super) fn keep_tokens(&mut self) {
        let Some(tokens) = &mut self.tokens else { return };
        tokens.is_continuing = true;
        let (explicit, dropped): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut tokens.closing).into_iter().partition(|(_, held)| held.is_closed);
        tokens.closing = explicit;
        let ops: Vec<_> = dropped.keys().copied().collect();
        tokens.held.extend(dropped);
        self.forget_dropped(|event| matches!(event, Event::TokenClosed { op } if ops.contains(op)));
    }

    /// The tokens that the run holds, for the next generation.
    pub(super) fn carried_tokens(&self) -> Vec<CarriedToken> {
        let held = self.tokens.iter().flat_map(|tokens| &tokens.held);
        let carried = held.map(|(op, held)| CarriedToken {
            op: *op,
            hook: held.name.clone(),
            token: held.token.clone(),
            keep_for: held.keep_for,
        });
        carried.collect()
    }
}

#[cfg(any(test, feature = "test-support"))]
impl super::Machine {
    /// The name of the hook that is open under a token.
    pub(crate) fn hook_of_token(&self, token: &str) -> Option<Arc<str>> {
        let table = self.state.table.lock();
        let mut held = table.tokens.as_ref()?.held.values();
        held.find(|held| &*held.token == token).map(|held| held.name.clone())
    }
}

impl RunState {
    /// Sets the public URL of the worker, which new webhooks record.
    pub(crate) fn set_public_url(&self, public_url: Option<&Arc<str>>) {
        if let Some(public_url) = public_url {
            let _ = self.public_url.set(public_url.clone());
        }
    }

    /// Requests a token for a hook. A generated one is recorded as a value first.
    #[track_caller]
    pub(crate) fn create_token(
        self: &Arc<Self>,
        name: &str,
        options: TokenOptions,
        is_shielded: bool,
    ) -> OpHandle {
        if self.is_outside_turn(|| format!("it opened hook `{name}`")) {
            return OpHandle::new(self.clone(), OUTSIDE_TURN);
        }
        let problem = hook_problem(self.workflow(), name).or_else(|| self.token_problem(&options));
        let TokenOptions { token, metadata, webhook, keep_for } = options;
        let is_generated = token.is_none();
        let (token, problem) = match token {
            Some(token) => (token, problem),
            None if problem.is_some() || self.is_refusing() && !is_shielded => (String::new(), problem),
            None => match self.record_built_in(GENERATED_TOKEN, new_token) {
                Ok(token) => (token, problem),
                Err(error) => (String::new(), Some(error.into_failure())),
            },
        };
        let metadata = metadata.map(|plain| plain.and_then(|plain| self.apply_codec(plain)));
        let mut webhook = webhook;
        if let Some(terms) =
            webhook.as_mut().filter(|_| problem.is_none() && (!self.is_refusing() || is_shielded))
        {
            // A value of its own, because the workflow may use it before the request is compared with the recorded one.
            let public_url = || self.public_url.get().map(|url| url.to_string());
            terms.public_url = self.record_built_in(PUBLIC_URL, public_url).unwrap_or_default();
        }
        let webhook = webhook.map(Arc::new);
        let (name, token) = (name.into(), token.into());
        let requested = TokenOp { name, token, is_generated, metadata, webhook, keep_for };
        let op = self.table.lock().create(OpKind::Token(Box::new(requested)), problem, is_shielded);
        OpHandle::new(self.clone(), op)
    }

    /// Why a token cannot be requested, if there is a reason.
    fn token_problem(&self, options: &TokenOptions) -> Option<Failure> {
        let invalid = |message: &str| Some(Failure::new(FailureKind::Invalid, message));
        if self.rules() < 2 {
            return invalid(
                "a run that an old build has started cannot open hooks with tokens; start it again",
            );
        }
        if let Some(token) = &options.token
            && let Err(problem) = check_name("token", token)
        {
            return invalid(&problem);
        }
        match options.token.as_deref() {
            Some("") => return invalid("the token is empty; give it at least one character"),
            Some(token) if token.len() > TOKEN_BYTES_MAX => {
                let message = format!("the token has {} bytes, the limit is {TOKEN_BYTES_MAX}", token.len());
                return Some(Failure::new(FailureKind::Limit, message));
            }
            Some(token) if options.webhook.is_some() && !is_url_segment(token) => {
                return invalid(
                    "the token of a webhook is a part of its URL; use letters, digits, `-`, `_`, `.` and `~`, and not \
                     only dots",
                );
            }
            _ => {}
        }
        if let Some(Ok(metadata)) = &options.metadata
            && metadata.bytes().len() > TOKEN_METADATA_BYTES_MAX
        {
            let bytes = metadata.bytes().len();
            let message =
                format!("the metadata of a token has {bytes} bytes, the limit is {TOKEN_METADATA_BYTES_MAX}");
            return Some(Failure::new(FailureKind::Limit, message));
        }
        let is_kept_too_long = options.keep_for.is_some_and(|keep_for| keep_for > TOKEN_KEPT_MAX);
        is_kept_too_long.then(|| {
            Failure::new(FailureKind::Limit, "a token can be kept for a year after it was closed, not longer")
        })
    }

    /// The metadata of a token as JSON.
    pub(crate) fn token_metadata<T: Serialize + ?Sized>(&self, value: &T) -> Result<Payload, Failure> {
        // Always encoded, also in a replay: whether it fails decides what the workflow sees next.
        self.to_json(value)
    }

    /// Closes the token of an operation: `is_closed` if the workflow said so, otherwise it has dropped the handle.
    fn close_token(&self, op: OpNumber, is_closed: bool) {
        let is_held =
            || self.table.lock().tokens.as_ref().is_some_and(|tokens| tokens.held.contains_key(&op));
        if self.is_handle_dropped_outside_turn(is_held, || format!("it closed the token of operation {op}")) {
            return;
        }
        let mut table = self.table.lock();
        if !table.is_closed {
            table.close_token(op, is_closed);
            wake_all(table);
        }
    }
}

/// A new generated token.
fn new_token() -> String {
    format!("{GENERATED_TOKEN_PREFIX}{}", ids::secret())
}

/// Whether a token is a segment of a path as it is, for every client and proxy.
fn is_url_segment(token: &str) -> bool {
    token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte))
        && token.bytes().any(|byte| byte != b'.')
}

/// The workflow's handle of a token that its run holds. Dropping it frees the token.
pub(crate) struct TokenHandle {
    pub(crate) state: Arc<RunState>,
    pub(crate) op: OpNumber,
    pub(crate) token: Arc<str>,
}

impl TokenHandle {
    /// Frees the token, also if the run continues as a new generation in the same poll.
    pub(crate) fn close(self) {
        self.state.close_token(self.op, true);
    }
}

impl Drop for TokenHandle {
    fn drop(&mut self) {
        self.state.close_token(self.op, false);
    }
}

impl std::fmt::Debug for TokenHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "token of operation {} of {}", self.op, self.state.run())
    }
}
