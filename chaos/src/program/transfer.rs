//! The workload: transfers between accounts, alone and in batches.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{SystemClock, WorkerBuilder, World};
use serde::{Deserialize, Serialize};

use super::bank::{ACCOUNTS, BankRequest, CLOSED, Leg};
use super::newest_format;
use super::workdir::{AttemptNote, LogFiles};

/// The hook at which a transfer is approved.
pub(crate) const APPROVAL: &str = "approval";

/// The maximum number of runs that a worker holds: few, so that all workers get some.
const LIVE_RUNS: usize = 16;

/// The duration of the step `notice`.
const NOTICE: Duration = Duration::from_millis(3);

/// A transfer of money.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) id: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) cents: i64,
    #[serde(rename = "manner")]
    pub(crate) kind: TransferKind,
}

/// The kind of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TransferKind {
    Plain,
    /// It sleeps between its steps.
    Slow,
    /// The first attempt at each step fails, before or after its effect.
    Flaky,
    /// It is approved.
    Approved,
    /// It is refused.
    Refused,
    /// It is cancelled while it waits for approval.
    Cancelled,
}

impl Transfer {
    /// The transfer with this number; a seed always gives the same.
    pub(crate) fn numbered(seed: u64, id: u64) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9).wrapping_add(id));
        let from = chance.u32(..ACCOUNTS);
        let to = if chance.u8(..12) == 0 { CLOSED } else { (from + chance.u32(1..ACCOUNTS)) % ACCOUNTS };
        let kind = match chance.u8(..12) {
            0..=3 => TransferKind::Plain,
            4..=5 => TransferKind::Slow,
            6..=7 => TransferKind::Flaky,
            8..=9 => TransferKind::Approved,
            10 => TransferKind::Refused,
            _ => TransferKind::Cancelled,
        };
        Self { id, from, to, cents: chance.i64(1..4_000), kind }
    }

    /// The key that it is started with.
    pub(crate) fn key(&self) -> String {
        format!("transfer-{}", self.id)
    }

    /// The number in a key.
    pub(crate) fn id_of(key: &str) -> Option<u64> {
        key.strip_prefix("transfer-")?.parse().ok()
    }
}

/// The output of a transfer: its receipts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TransferOutput {
    pub(crate) debit: u64,
    pub(crate) credit: Option<u64>,
    pub(crate) refund: Option<u64>,
}

#[workflow]
pub(crate) async fn transfer(ctx: Context, order: Transfer) -> Result<TransferOutput, Error> {
    ctx.tag("manner", format!("{:?}", order.kind))?;
    newest_format::use_it(&ctx, &order).await?;
    if newest_format::continues(&ctx, &order) {
        return ctx.continue_as(&order);
    }
    // Started bookings are completed, also when the transfer is cancelled.
    let bank = ctx.shielded();
    let debit = bank.step(debit, &order).await?;
    if order.kind == TransferKind::Slow {
        ctx.sleep("60ms").await?;
    }
    let approval = match order.kind {
        TransferKind::Approved | TransferKind::Refused | TransferKind::Cancelled if !ctx.is_cancelled() => {
            ctx.hook::<bool>(APPROVAL).timeout("1h").await
        }
        _ => Ok(!ctx.is_cancelled()),
    };
    if matches!(approval, Ok(true)) {
        match bank.step(credit, &order).await {
            Ok(credit) => {
                try_join!(bank.step(notice, order.from), bank.step(notice, order.to))?;
                return Ok(TransferOutput { debit, credit: Some(credit), refund: None });
            }
            Err(error) if error.kind() != outlast::ErrorKind::Fatal => return Err(error),
            Err(_) => {}
        }
    }
    let refund = bank.step(refund, &order).await?;
    approval?;
    Ok(TransferOutput { debit, credit: None, refund: Some(refund) })
}

/// Several transfers, each a child run; ends with the last one.
#[workflow]
pub(crate) async fn batch(ctx: Context, orders: Vec<Transfer>) -> Result<Vec<Option<TransferOutput>>, Error> {
    let sum: i64 = ctx.record("sum", || orders.iter().map(|order| order.cents).sum())?;
    ctx.tag("sum", sum.to_string())?;
    let children: Vec<_> = orders.iter().map(|order| ctx.child(transfer, order).key(order.key())).collect();
    Ok(join_all(children).await.into_iter().map(Result::ok).collect())
}

#[step(blocking, attempts = 20)]
fn debit(cx: StepContext<StepState>, order: Transfer) -> Result<u64, StepError> {
    cx.state().post(&cx, &order, Leg::Debit)
}

#[step(blocking, attempts = 20)]
fn credit(cx: StepContext<StepState>, order: Transfer) -> Result<u64, StepError> {
    cx.state().post(&cx, &order, Leg::Credit)
}

#[step(blocking, attempts = 20)]
fn refund(cx: StepContext<StepState>, order: Transfer) -> Result<u64, StepError> {
    cx.state().post(&cx, &order, Leg::Refund)
}

#[step(attempts = 20)]
pub(crate) async fn notice(cx: StepContext<StepState>, account: u32) -> Result<u32, StepError> {
    cx.state().log_attempt(&cx)?;
    sleep(NOTICE).await;
    Ok(account)
}

#[step(attempts = 20)]
pub(crate) async fn retract_notice(
    cx: StepContext<StepState>,
    undo: Undo<u32, u32>,
) -> Result<(), StepError> {
    cx.state().log_attempt(&cx)?;
    assert_eq!(undo.output, Some(undo.input));
    Ok(())
}

/// The state of the steps of one worker process.
pub(crate) struct StepState {
    pub(crate) logs: Arc<LogFiles>,
    pub(crate) worker_number: u32,
}

impl StepState {
    pub(crate) fn log_attempt(&self, cx: &StepContext<Self>) -> io::Result<()> {
        self.logs.attempts.append(&AttemptNote {
            key: cx.key(),
            attempt: cx.attempt(),
            step: cx.step_name().into(),
            worker_number: self.worker_number,
            at: SystemClock.now(),
        })
    }

    fn post(&self, cx: &StepContext<Self>, order: &Transfer, leg: Leg) -> Result<u64, StepError> {
        self.log_attempt(cx)?;
        let fails = order.kind == TransferKind::Flaky && cx.attempt() == 1;
        if fails && order.id.is_multiple_of(2) {
            return Err(StepError::retry_after("the request was lost", "8ms"));
        }
        let (account, cents) = match leg {
            Leg::Debit => (order.from, -order.cents),
            Leg::Credit => (order.to, order.cents),
            Leg::Refund => (order.from, order.cents),
        };
        let request = BankRequest { key: cx.key(), transfer: order.id, leg, account, cents };
        let answer = self.logs.bank.post(request)?;
        if fails {
            return Err(StepError::retry_after("the answer was lost", "8ms"));
        }
        answer.map_err(StepError::fatal)
    }
}

/// The builder of a worker of the workload.
pub(crate) fn worker(world: Arc<dyn World>, state: StepState, session: Duration) -> WorkerBuilder<StepState> {
    Worker::builder(world)
        .state(state)
        .register((transfer, batch, debit, credit, refund, notice, retract_notice))
        .session_time(session)
        .live_runs(LIVE_RUNS)
}

/// Waits in real time.
pub(crate) async fn sleep(time: Duration) {
    SystemClock.sleep_until(SystemClock.now().plus(time)).await;
}
