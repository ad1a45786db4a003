//! Parts of a transfer that need the newest durable format: builds that cannot read it must never be given the run
//! from then on.
//!
//! Old builds have the code of transfers as well, so their code does not protect them, only the format of the run.

use outlast::core::event::TurnRecord;
use outlast::core::format::{FIRST_FORMAT, format_of_events};
use outlast::prelude::*;

use super::transfer::{Transfer, TransferKind, notice, retract_notice};

/// One of this many transfers that need no approval uses the newest format.
const EVERY: u64 = 2;

/// One of this many of these continues as a new generation before it transfers.
const CONTINUED_EVERY: u64 = 4;

/// The patch without which a run uses nothing of this.
const PATCH: &str = "newest-format";

/// The hook whose token a transfer takes and gives back.
const RECEIPT: Hook<u64> = Hook::new("receipt");

/// The hook at which a transfer asks itself.
const BALANCE: Hook<u64, i64> = Hook::new("balance");

/// Whether a transfer uses the newest format. One that waits for an approval does not: the client tells from its counters
/// of messages whether it was answered.
pub(crate) fn is_used_by(order: &Transfer) -> bool {
    let needs_approval =
        matches!(order.kind, TransferKind::Approved | TransferKind::Refused | TransferKind::Cancelled);
    !needs_approval && order.id.is_multiple_of(EVERY)
}

/// Whether a transfer continues as a new generation now.
pub(crate) fn continues(ctx: &Context, order: &Transfer) -> bool {
    let is_chosen = is_used_by(order) && order.id.is_multiple_of(CONTINUED_EVERY);
    is_chosen && ctx.generation() == 1 && ctx.patched(PATCH)
}

/// Uses a stream, a published state, a compensation that is settled, a saga that compensates, a token, a message with a
/// reply, and a loop. Runs that an older build has begun do not: that is what `patched` is for.
pub(crate) async fn use_it(ctx: &Context, order: &Transfer) -> Result<(), Error> {
    if !is_used_by(order) || ctx.generation() > 1 || !ctx.patched(PATCH) {
        return Ok(());
    }
    ctx.compensate(notice, order.from)?;
    ctx.keep();
    ctx.stream("log").write(&order.id);
    ctx.publish(&order.cents);
    let receipts = ctx.open_hook(RECEIPT).token(format!("receipt-{}", order.id)).await?;
    receipts.close();
    let account = order.from;
    let refused = ctx.saga(async |ctx| {
        ctx.step(notice, account).undo(retract_notice).await?;
        Err::<(), _>(Error::msg("the recipient has withdrawn"))
    });
    assert!(refused.await.is_err());
    let answer = async {
        let asked = ctx.hook(BALANCE).received().await?;
        BALANCE.reply(&asked, &order.cents)
    };
    let (cents, ()) = try_join!(ctx.ask(ctx.run(), BALANCE, &order.id).timeout("1h"), answer)?;
    assert_eq!(cents, order.cents);
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
