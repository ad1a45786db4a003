//! The values that are accepted as inputs.

use std::sync::Arc;

/// A value that is accepted as the input of a step or workflow whose input type is `T`.
///
/// Accepted are a `T`, a reference, `Box` or `Arc` of one, a `&str` for a `String`, and a slice for a `Vec`. If the
/// function has several parameters, the input is a tuple. Its elements may be values, references, or `&str` for
/// `String` in any combination, for up to four elements; with five or six, all elements are values or all are
/// references.
///
/// ```
/// # use outlast::prelude::*;
/// #[step]
/// async fn greet(name: String) -> Result<String, StepError> {
///     Ok(format!("hello {name}"))
/// }
///
/// #[step]
/// async fn pay(account: String, cents: u64) -> Result<(), StepError> {
///     Ok(())
/// }
///
/// #[workflow]
/// async fn visit(ctx: Context, name: String) -> Result<(), Error> {
///     ctx.step(greet, &name).await?;
///     ctx.step(greet, "ada").await?;
///     ctx.step(pay, (&name, 100)).await?;
///     ctx.step(pay, ("ada", 100)).await
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let world = outlast::open("memory:").await?;
/// # let worker = Worker::builder(world.clone()).register((visit, greet, pay)).start().await?;
/// # Client::new(world).start(visit, "bob").await?.output().await?;
/// # worker.stop().await
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "the input is a `{T}`, not a `{Self}`",
    label = "give a `{T}` or a `&{T}`",
    note = "several arguments are one input, a tuple; no argument is `()`"
)]
pub trait Input<T> {
    /// Calls a function with the input.
    fn with<R>(&self, use_input: impl FnOnce(&T) -> R) -> R;
}

impl<T> Input<T> for T {
    fn with<R>(&self, use_input: impl FnOnce(&T) -> R) -> R {
        use_input(self)
    }
}

impl<T> Input<T> for &T {
    fn with<R>(&self, use_input: impl FnOnce(&T) -> R) -> R {
        use_input(self)
    }
}

impl<T> Input<T> for &mut T {
    fn with<R>(&self, use_input: impl FnOnce(&T) -> R) -> R {
        use_input(self)
    }
}

impl<T> Input<T> for Box<T> {
    fn with<R>(&self, use_input: impl FnOnce(&T) -> R) -> R {
        use_input(self)
    }
}

impl<T> Input<T> for Arc<T> {
    fn with<R>(&self, use_input: impl FnOnce(&T) -> R) -> R {
        use_input(self)
    }
}

impl Input<String> for &str {
    fn with<R>(&self, use_input: impl FnOnce(&String) -> R) -> R {
        use_input(&(*self).to_owned())
    }
}

impl<T: Clone> Input<Vec<T>> for &[T] {
    fn with<R>(&self, use_input: impl FnOnce(&Vec<T>) -> R) -> R {
        use_input(&self.to_vec())
    }
}

/// One element of a tuple: an owned value, a reference to one, or a `&str` for a `String`.
trait Element<T> {
    fn owned(&self) -> T;
}

impl<T: Clone> Element<T> for T {
    fn owned(&self) -> T {
        self.clone()
    }
}

impl<T: Clone> Element<T> for &T {
    fn owned(&self) -> T {
        (*self).clone()
    }
}

impl Element<String> for &str {
    fn owned(&self) -> String {
        (*self).to_owned()
    }
}

/// Implements [`Input`] for tuples whose elements are each owned, a reference or a `&str`: every combination except the
/// tuple that is the input itself, which is accepted as any other type.
macro_rules! tuples {
    ($(($($name:ident $place:tt),+)),+ $(,)?) => {
        $(tuples!(@choose owned [] [] ($($name $place),+));)+
    };
    (@choose $kind:ident [$($generic:ident)*] [$($chosen:tt)*] ($name:ident $place:tt $(, $($rest:tt)*)?)) => {
        tuples!(@choose $kind [$($generic)* $name] [$($chosen)* ($name, $name, $place)] ($($($rest)*)?));
        tuples!(@choose mixed [$($generic)* $name] [$($chosen)* ($name, &$name, $place)] ($($($rest)*)?));
        tuples!(@choose mixed [$($generic)*] [$($chosen)* (String, &str, $place)] ($($($rest)*)?));
    };
    (@choose owned $generics:tt $chosen:tt ()) => {};
    (@choose mixed [$($generic:ident)*] [$(($wanted:ty, $given:ty, $place:tt))*] ()) => {
        impl<$($generic: Clone),*> Input<($($wanted,)*)> for ($($given,)*) {
            fn with<R>(&self, use_input: impl FnOnce(&($($wanted,)*)) -> R) -> R {
                use_input(&($(Element::<$wanted>::owned(&self.$place),)*))
            }
        }
    };
}

tuples! {
    (A 0, B 1),
    (A 0, B 1, C 2),
    (A 0, B 1, C 2, D 3),
}

/// Implements [`Input`] for longer tuples, of references only.
macro_rules! tuples_of_references {
    ($(($($name:ident $place:tt),+)),+ $(,)?) => {$(
        impl<$($name: Clone),+> Input<($($name,)+)> for ($(&$name,)+) {
            fn with<R>(&self, use_input: impl FnOnce(&($($name,)+)) -> R) -> R {
                use_input(&($(self.$place.clone(),)+))
            }
        }
    )+};
}

tuples_of_references! {
    (A 0, B 1, C 2, D 3, E 4),
    (A 0, B 1, C 2, D 3, E 4, F 5),
}
