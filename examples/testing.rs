//! A program and its tests: a step called as a function, a workflow in a rehearsal, and the program in a test world.
//!
//! `cargo run --example testing` runs the program, `cargo test --example testing` its tests.

use outlast::prelude::*;

/// The state of the worker, which steps can access and workflows cannot.
struct Library;

#[step(attempts = 3)]
async fn lend(cx: StepContext<Library>, book: String) -> Result<u32, StepError> {
    let Library = cx.state();
    match book.as_str() {
        "" => Err(StepError::fatal("a book needs a title")),
        _ => Ok(7),
    }
}

#[step]
async fn remind(card: u32) {
    println!("card {card}: please return the book");
}

/// Lends a book, and sends a reminder every week until it is returned.
#[workflow]
async fn loan(ctx: Context, book: String, week: String) -> Result<u32, Error> {
    let card = ctx.step(lend, &book).await?;
    let mut reminders = 0;
    while let Err(error) = ctx.hook::<()>("returned").timeout(&week).await {
        if !error.is_timeout() {
            return Err(error);
        }
        ctx.step(remind, card).await?;
        reminders += 1;
    }
    Ok(reminders)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let world = outlast::open("memory:").await?;
    let worker = Worker::builder(world.clone()).state(Library).register((loan, lend, remind)).start().await?;
    let run = Client::new(world).start(loan, ("Moby-Dick".to_owned(), "100ms".to_owned())).await?;
    run.send("returned", &()).await?;
    println!("returned after {} reminders", run.output().await?);
    worker.stop().await
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use outlast_testkit::{Rehearsal, TestWorld};

    use super::*;

    fn input() -> (String, String) {
        ("Moby-Dick".to_owned(), "7d".to_owned())
    }

    #[tokio::test]
    async fn a_book_without_a_title_is_not_lent() {
        let error = lend(StepContext::test(Library), String::new()).await.unwrap_err();
        assert!(error.is_fatal());
    }

    #[test]
    fn a_reader_is_reminded_every_week() {
        let mut run = Rehearsal::of(loan, input());
        run.asks_for(lend, "Moby-Dick".to_owned());
        run.completes(lend, 7);
        for _ in 0..3 {
            run.waits_for_hook("returned");
            run.advances("7d");
            run.completes(remind, ());
        }
        run.receives("returned", &());
        assert_eq!(run.output().unwrap(), 3);
    }

    #[tokio::test]
    async fn a_year_passes_in_a_moment() {
        let world = TestWorld::builder()
            .register((loan, remind))
            .mock(lend, |book| if book == "Moby-Dick" { Ok(7) } else { Err(StepError::fatal("not here")) })
            .start()
            .await;
        let run = world.client().start(loan, input()).await.unwrap();
        world.advance("365d").await;
        run.send("returned", &()).await.unwrap();
        assert_eq!(world.run_until_done(&run).await.unwrap(), 52);
    }
}
