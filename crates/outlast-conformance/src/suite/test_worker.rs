//! A worker that a case controls.

use std::sync::Arc;

use outlast_core::{
    ClaimRequest, Claimed, Code, Committed, Report, RunId, SessionId, SuspectRoom, Timestamp, Turn, Work,
    World, WorldError,
};

use super::case::one;

/// A joined worker that a case controls.
#[derive(Debug)]
pub struct TestWorker {
    /// The world as its process sees it.
    pub world: Arc<dyn World>,
    /// Its session.
    pub session: SessionId,
    /// Its build.
    pub build: Arc<str>,
    /// The code it has.
    pub code: Arc<[Code]>,
    /// The queues it serves.
    pub queues: Arc<[Arc<str>]>,
    /// The highest format that it can read.
    pub format: u32,
}

impl TestWorker {
    /// The default request of the worker: up to 100 runs, including those of one higher crash class.
    pub fn request(&self) -> ClaimRequest {
        ClaimRequest {
            limit: 100,
            code: self.code.clone(),
            queues: self.queues.clone(),
            build: self.build.clone(),
            format: self.format,
            suspects: SuspectRoom::AnyClass { room: 100 },
            ends_overdue_from: Timestamp::NEVER,
        }
    }

    /// Claims with this request.
    pub async fn work(&self, request: ClaimRequest) -> Work {
        self.world.claim(self.session, request).await.expect("the session is alive")
    }

    /// Claims all available runs.
    pub async fn claim(&self) -> Vec<Claimed> {
        self.work(self.request()).await.claimed
    }

    /// Claims all available runs, including overdue ones.
    pub async fn claim_overdue(&self) -> Vec<Claimed> {
        self.work(ClaimRequest { ends_overdue_from: Timestamp::from_micros(0), ..self.request() })
            .await
            .claimed
    }

    /// Claims all available runs; returns their ids, in order.
    pub async fn claim_runs(&self) -> Vec<RunId> {
        self.claim().await.iter().map(|claimed| claimed.run).collect()
    }

    /// Claims, and expects exactly one run.
    pub async fn claim_one(&self) -> Claimed {
        let mut claimed = self.claim().await;
        assert_eq!(claimed.len(), 1, "exactly one run is ready for this worker");
        claimed.remove(0)
    }

    /// Claims, and expects nothing.
    pub async fn claim_nothing(&self) {
        let claimed = self.claim().await;
        assert!(claimed.is_empty(), "nothing is ready for this worker, but it got {claimed:?}");
    }

    /// Commits one turn, and repeats the call while another transaction has locked its rows. Then applies its effects
    /// on other runs.
    pub async fn commit(&self, turn: Turn) -> Result<Committed, WorldError> {
        let committed = loop {
            let answer = one(self.world.commit(self.session, std::slice::from_ref(&turn)).await);
            if !matches!(answer, Err(WorldError::Blocked(_))) {
                break answer;
            }
        };
        self.settle().await;
        committed
    }

    /// Applies all deferred effects of turns.
    pub async fn settle(&self) {
        while let Ok(delivered) = self.world.deliver(self.session).await
            && delivered.left > 0
        {}
    }

    /// Commits one turn, which the world accepts.
    pub async fn commit_done(&self, turn: Turn) {
        assert_eq!(self.commit(turn).await, Ok(Committed::Done));
    }

    /// Ends the sessions of dead workers; returns how many runs were released.
    pub async fn takeover(&self) -> u64 {
        self.world.takeover(self.session).await.expect("the session is alive")
    }

    /// The number of runs that it holds, according to a beat.
    pub async fn held(&self) -> u64 {
        self.world.beat(self.session, &Report::default(), &[]).await.expect("the session is alive").held
    }

    /// Leaves the world.
    pub async fn leave(&self) {
        self.world.leave(self.session).await.expect("a worker may leave");
    }
}
