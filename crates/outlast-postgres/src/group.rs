//! Calls that come together are one statement: while some are under way, the next gather. No timer is involved, so
//! a call that comes alone is made at once.

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

use crate::clock::Time;
use crate::ends::ends;
use crate::error::closed;
use crate::list::run_views;
use crate::send::send;
use crate::start::start;
use crate::store::Store;
use crate::told::{News, Told};

/// How many elements one statement carries.
const BATCH_MAX: usize = 1_000;

/// How many statements of one kind are under way at the same time.
const LANES: usize = 2;

type Answers<A> = Vec<Result<A, WorldError>>;
type Working<A> = Pin<Box<dyn Future<Output = Result<Answers<A>, WorldError>> + Send>>;

/// The calls that are made together.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) starts: Group<Start, Started>,
    pub(crate) sends: Group<NewMessage, Sent>,
    pub(crate) ends: Group<RunId, Option<Ended>>,
    pub(crate) views: Group<RunId, RunView>,
}

impl Groups {
    pub(crate) fn new(store: &Store, time: &Time, told: &Told) -> Self {
        let handle = &store.handle;
        let all = || (store.clone(), time.clone(), told.clone());
        let (starts, sends, look, view) = (all(), all(), store.clone(), store.clone());
        Self {
            starts: Group::new(handle, move |new: Vec<Start>| {
                let (store, time, told) = starts.clone();
                Box::pin(async move {
                    told.young.add(new.iter().map(|start| start.run));
                    let answers = start(&store, &time, &new).await;
                    let (mut has_new, mut has_repeat) = (false, false);
                    for (index, start) in new.iter().enumerate() {
                        match answers.as_ref().ok().and_then(|answers| answers.get(index)) {
                            Some(Ok(begun)) if !begun.was_there => has_new = true,
                            // A repeat may be of a start that nobody rang for.
                            Some(Ok(begun)) => {
                                has_repeat |= begun.started.is_new;
                                told.young.remove(start.run);
                            }
                            _ => told.young.remove(start.run),
                        }
                    }
                    match &new[..] {
                        [start] if has_new && start.not_before.is_none() && start.deadline.is_none() => {
                            told.tell(News { started: Some(start.run), ..News::default() });
                        }
                        _ if has_new || has_repeat => told.ring(),
                        _ => {}
                    }
                    Ok(answers?.into_iter().map(|answer| answer.map(|begun| begun.started)).collect())
                })
            }),
            sends: Group::new(handle, move |messages: Vec<NewMessage>| {
                let (store, time, told) = sends.clone();
                Box::pin(async move {
                    let answers = send(&store, &time, &messages).await?;
                    if answers.iter().any(Result::is_ok) {
                        told.ring();
                    }
                    Ok(answers)
                })
            }),
            ends: Group::new(handle, move |runs: Vec<RunId>| {
                let store = look.clone();
                Box::pin(async move { Ok(each(&runs, &ends(&store, &runs).await?)) })
            }),
            views: Group::new(handle, move |runs: Vec<RunId>| {
                let store = view.clone();
                Box::pin(async move { Ok(each(&runs, &run_views(&store, &runs).await?)) })
            }),
        }
    }
}

/// What was found of each run.
fn each<A: Clone>(runs: &[RunId], found: &HashMap<RunId, A>) -> Answers<A> {
    runs.iter().map(|run| found.get(run).cloned().ok_or_else(|| no_run(*run))).collect()
}

/// Calls of one kind.
pub(crate) struct Group<Q, A>(Arc<Shared<Q, A>>);

struct Shared<Q, A> {
    handle: Handle,
    work: Box<dyn Fn(Vec<Q>) -> Working<A> + Send + Sync>,
    gathered: Mutex<Gathered<Q, A>>,
}

struct Gathered<Q, A> {
    calls: Vec<Call<Q, A>>,
    in_flight: usize,
}

struct Call<Q, A> {
    elements: Vec<Q>,
    reply: oneshot::Sender<Result<Answers<A>, WorldError>>,
}

impl<Q: Send + 'static, A: Send + 'static> Group<Q, A> {
    fn new(handle: &Handle, work: impl Fn(Vec<Q>) -> Working<A> + Send + Sync + 'static) -> Self {
        let gathered = Mutex::new(Gathered { calls: Vec::new(), in_flight: 0 });
        Self(Arc::new(Shared { handle: handle.clone(), work: Box::new(work), gathered }))
    }

    /// Asks for one answer per element.
    pub(crate) async fn ask(&self, elements: Vec<Q>) -> Result<Answers<A>, WorldError> {
        let (reply, answer) = oneshot::channel();
        let is_first = {
            let mut gathered = self.0.gathered.lock();
            gathered.calls.push(Call { elements, reply });
            let has_lane = gathered.in_flight < LANES;
            gathered.in_flight += usize::from(has_lane);
            has_lane
        };
        if is_first {
            // In the world's own thread: whoever asks may go away, and others wait for the same statement.
            self.0.handle.spawn(self.0.clone().lead());
        }
        answer.await.map_err(|_| closed())?
    }

    /// Asks for the answer to one element.
    pub(crate) async fn ask_one(&self, element: Q) -> Result<A, WorldError> {
        self.ask(vec![element]).await?.pop().unwrap_or_else(|| Err(closed()))
    }
}

impl<Q: Send + 'static, A: Send + 'static> Shared<Q, A> {
    /// Makes calls until none are left.
    async fn lead(self: Arc<Self>) {
        while let Some(calls) = self.next() {
            self.make(calls).await;
        }
    }

    /// What has gathered, as much of it as one statement takes; gives the lane back when that is nothing.
    fn next(&self) -> Option<Vec<Call<Q, A>>> {
        let mut gathered = self.gathered.lock();
        let mut elements = 0;
        let count = gathered.calls.iter().take_while(|call| {
            let is_first = elements == 0;
            elements += call.elements.len();
            is_first || elements <= BATCH_MAX
        });
        let count = count.count();
        if count == 0 {
            gathered.in_flight -= 1;
            return None;
        }
        Some(gathered.calls.drain(..count).collect())
    }

    async fn make(&self, calls: Vec<Call<Q, A>>) {
        let mut elements = Vec::new();
        let mut replies = Vec::with_capacity(calls.len());
        for call in calls {
            replies.push((call.elements.len(), call.reply));
            elements.extend(call.elements);
        }
        let answers = (self.work)(elements).await;
        let mut answers = answers.map(Vec::into_iter);
        for (count, reply) in replies {
            let answer = match &mut answers {
                Ok(answers) => Ok(answers.by_ref().take(count).collect()),
                Err(error) => Err(error.clone()),
            };
            // Nobody listens any more when the caller's future was dropped.
            let _ = reply.send(answer);
        }
    }
}

impl<Q, A> fmt::Debug for Group<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({} gathered)", self.0.gathered.lock().calls.len())
    }
}
