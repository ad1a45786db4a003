//! A world that kills its own process at a chosen point.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outlast_core::{ClaimRequest, SessionId, Work, World, WorldError, WorldMethod, WorldWrapper};
use rustix::process::{Signal, getpid, kill_process};

/// A world that counts its commit points, and kills its own process with SIGKILL at one of them.
///
/// Every call that may write has two points: just before it, when nothing is written, and just after its answer, when
/// everything is written and the caller has not got the answer. These are all calls that write, except those for records,
/// which do not concern runs. A claim without a run has only the first point. A beat has none, because its time does not
/// depend on the program.
///
/// So a program that is killed once at each point and run again each time has survived a crash between any two writes.
#[derive(Debug)]
pub struct KillerWorld {
    inner: Arc<dyn World>,
    passed: AtomicU64,
    kill_point: u64,
    taken_over: AtomicU64,
}

impl KillerWorld {
    /// A world that only counts its points.
    pub fn counting(inner: Arc<dyn World>) -> Self {
        Self::killed_at(inner, u64::MAX)
    }

    /// A world that kills its process at this point, counted from 1.
    pub fn killed_at(inner: Arc<dyn World>, point: u64) -> Self {
        Self { inner, passed: AtomicU64::new(0), kill_point: point, taken_over: AtomicU64::new(0) }
    }

    /// The number of points so far.
    pub fn points(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }

    /// The number of runs that were taken over from ended sessions.
    pub fn taken_over(&self) -> u64 {
        self.taken_over.load(Ordering::SeqCst)
    }

    /// A point of the program itself, in addition to those of the calls: for example in a transaction of a step.
    pub fn pass(&self) {
        self.point();
    }

    fn point(&self) {
        if self.passed.fetch_add(1, Ordering::SeqCst) + 1 == self.kill_point {
            // The signal reaches this thread before the call returns to it.
            kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
            unreachable!("a killed process continued");
        }
    }
}

/// Whether a call of this method may write, at a time that depends on the program.
fn has_points(method: WorldMethod) -> bool {
    use WorldMethod::{
        Claim, Commit, Delete, DeleteTurns, Deliver, Fork, Join, Leave, Prune, Quarantine, Reopen, Resume,
        Send, Start, StartAndSend, Takeover, WriteChunks,
    };
    let is_session = matches!(method, Join | Claim | Commit | WriteChunks | Leave | Takeover | Deliver);
    let is_start = matches!(method, Start | StartAndSend | Fork);
    let is_end = matches!(method, Quarantine | DeleteTurns | Prune | Delete);
    is_session || is_start || is_end || matches!(method, Send | Resume | Reopen)
}

impl WorldWrapper for KillerWorld {
    fn inner(&self) -> &dyn World {
        &*self.inner
    }

    async fn call<T: Send>(
        &self,
        method: WorldMethod,
        call: impl Future<Output = Result<T, WorldError>> + Send,
    ) -> Result<T, WorldError> {
        if !has_points(method) {
            return call.await;
        }
        self.point();
        let answer = call.await;
        self.point();
        answer
    }

    async fn takeover(&self, session: SessionId) -> Result<u64, WorldError> {
        let takeover = async {
            let answer = self.inner.takeover(session).await;
            self.taken_over.fetch_add(*answer.as_ref().unwrap_or(&0), Ordering::SeqCst);
            answer
        };
        self.call(WorldMethod::Takeover, takeover).await
    }

    async fn claim(&self, session: SessionId, request: ClaimRequest) -> Result<Work, WorldError> {
        self.point();
        let answer = self.inner.claim(session, request).await;
        if answer.as_ref().is_ok_and(|work| !work.claimed.is_empty()) {
            self.point();
        }
        answer
    }
}
