//! Workflows of the demonstration: each shows something that the shop itself does not have.

use outlast::prelude::*;
use serde::{Deserialize, Serialize};

use crate::workflows::{mail, take};

/// The rows of a page of the catalogue.
const PAGE_ROWS: u32 = 499;

#[step]
async fn fetch_page(page: u32) -> Result<u32, StepError> {
    take(30, 90).await;
    Ok(page * PAGE_ROWS)
}

#[step(attempts = 3, initial = "50ms")]
async fn store_row(cx: StepContext, row: u32) -> Result<(), StepError> {
    take(1, 40).await;
    if row % 997 == 5 && cx.attempt() == 1 {
        return Err(StepError::msg("the row is locked").class(ErrorClass::Server));
    }
    if row == 4_711 {
        return Err(StepError::fatal("row 4711 has no price").with_code("no_price"));
    }
    Ok(())
}

/// An import with 500 operations for each page.
#[workflow]
pub(super) async fn catalogue(ctx: Context, pages: u32) -> Result<u32, Error> {
    let mut skipped = 0;
    for page in 0..pages {
        let first = ctx.step(fetch_page, page).await?;
        let rows = (first..first + PAGE_ROWS).map(|row| ctx.step(store_row, row));
        skipped += join_all(rows.collect::<Vec<_>>()).await.into_iter().filter(Result::is_err).count() as u32;
    }
    Ok(skipped)
}

#[step]
async fn print_label(parcel: u32) -> Result<String, StepError> {
    take(60, 200).await;
    Ok(format!("label-{parcel}"))
}

#[workflow]
pub(super) async fn label(ctx: Context, parcel: u32) -> Result<String, Error> {
    ctx.step(print_label, parcel).await
}

#[workflow]
pub(super) async fn parcel(ctx: Context, number: u32) -> Result<Vec<String>, Error> {
    ctx.step(mail, ("warehouse".to_owned(), format!("Pack parcel {number}"))).await?;
    try_join_all((0..2).map(|part| ctx.child(label, number * 10 + part)).collect::<Vec<_>>()).await
}

/// A tree of three levels.
#[workflow]
pub(super) async fn fulfilment(ctx: Context, parcels: u32) -> Result<usize, Error> {
    ctx.step(mail, ("warehouse".to_owned(), format!("{parcels} parcels"))).await?;
    let labels =
        try_join_all((1..=parcels).map(|number| ctx.child(parcel, number)).collect::<Vec<_>>()).await?;
    Ok(labels.len())
}

/// A booking of the trip.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Booking {
    pub(super) place: String,
    pub(super) can_be_undone: bool,
}

#[step]
async fn book_flight(booking: Booking) -> Result<String, StepError> {
    take(150, 350).await;
    Ok(format!("flight to {}", booking.place))
}

#[step]
async fn cancel_flight(undo: Undo<Booking, String>) -> Result<(), StepError> {
    take(100, 250).await;
    let _ = undo;
    Ok(())
}

#[step]
async fn book_hotel(booking: Booking) -> Result<String, StepError> {
    take(150, 350).await;
    Ok(format!("hotel in {}", booking.place))
}

#[step(attempts = 50, initial = "2h")]
async fn cancel_hotel(undo: Undo<Booking, String>) -> Result<(), StepError> {
    take(100, 250).await;
    match undo.input.can_be_undone {
        true => Ok(()),
        false => Err(StepError::msg("the hotel does not answer").class(ErrorClass::Network)),
    }
}

#[step(attempts = 3, initial = "400ms")]
async fn pay_trip(place: String) -> Result<(), StepError> {
    tracing::info!(place, "asking the bank");
    take(200, 400).await;
    tracing::warn!("the bank has not answered in time");
    Err(StepError::msg(format!("the bank has no answer for the trip to {place}")).with_code("bank_timeout"))
}

/// A saga: what was booked is cancelled, because the payment fails three times.
#[workflow]
pub(super) async fn trip(ctx: Context, booking: Booking) -> Result<(), Error> {
    ctx.tag("place", &booking.place)?;
    ctx.step(book_flight, &booking).undo(cancel_flight).await?;
    ctx.step(book_hotel, &booking).undo(cancel_hotel).await?;
    ctx.step(pay_trip, booking.place).await
}

#[step]
async fn read_meter(hour: u32) -> Result<u32, StepError> {
    take(40, 120).await;
    Ok(hour * 7 % 23)
}

/// What a loop knows.
#[derive(Default, Serialize, Deserialize)]
struct Readings {
    count: u32,
    sum: u32,
}

/// A loop whose past a replay skips.
#[workflow]
pub(super) async fn metering(ctx: Context, limit: u32) -> Result<u32, Error> {
    ctx.iterate("readings", Readings::default(), async |ctx, mut readings| {
        readings.sum += ctx.step(read_meter, readings.count).await?;
        readings.count += 1;
        ctx.tag("readings", readings.count.to_string())?;
        ctx.sleep("6h").await?;
        Ok(if readings.count < limit { Next::Again(readings) } else { Next::Done(readings.sum) })
    })
    .await
}

/// A subscription: each period is a generation.
#[workflow]
pub(super) async fn subscription(ctx: Context, period: u32) -> Result<u32, Error> {
    ctx.tag("period", period.to_string())?;
    ctx.step(mail, ("ada".to_owned(), format!("Invoice for period {period}"))).await?;
    ctx.sleep("1d").await?;
    ctx.continue_as(&(period + 1))
}

/// What a schedule starts. Every fifth report fails.
#[workflow]
pub(super) async fn report(ctx: Context, name: String) -> Result<String, Error> {
    let day = ctx.step(read_meter, name.len() as u32).await?;
    ctx.step(mail, ("finance".to_owned(), format!("Report {name}, {day} pages"))).await?;
    match ctx.random() % 5 {
        0 => Err(Error::msg(format!("the printer has no paper for {name}"))),
        _ => Ok(format!("{name}: {day} pages")),
    }
}

#[step(queue = "render")]
async fn render(picture: String) -> Result<String, StepError> {
    take(300, 700).await;
    Ok(format!("{picture}.webp"))
}

/// A step in a queue of its own, beside a decision of a person.
#[workflow]
pub(super) async fn gallery(ctx: Context, picture: String) -> Result<String, Error> {
    let small = ctx.step(render, &picture).await?;
    let caption = ctx.hook::<String>("caption").timeout("30d").await?;
    Ok(format!("{small}: {caption}"))
}

#[step(attempts = 100, initial = "1h")]
async fn close_account(customer: String) -> Result<(), StepError> {
    take(100, 200).await;
    Err(StepError::msg(format!("the account of {customer} is locked by an audit")))
}

/// A run that cleans up after it was cancelled.
#[workflow]
pub(super) async fn offboarding(ctx: Context, customer: String) -> Result<(), Error> {
    let confirmed = ctx.hook::<bool>("confirmed").timeout("30d").await;
    ctx.shielded().step(close_account, customer).await?;
    confirmed.map(drop)
}

#[step(timeout = "2h")]
async fn copy_volume(volume: String) -> Result<(), StepError> {
    take(3_600_000, 3_600_000).await;
    let _ = volume;
    Ok(())
}

/// A step that is in progress for an hour.
#[workflow]
pub(super) async fn backup(ctx: Context, volume: String) -> Result<(), Error> {
    ctx.step(copy_volume, volume).await
}

#[step(name = "<img src=x onerror=alert(1)> & \"quotes\"")]
async fn hostile_step(text: String) -> Result<String, StepError> {
    Ok(text)
}

/// Names and values that a page must show as they are, and never execute.
#[workflow(name = "</svg><script>alert(1)</script>")]
pub(super) async fn hostile(ctx: Context, text: String) -> Result<(), Error> {
    ctx.tag("javascript:alert(1)", "\u{202e}gnp.exe 🦀 {{7*7}}")?;
    ctx.step(hostile_step, text).await?;
    let name = "'; DROP TABLE runs; --";
    ctx.hook::<()>(name).timeout("1s").await.ok();
    Err(Error::msg("<b>bold</b>\u{1b}]0;title\u{7} __proto__ \u{202e}desrever"))
}

/// Everything that a worker of the demonstration registers beside the shop.
pub(super) fn register(worker: outlast::WorkerBuilder<()>) -> outlast::WorkerBuilder<()> {
    worker
        .register((catalogue, label, parcel, fulfilment, trip, metering, subscription, gallery))
        .register((offboarding, backup, hostile, report))
        .register((fetch_page, store_row, print_label, book_flight, cancel_flight, book_hotel, cancel_hotel))
        .register((pay_trip, read_meter, render, close_account, copy_volume, hostile_step))
        .queues(["default", "render"])
}
