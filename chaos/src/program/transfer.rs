//! The workload: transfers between accounts, alone and in batches.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{SystemClock, WorkerBuilder, World};
use serde::{Deserialize, Serialize};

use super::bank::{ACCOUNTS, CLOSED, Leg, Request};
use super::place::{AttemptNote, Books};

/// The hook at which a transfer is approved.
pub(crate) const APPROVAL: &str = "approval";

/// The runs that a worker holds at the same time: few, so that all get some.
const LIVE_RUNS: usize = 16;

/// How long a notice is on its way.
const NOTICE: Duration = Duration::from_millis(3);

/// A transfer of money.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) id: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) cents: i64,
    pub(crate) manner: Manner,
}

/// What is special about a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Manner {
    Plain,
    /// It sleeps between its steps.
    Slow,
    /// The first attempt at each step fails, before or after its effect.
    Flaky,
    /// Someone approves it.
    Approved,
    /// Someone refuses it.
    Refused,
    /// Someone cancels it while it waits to be approved.
    Cancelled,
}

impl Transfer {
    /// The transfer with a number; the same for the same seed.
    pub(crate) fn numbered(seed: u64, id: u64) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9).wrapping_add(id));
        let from = chance.u32(..ACCOUNTS);
        let to = if chance.u8(..12) == 0 { CLOSED } else { (from + chance.u32(1..ACCOUNTS)) % ACCOUNTS };
        let manner = match chance.u8(..12) {
            0..=3 => Manner::Plain,
            4..=5 => Manner::Slow,
            6..=7 => Manner::Flaky,
            8..=9 => Manner::Approved,
            10 => Manner::Refused,
            _ => Manner::Cancelled,
        };
        Self { id, from, to, cents: chance.i64(1..4_000), manner }
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

/// How a transfer ended: the receipts of what was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slip {
    pub(crate) debit: u64,
    pub(crate) credit: Option<u64>,
    pub(crate) refund: Option<u64>,
}

#[workflow]
pub(crate) async fn transfer(ctx: Context, order: Transfer) -> Result<Slip, Error> {
    ctx.tag("manner", format!("{:?}", order.manner))?;
    // Money that moved is booked to the end, also when the transfer is cancelled.
    let bank = ctx.shielded();
    let debit = bank.step(debit, &order).await?;
    if order.manner == Manner::Slow {
        ctx.sleep("60ms").await?;
    }
    let approval = match order.manner {
        Manner::Approved | Manner::Refused | Manner::Cancelled if !ctx.is_cancelled() => {
            ctx.hook::<bool>(APPROVAL).timeout("1h").await
        }
        _ => Ok(!ctx.is_cancelled()),
    };
    if matches!(approval, Ok(true)) {
        match bank.step(credit, &order).await {
            Ok(credit) => {
                try_join!(bank.step(notice, order.from), bank.step(notice, order.to))?;
                return Ok(Slip { debit, credit: Some(credit), refund: None });
            }
            Err(error) if error.kind() != outlast::ErrorKind::Fatal => return Err(error),
            Err(_) => {}
        }
    }
    let refund = bank.step(refund, &order).await?;
    approval?;
    Ok(Slip { debit, credit: None, refund: Some(refund) })
}

/// Several transfers, each a run of its own; it ends when the last has.
#[workflow]
pub(crate) async fn batch(ctx: Context, orders: Vec<Transfer>) -> Result<Vec<Option<Slip>>, Error> {
    let sum: i64 = ctx.record("sum", || orders.iter().map(|order| order.cents).sum())?;
    ctx.tag("sum", sum.to_string())?;
    let children: Vec<_> = orders.iter().map(|order| ctx.child(transfer, order).key(order.key())).collect();
    Ok(join_all(children).await.into_iter().map(Result::ok).collect())
}

#[step(blocking, attempts = 20)]
fn debit(cx: StepContext<Branch>, order: Transfer) -> Result<u64, StepError> {
    cx.state().post(&cx, &order, Leg::Debit)
}

#[step(blocking, attempts = 20)]
fn credit(cx: StepContext<Branch>, order: Transfer) -> Result<u64, StepError> {
    cx.state().post(&cx, &order, Leg::Credit)
}

#[step(blocking, attempts = 20)]
fn refund(cx: StepContext<Branch>, order: Transfer) -> Result<u64, StepError> {
    cx.state().post(&cx, &order, Leg::Refund)
}

#[step(attempts = 20)]
async fn notice(cx: StepContext<Branch>, account: u32) -> Result<u32, StepError> {
    cx.state().note(&cx)?;
    pass(NOTICE).await;
    Ok(account)
}

/// What the steps of one life of a worker reach.
pub(crate) struct Branch {
    pub(crate) books: Arc<Books>,
    pub(crate) life: u32,
}

impl Branch {
    fn note(&self, cx: &StepContext<Self>) -> io::Result<()> {
        self.books.attempts.note(&AttemptNote {
            key: cx.key(),
            attempt: cx.attempt(),
            step: cx.step_name().into(),
            life: self.life,
            at: SystemClock.now(),
        })
    }

    fn post(&self, cx: &StepContext<Self>, order: &Transfer, leg: Leg) -> Result<u64, StepError> {
        self.note(cx)?;
        let fails = order.manner == Manner::Flaky && cx.attempt() == 1;
        if fails && order.id.is_multiple_of(2) {
            return Err(StepError::retry_after("the bank did not hear", "8ms"));
        }
        let (account, cents) = match leg {
            Leg::Debit => (order.from, -order.cents),
            Leg::Credit => (order.to, order.cents),
            Leg::Refund => (order.from, order.cents),
        };
        let request = Request { key: cx.key(), transfer: order.id, leg, account, cents };
        let answer = self.books.bank.post(request)?;
        if fails {
            return Err(StepError::retry_after("the bank was not heard", "8ms"));
        }
        answer.map_err(StepError::fatal)
    }
}

/// A worker of the workload, to be started.
pub(crate) fn worker(world: Arc<dyn World>, branch: Branch, session: Duration) -> WorkerBuilder<Branch> {
    Worker::builder(world)
        .state(branch)
        .register((transfer, batch, debit, credit, refund, notice))
        .session_time(session)
        .live_runs(LIVE_RUNS)
}

/// Lets time pass: this program waits for real things.
pub(crate) async fn pass(time: Duration) {
    SystemClock.sleep_until(SystemClock.now().plus(time)).await;
}
