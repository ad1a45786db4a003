//! Compensations: steps that undo the effects of a run that does not complete.

use std::future::poll_fn;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::authoring::context::Context;
use crate::authoring::input::Input;
use crate::authoring::step::StepHandle;
use crate::error::Error;
use crate::replay::{NewCompensation, failed_compensation};

/// The input of a step that undoes another one: what that step got, and what it returned.
///
/// ```
/// # use outlast::prelude::*;
/// #[step]
/// async fn refund(undo: Undo<u64, String>) -> Result<(), StepError> {
///     match undo.output {
///         Some(payment) => println!("refund {payment}"),
///         None => println!("look for a payment of {} cents, and refund it if there is one", undo.input),
///     }
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// refund(Undo::new(4200, Some("payment 7".to_owned()))).await.unwrap();
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(
    serialize = "I: Serialize, O: Serialize",
    deserialize = "I: DeserializeOwned, O: DeserializeOwned"
))]
#[non_exhaustive]
pub struct Undo<I, O> {
    /// The input of the step that is undone.
    pub input: I,
    /// Its output. `None` if it failed, or if its outcome is not known: it may have had its effect nevertheless.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "write",
        deserialize_with = "present"
    )]
    pub output: Option<O>,
}

impl<I, O> Undo<I, O> {
    /// Creates the input of a compensation, for tests of its step.
    pub fn new(input: I, output: Option<O>) -> Self {
        Self { input, output }
    }
}

/// Writes the output itself: it may be `null`, which is not the same as no output.
fn write<S: Serializer, O: Serialize>(output: &Option<O>, serializer: S) -> Result<S::Ok, S::Error> {
    match output {
        Some(output) => output.serialize(serializer),
        None => serializer.serialize_none(),
    }
}

/// Reads a present field as an output, including `null`.
fn present<'de, D: Deserializer<'de>, O: DeserializeOwned>(deserializer: D) -> Result<Option<O>, D::Error> {
    O::deserialize(deserializer).map(Some)
}

impl Context {
    /// Registers a step that compensates for what the run has done or is about to do. It runs if the run does not
    /// complete; see [the rules](crate::StepOperation::undo).
    ///
    /// Use [`undo`](crate::StepOperation::undo) for a step that undoes one other step, and this for everything else: a
    /// child, several steps together, or something that is undone in another way.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn reserve(ctx: Context, items: Vec<u64>) -> Result<(), Error> { Ok(()) }
    /// # #[step] async fn release_stock(items: Vec<u64>) -> Result<(), StepError> { Ok(()) }
    /// # #[step] async fn charge(cents: u64) -> Result<(), StepError> { Ok(()) }
    /// #[workflow]
    /// async fn order(ctx: Context, items: Vec<u64>) -> Result<(), Error> {
    ///     ctx.compensate(release_stock, &items)?; // before it begins: it may be interrupted
    ///     ctx.child(reserve, &items).await?;
    ///     ctx.step(charge, 4200).await
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// `Limit` if the input is too large or the run has 10,000 compensations registered, `Invalid` if the input has no
    /// JSON form. The error is the same in every replay.
    pub fn compensate<H, M>(&self, step: H, input: impl Input<H::Input>) -> Result<(), Error>
    where
        H: StepHandle<M>,
    {
        let new = NewCompensation { step: step.name().into(), policy: step.policy() };
        input.with(|input| self.run_state().register_compensation(new, input, self.saga_scope()))
    }

    /// Settles the compensations that were registered so far: they do not run, however the run ends. Call it at the
    /// point of no return. In a [saga](Self::saga) it concerns only what was registered in the saga.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[step] async fn reserve(room: u64) -> Result<(), StepError> { Ok(()) }
    /// # #[step] async fn release(undo: Undo<u64, ()>) -> Result<(), StepError> { Ok(()) }
    /// # #[step] async fn send_confirmation(room: u64) -> Result<(), StepError> { Ok(()) }
    /// #[workflow]
    /// async fn book(ctx: Context, room: u64) -> Result<(), Error> {
    ///     ctx.step(reserve, room).undo(release).await?;
    ///     ctx.hook::<()>("paid").timeout("1h").await?;
    ///     ctx.keep(); // from here on the room is not released
    ///     ctx.step(send_confirmation, room).await
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// If it is called [outside the workflow's own code](Self#only-in-the-workflows-own-code).
    pub fn keep(&self) {
        self.run_state().keep(self.saga_scope());
    }

    /// Executes a part of the workflow that takes effect as a whole or not at all. If it returns an error, the
    /// compensations that were registered through its context run, the last registered first, and then the error is
    /// returned. The run can handle it and continue.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[step] async fn book_flight(to: String) -> Result<u64, StepError> { Ok(1) }
    /// # #[step] async fn cancel_flight(undo: Undo<String, u64>) -> Result<(), StepError> { Ok(()) }
    /// # #[step] async fn book_hotel(to: String) -> Result<u64, StepError> { Ok(2) }
    /// # #[step] async fn cancel_hotel(undo: Undo<String, u64>) -> Result<(), StepError> { Ok(()) }
    /// #[workflow]
    /// async fn travel(ctx: Context, places: Vec<String>) -> Result<String, Error> {
    ///     for to in places {
    ///         let booked = ctx.saga(async |ctx| {
    ///             ctx.step(book_flight, &to).undo(cancel_flight).await?;
    ///             ctx.step(book_hotel, &to).undo(cancel_hotel).await
    ///         });
    ///         if booked.await.is_ok() {
    ///             return Ok(to);
    ///         }
    ///     }
    ///     Err(Error::msg("everything is booked"))
    /// }
    /// ```
    ///
    /// Before the first compensation begins, the saga waits for steps that it has stopped waiting for: a step that was
    /// in progress when another branch failed is undone after it has ended. A cancel does not stop the compensations. A
    /// compensation that fails for good does not stop the others, and the error [lists
    /// it](Error::failed_compensations). If the saga succeeds, its compensations stay registered, for the saga around
    /// it or for the run.
    pub async fn saga<T>(&self, work: impl AsyncFnOnce(Self) -> Result<T, Error>) -> Result<T, Error> {
        let saga = self.run_state().begin_saga(self.saga_scope());
        let error = match work(self.in_saga(saga)).await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let state = self.run_state();
        poll_fn(|cx| state.poll_settled(saga, cx.waker())).await;
        let mut failed = Vec::new();
        while let Some((compensation, handle)) = state.compensate_next(saga) {
            if let Err(error) = poll_fn(|cx| handle.poll(cx)).await {
                failed.push(failed_compensation(&compensation, &error.into_failure()));
            }
        }
        Err(error.with_failed_compensations(failed))
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::Payload;

    use super::*;

    #[test]
    fn an_output_of_null_is_not_the_same_as_no_output() {
        let text =
            |undo: &Undo<u64, ()>| String::from_utf8(Payload::json(undo).unwrap().bytes().to_vec()).unwrap();
        for (undo, expected) in
            [(Undo::new(1, None), r#"{"input":1}"#), (Undo::new(1, Some(())), r#"{"input":1,"output":null}"#)]
        {
            assert_eq!(text(&undo), expected);
            assert_eq!(serde_json::from_str::<Undo<u64, ()>>(expected).unwrap(), undo);
        }
    }
}
