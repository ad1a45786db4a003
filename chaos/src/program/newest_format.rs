//! Parts of a transfer that need the newest durable format: builds that cannot read it must never be given the run
//! from then on.
//!
//! Old builds have the code of transfers as well, so their code does not protect them, only the format of the run.

use outlast::core::event::TurnRecord;
use outlast::core::format::{FIRST_FORMAT, format_of_events};
use outlast::prelude::*;

use super::transfer::{Transfer, TransferKind, notice};

/// One of this many transfers that need no approval uses the newest format.
const EVERY: u64 = 2;

/// The hook whose token a transfer takes and gives back.
const RECEIPT: Hook<u64> = Hook::new("receipt");

/// Whether a transfer uses the newest format. One that waits for an approval does not: the client tells from its counters
/// of messages whether it was answered.
pub(crate) fn is_used_by(order: &Transfer) -> bool {
    let needs_approval =
        matches!(order.kind, TransferKind::Approved | TransferKind::Refused | TransferKind::Cancelled);
    !needs_approval && order.id.is_multiple_of(EVERY)
}

/// Uses a stream, a published state, a compensation that is settled, a token and a loop. Runs that an older build has begun
/// do not: that is what `patched` is for.
pub(crate) async fn use_it(ctx: &Context, order: &Transfer) -> Result<(), Error> {
    if !is_used_by(order) || !ctx.patched("newest-format") {
        return Ok(());
    }
    ctx.compensate(notice, order.from)?;
    ctx.keep();
    ctx.stream("log").write(&order.id);
    ctx.publish(&order.cents);
    let receipts = ctx.open_hook(RECEIPT).token(format!("receipt-{}", order.id)).await?;
    receipts.close();
    let account = order.from;
    ctx.iterate("notices", 0, async |ctx, sent: u32| {
        ctx.step(notice, account).await?;
        Ok(if sent == 0 { Next::Again(1) } else { Next::Done(()) })
    })
    .await
}

/// The format that a reader of these turns needs.
pub(crate) fn format_of(turns: &[TurnRecord]) -> u32 {
    turns.iter().map(|turn| format_of_events(&turn.events)).max().unwrap_or(FIRST_FORMAT)
}
