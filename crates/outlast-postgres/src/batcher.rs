//! Batching: concurrent calls of one kind share a statement.
//!
//! While statements of a kind are being executed, further calls wait, and the next statement carries all of them. No
//! timer is involved: a call that comes alone is executed immediately.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use outlast_core::refusal::no_run;
use outlast_core::{Ended, NewMessage, RunId, RunView, Sent, Start, Started, WorldError};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::clock::TimeSource;
use crate::connection::database::Database;
use crate::error::closed_error;
use crate::notifications::run_ends::read_ends;
use crate::notifications::subscribers::{ChangeNotice, Subscribers};
use crate::read::views::run_views;
use crate::write::send::send;
use crate::write::start::start;

/// The number of elements that one statement carries.
const BATCH_MAX: usize = 1_000;

/// The number of statements of one kind that are executed at the same time.
const CONCURRENT_STATEMENTS: usize = 2;

/// One answer per element of a call.
type ElementAnswers<A> = Vec<Result<A, WorldError>>;
type BatchFuture<A> = Pin<Box<dyn Future<Output = Result<ElementAnswers<A>, WorldError>> + Send>>;

/// The batchers of a world, one for each kind of call.
#[derive(Debug)]
pub(crate) struct Batchers {
    pub(crate) starts: Batcher<Start, Started>,
    pub(crate) sends: Batcher<NewMessage, Sent>,
    pub(crate) ends: Batcher<RunId, Option<Ended>>,
    pub(crate) views: Batcher<RunId, RunView>,
}

impl Batchers {
    /// Creates the batchers. Starts and sends publish the changes that they make.
    pub(crate) fn new(database: &Database, time: &TimeSource, subscribers: &Subscribers) -> Self {
        let handle = &database.handle;
        let context = || (database.clone(), time.clone(), subscribers.clone());
        let (start_context, send_context) = (context(), context());
        let (end_database, view_database) = (database.clone(), database.clone());
        Self {
            starts: Batcher::new(handle, move |starts: Vec<Start>| {
                let (database, time, subscribers) = start_context.clone();
                Box::pin(async move { start_and_publish(&database, &time, &subscribers, &starts).await })
            }),
            sends: Batcher::new(handle, move |messages: Vec<NewMessage>| {
                let (database, time, subscribers) = send_context.clone();
                Box::pin(async move {
                    let answers = send(&database, &time, &messages).await?;
                    if answers.iter().any(Result::is_ok) {
                        subscribers.publish_work();
                    }
                    Ok(answers)
                })
            }),
            ends: Batcher::new(handle, move |runs: Vec<RunId>| {
                let database = end_database.clone();
                Box::pin(async move { Ok(answers_by_run(&runs, &read_ends(&database, &runs).await?)) })
            }),
            views: Batcher::new(handle, move |runs: Vec<RunId>| {
                let database = view_database.clone();
                Box::pin(async move { Ok(answers_by_run(&runs, &run_views(&database, &runs).await?)) })
            }),
        }
    }
}

/// Starts runs, and publishes that they can be claimed.
async fn start_and_publish(
    database: &Database,
    time: &TimeSource,
    subscribers: &Subscribers,
    starts: &[Start],
) -> Result<ElementAnswers<Started>, WorldError> {
    subscribers.recently_started.add(starts.iter().map(|start| start.run));
    let answers = start(database, time, starts).await;
    let (mut has_new, mut has_repeat) = (false, false);
    for (index, start) in starts.iter().enumerate() {
        match answers.as_ref().ok().and_then(|answers| answers.get(index)) {
            Some(Ok(result)) if !result.existed => has_new = true,
            // A repeated start: its first call may have failed before the change was published.
            Some(Ok(result)) => {
                has_repeat |= result.started.is_new;
                subscribers.recently_started.remove(start.run);
            }
            _ => subscribers.recently_started.remove(start.run),
        }
    }
    match starts {
        [start] if has_new && !start.replaces() && start.not_before.is_none() && start.deadline.is_none() => {
            subscribers.publish(ChangeNotice { started: Some(start.run), ..ChangeNotice::default() });
        }
        _ if has_new || has_repeat => subscribers.publish_work(),
        _ => {}
    }
    Ok(answers?.into_iter().map(|answer| answer.map(|result| result.started)).collect())
}

/// The answers in the order of the runs that were asked for.
fn answers_by_run<A: Clone>(runs: &[RunId], found: &HashMap<RunId, A>) -> ElementAnswers<A> {
    runs.iter().map(|run| found.get(run).cloned().ok_or_else(|| no_run(*run))).collect()
}

/// Batches calls of one kind. `Q` is an element of a call, `A` the answer to it.
pub(crate) struct Batcher<Q, A>(Arc<BatcherState<Q, A>>);

struct BatcherState<Q, A> {
    handle: Handle,
    /// Executes one statement.
    execute: Box<dyn Fn(Vec<Q>) -> BatchFuture<A> + Send + Sync>,
    queue: Mutex<CallQueue<Q, A>>,
}

struct CallQueue<Q, A> {
    waiting: Vec<WaitingCall<Q, A>>,
    /// The number of statements that are being executed.
    in_flight: usize,
}

struct WaitingCall<Q, A> {
    elements: Vec<Q>,
    reply: oneshot::Sender<Result<ElementAnswers<A>, WorldError>>,
}

impl<Q: Send + 'static, A: Send + 'static> Batcher<Q, A> {
    fn new(handle: &Handle, execute: impl Fn(Vec<Q>) -> BatchFuture<A> + Send + Sync + 'static) -> Self {
        let queue = Mutex::new(CallQueue { waiting: Vec::new(), in_flight: 0 });
        Self(Arc::new(BatcherState { handle: handle.clone(), execute: Box::new(execute), queue }))
    }

    /// Makes a call with several elements. Returns one answer per element.
    pub(crate) async fn call(&self, elements: Vec<Q>) -> Result<ElementAnswers<A>, WorldError> {
        let (reply, answer) = oneshot::channel();
        let can_begin = {
            let mut queue = self.0.queue.lock();
            queue.waiting.push(WaitingCall { elements, reply });
            let can_begin = queue.in_flight < CONCURRENT_STATEMENTS;
            queue.in_flight += usize::from(can_begin);
            can_begin
        };
        if can_begin {
            // On the I/O runtime: the caller's future may be dropped while others wait for the same statement.
            self.0.handle.spawn(self.0.clone().execute_until_empty());
        }
        answer.await.map_err(|_| closed_error())?
    }

    /// Makes a call with one element.
    pub(crate) async fn call_one(&self, element: Q) -> Result<A, WorldError> {
        self.call(vec![element]).await?.pop().unwrap_or_else(|| Err(closed_error()))
    }
}

impl<Q: Send + 'static, A: Send + 'static> BatcherState<Q, A> {
    /// Executes one statement after the other until no calls are waiting.
    async fn execute_until_empty(self: Arc<Self>) {
        while let Some(calls) = self.next_batch() {
            self.execute_batch(calls).await;
        }
    }

    /// Takes as many waiting calls as one statement carries, but at least one. If there are none, the caller has to
    /// stop: another one can begin in its place.
    fn next_batch(&self) -> Option<Vec<WaitingCall<Q, A>>> {
        let mut queue = self.queue.lock();
        let mut elements = 0;
        let count = queue.waiting.iter().take_while(|call| {
            let is_first = elements == 0;
            elements += call.elements.len();
            is_first || elements <= BATCH_MAX
        });
        let count = count.count();
        if count == 0 {
            queue.in_flight -= 1;
            return None;
        }
        Some(queue.waiting.drain(..count).collect())
    }

    /// Executes one statement for several calls, and sends each its answers.
    async fn execute_batch(&self, calls: Vec<WaitingCall<Q, A>>) {
        let mut elements = Vec::new();
        let mut replies = Vec::with_capacity(calls.len());
        for call in calls {
            replies.push((call.elements.len(), call.reply));
            elements.extend(call.elements);
        }
        let answers = (self.execute)(elements).await;
        let mut answers = answers.map(Vec::into_iter);
        for (count, reply) in replies {
            let answer = match &mut answers {
                Ok(answers) => Ok(answers.by_ref().take(count).collect()),
                Err(error) => Err(error.clone()),
            };
            // Sending fails if the caller's future was dropped.
            let _ = reply.send(answer);
        }
    }
}

impl<Q, A> fmt::Debug for Batcher<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batcher({} calls waiting)", self.0.queue.lock().waiting.len())
    }
}
