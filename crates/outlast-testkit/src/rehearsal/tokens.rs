//! Tokens and replies in a rehearsal.

use outlast::{AskFor, HookFor};
use outlast_core::{Headers, HookAddress, Reply};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Rehearsal, payload};

impl<O: DeserializeOwned> Rehearsal<O> {
    /// Sends a payload to a token that the workflow has opened. There are no other runs, so every token that it requests
    /// is free.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use outlast_testkit::Rehearsal;
    /// #[workflow]
    /// async fn approve(ctx: Context) -> Result<bool, Error> {
    ///     let approvals = ctx.open_hook::<bool>("approval").token("order-42").await?;
    ///     approvals.next().await
    /// }
    ///
    /// let mut run = Rehearsal::of(approve, ());
    /// run.receives_at_token("order-42", &true);
    /// assert!(run.output().unwrap());
    /// ```
    #[track_caller]
    pub fn receives_at_token<T: Serialize + ?Sized>(&mut self, token: &str, value: &T) {
        self.require_running(&format!("token `{token}` cannot receive anything"));
        let Some(hook) = self.run.hook_of_token(token) else {
            self.fail(&format!("it does not hold token `{token}`"))
        };
        let to = HookAddress { token: Some(token.into()), wants_reply: false };
        let result = self.run.receive_at(&hook, to, payload(value), Headers::new());
        self.check(result.map(drop));
    }

    /// Sends a payload to a hook whose sender waits for a reply, and returns the reply of the workflow; `None` if it has
    /// not replied yet, or has dropped the message.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use outlast_testkit::Rehearsal;
    /// const QUOTE: Hook<u32, String> = Hook::new("quote");
    ///
    /// #[workflow]
    /// async fn shop(ctx: Context) -> Result<(), Error> {
    ///     let message = ctx.hook(QUOTE).received().await?;
    ///     message.reply(&format!("{} euros", message.payload))
    /// }
    ///
    /// let mut run = Rehearsal::of(shop, ());
    /// assert_eq!(run.is_asked(QUOTE, &7).as_deref(), Some("7 euros"));
    /// ```
    #[track_caller]
    pub fn is_asked<T, H>(&mut self, hook: H, value: &T) -> Option<H::Reply>
    where
        T: Serialize + ?Sized,
        H: AskFor<T>,
    {
        let hook = HookFor::hook_name(&hook).to_owned();
        self.require_running(&format!("hook `{hook}` cannot receive anything"));
        let to = HookAddress { token: None, wants_reply: true };
        let message = match self.run.receive_at(&hook, to, payload(value), Headers::new()) {
            Ok(message) => message,
            Err(stuck) => {
                self.check(Err(stuck));
                return None;
            }
        };
        match self.run.reply(message)? {
            Reply::Answered(reply) => match reply.decode() {
                Ok(reply) => Some(reply),
                Err(error) => self.fail(&format!("its reply has another type: {error}")),
            },
            _ => None,
        }
    }
}
