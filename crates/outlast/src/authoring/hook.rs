//! The names of hooks: text, or a constant with the type of the payload.

use std::fmt;
use std::marker::PhantomData;

use outlast_core::limits::NAME_BYTES_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::authoring::operation::Received;
use crate::error::Error;

/// A handle to a hook: its name together with the type of its payload.
///
/// It is a constant that the workflow and its senders share, for example in a [contract](crate::Workflow). A payload of
/// another type does not compile.
///
/// ```
/// use outlast::prelude::*;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Decision {
///     approved: bool,
/// }
///
/// const REVIEW: Hook<Decision> = Hook::new("review");
///
/// #[workflow]
/// async fn publish(ctx: Context) -> Result<bool, Error> {
///     let decision = ctx.hook(REVIEW).timeout("3d").await?;
///     Ok(decision.approved)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let world = outlast::open("memory:").await?;
/// # let worker = Worker::builder(world.clone()).register(publish).start().await?;
/// # let client = Client::new(world);
/// let run = client.start(publish, ()).await?;
/// run.send(REVIEW, &Decision { approved: true }).await?;
/// assert!(run.output().await?);
/// # worker.stop().await
/// # }
/// ```
///
/// A `Hook<String>` also accepts a `str`, and a `Hook<Vec<T>>` a slice. The type is not stored: like a text name, a
/// handle promises what the sender sends, and the run decides when the payload arrives.
///
/// A `Hook<T, R>` also has the type of the reply for which [`Client::ask`](crate::Client::ask) waits.
pub struct Hook<T, R = ()> {
    name: &'static str,
    payload: PhantomData<fn(T) -> T>,
    reply: PhantomData<fn(R) -> R>,
}

impl<T, R> Hook<T, R> {
    /// Creates a handle to the hook with this name.
    ///
    /// # Panics
    ///
    /// If the name is empty or longer than 128 bytes. An invalid name of a constant does not compile.
    #[track_caller]
    pub const fn new(name: &'static str) -> Self {
        assert!(!name.is_empty() && name.len() <= NAME_BYTES_MAX, "the name of a hook has 1 to 128 bytes");
        Self { name, payload: PhantomData, reply: PhantomData }
    }

    /// Returns the name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Replies to a message of this hook with a value of the hook's type; see [`Received::reply`].
    ///
    /// # Errors
    ///
    /// As [`Received::reply`].
    pub fn reply(&self, message: &Received<T>, reply: &R) -> Result<(), Error>
    where
        R: Serialize,
    {
        message.reply(reply)
    }
}

impl<T, R> Clone for Hook<T, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, R> Copy for Hook<T, R> {}

impl<T, R> fmt::Debug for Hook<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hook({})", self.name)
    }
}

impl<T, R> AsRef<str> for Hook<T, R> {
    fn as_ref(&self) -> &str {
        self.name
    }
}

/// The name of a hook whose payload is read as a `T`, as accepted by [`Context::hook`](crate::Context::hook): text, or
/// a [`Hook`] constant, which determines `T`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the name of a hook with a payload of type `{T}`",
    label = "expected text or a `Hook<{T}>`"
)]
pub trait HookName<T> {
    /// Returns the name.
    fn hook_name(&self) -> &str;
}

impl<T, R> HookName<T> for Hook<T, R> {
    fn hook_name(&self) -> &str {
        self.name
    }
}

/// A hook to which a payload of type `T` can be sent, as accepted by [`Client::send`](crate::Client::send): text, for
/// every type, or a [`Hook`] constant, for the type that it names.
#[diagnostic::on_unimplemented(
    message = "a `{T}` cannot be sent to a `{Self}`",
    label = "the hook has another type of payload",
    note = "send a reference to a value of the type that the `Hook` constant names"
)]
pub trait HookFor<T: ?Sized> {
    /// Returns the name.
    fn hook_name(&self) -> &str;
}

impl<T, R> HookFor<T> for Hook<T, R> {
    fn hook_name(&self) -> &str {
        self.name
    }
}

impl<R> HookFor<str> for Hook<String, R> {
    fn hook_name(&self) -> &str {
        self.name
    }
}

impl<T, R> HookFor<[T]> for Hook<Vec<T>, R> {
    fn hook_name(&self) -> &str {
        self.name
    }
}

/// A hook that can be asked with a payload of type `T`, as accepted by [`Client::ask`](crate::Client::ask): text, whose
/// reply is JSON, or a [`Hook`] constant, which names the type of the reply.
#[diagnostic::on_unimplemented(
    message = "a `{T}` cannot be sent to a `{Self}`",
    label = "the hook has another type of payload",
    note = "send a reference to a value of the type that the `Hook` constant names"
)]
pub trait AskFor<T: ?Sized>: HookFor<T> {
    /// The type of the reply.
    type Reply: DeserializeOwned + Send;
}

impl<T, R: DeserializeOwned + Send> AskFor<T> for Hook<T, R> {
    type Reply = R;
}

impl<R: DeserializeOwned + Send> AskFor<str> for Hook<String, R> {
    type Reply = R;
}

impl<T: ?Sized, H: AskFor<T> + ?Sized> AskFor<T> for &H {
    type Reply = H::Reply;
}

macro_rules! text_names {
    ($($text:ty),*) => {$(
        #[diagnostic::do_not_recommend]
        impl<T> HookName<T> for $text {
            fn hook_name(&self) -> &str {
                self
            }
        }

        #[diagnostic::do_not_recommend]
        impl<T: ?Sized> HookFor<T> for $text {
            fn hook_name(&self) -> &str {
                self
            }
        }

        #[diagnostic::do_not_recommend]
        impl<T: ?Sized> AskFor<T> for $text {
            type Reply = serde_json::Value;
        }
    )*};
}
text_names! { str, String }

#[diagnostic::do_not_recommend]
impl<T, H: HookName<T> + ?Sized> HookName<T> for &H {
    fn hook_name(&self) -> &str {
        (**self).hook_name()
    }
}

#[diagnostic::do_not_recommend]
impl<T: ?Sized, H: HookFor<T> + ?Sized> HookFor<T> for &H {
    fn hook_name(&self) -> &str {
        (**self).hook_name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_for<T: ?Sized>(hook: impl HookFor<T>, _payload: &T) -> String {
        hook.hook_name().to_owned()
    }

    fn name_of<T>(hook: impl HookName<T>) -> String {
        hook.hook_name().to_owned()
    }

    #[test]
    fn text_is_a_name_for_every_type_and_a_constant_for_its_own() {
        const NOTE: Hook<String> = Hook::new("note");
        const ITEMS: Hook<Vec<u8>> = Hook::new("items");
        assert_eq!(name_for(NOTE, "text"), "note");
        assert_eq!(name_for(NOTE, &"text".to_owned()), "note");
        assert_eq!(name_for(ITEMS, &[1, 2][..]), "items");
        assert_eq!(name_for(ITEMS, &vec![1]), "items");
        assert_eq!(name_for("any", &1), "any");
        assert_eq!(name_for(format!("any-{}", 1), "text"), "any-1");
        assert_eq!(name_of(NOTE), "note");
        assert_eq!(name_of::<u8>(&"rating"), "rating");
    }

    #[test]
    fn a_handle_is_shown_by_its_name() {
        assert_eq!(format!("{:?}", Hook::<u8>::new("rating")), "Hook(rating)");
    }
}
