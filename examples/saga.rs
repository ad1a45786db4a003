//! A saga: a journey that is booked as a whole or not at all. What was booked is cancelled in reverse order, also when a
//! booking was still in progress, and also when the run is cancelled.

use outlast::prelude::*;

type Booking = (String, String);

/// Books one part of a journey. There are no hotels in Atlantis, and the train to Oslo takes its time.
#[step]
async fn book(part: String, to: String) -> Result<String, StepError> {
    if part == "hotel" && to == "Atlantis" {
        return Err(StepError::fatal(format!("there is no hotel in {to}")));
    }
    if part == "train" {
        take_time().await;
    }
    println!("    booked     {part} to {to}");
    Ok(format!("{part}-{to}"))
}

/// What a real reservation needs of the network.
#[allow(clippy::disallowed_methods, reason = "a reservation takes real time")]
async fn take_time() {
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
}

/// Cancels one part. The input and output of the step that it undoes tell which.
#[step]
async fn cancel(undo: Undo<Booking, String>) -> Result<(), StepError> {
    let (part, to) = &undo.input;
    match &undo.output {
        Some(booking) => println!("    cancelled  {booking}"),
        None => println!("    cancelled  {part} to {to}, if it was booked"),
    }
    Ok(())
}

#[step]
async fn send_tickets(to: String) -> Result<(), StepError> {
    println!("    tickets    to {to}");
    Ok(())
}

/// Tries one place after the other. A journey that cannot be booked completely is undone before the next is tried.
#[workflow]
async fn travel(ctx: Context, places: Vec<String>) -> Result<String, Error> {
    for to in places {
        let part = |part: &str| (part.to_owned(), to.clone());
        let booked = ctx.saga(async |ctx| {
            ctx.step(book, part("flight")).undo(cancel).await?;
            // Both at the same time: the train is still being booked when the hotel fails.
            let train = ctx.step(book, part("train")).undo(cancel);
            let hotel = ctx.step(book, part("hotel")).undo(cancel);
            try_join!(train, hotel)
        });
        match booked.await {
            Ok(_) => {
                // Not paid in time, or cancelled: the run does not complete, and everything is cancelled.
                ctx.hook::<()>("paid").timeout("1d").await?;
                ctx.keep(); // from here on the journey takes place
                ctx.step(send_tickets, &to).await?;
                return Ok(to);
            }
            Err(error) => println!("    failed     {error}"),
        }
    }
    Err(Error::msg("nowhere to go"))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let world = outlast::open("memory:").await?;
    let worker =
        Worker::builder(world.clone()).register((travel, book, cancel, send_tickets)).start().await?;
    let client = Client::new(world);

    println!("1. The first place is undone, the second is booked and paid for.");
    let run = client.start(travel, ["Atlantis", "Oslo"].map(str::to_owned).to_vec()).await?;
    run.send("paid", &()).await?;
    println!("    output     {}", run.output().await?);

    println!("2. The customer changes his mind before he pays.");
    let run = client.start(travel, vec!["Rome".to_owned()]).await?;
    while !run.view().await?.waits.iter().any(|wait| wait.is_for_hook("paid")) {
        tokio::task::yield_now().await;
    }
    run.cancel("the customer stays at home").await?;
    if let Err(error) = run.output().await {
        println!("    error      {error}");
    }
    let view = run.view().await?;
    println!("    status     {}, {}", view.status, view.marks);
    worker.stop().await
}
