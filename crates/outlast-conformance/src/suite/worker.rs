//! A worker as a case plays it.

use std::sync::Arc;

use outlast_core::{
    ClaimRequest, Claimed, Code, Committed, Report, RunId, SessionId, SuspectRoom, Timestamp, Turn, Work,
    World, WorldError,
};

use super::case::one;

/// A joined worker, as a case plays it.
#[derive(Debug)]
pub struct Worker {
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

impl Worker {
    /// What the worker asks for unless a case says otherwise: up to 100 runs, those of one higher crash class
    /// among them.
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

    /// Claims what it can get.
    pub async fn claim(&self) -> Vec<Claimed> {
        self.work(self.request()).await.claimed
    }

    /// Claims what it can get, overdue runs among it.
    pub async fn claim_overdue(&self) -> Vec<Claimed> {
        self.work(ClaimRequest { ends_overdue_from: Timestamp::from_micros(0), ..self.request() })
            .await
            .claimed
    }

    /// Claims what it can get; answers which runs, in order.
    pub async fn claim_runs(&self) -> Vec<RunId> {
        self.claim().await.iter().map(|claimed| claimed.run).collect()
    }

    /// Claims, and gets exactly one run.
    pub async fn claim_one(&self) -> Claimed {
        let mut claimed = self.claim().await;
        assert_eq!(claimed.len(), 1, "exactly one run is ready for this worker");
        claimed.remove(0)
    }

    /// Claims, and gets nothing.
    pub async fn claim_nothing(&self) {
        let claimed = self.claim().await;
        assert!(claimed.is_empty(), "nothing is ready for this worker, but it got {claimed:?}");
    }

    /// Commits one turn, again while somebody else has locked what it changes. What it does to other runs is done
    /// afterwards.
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

    /// Waits until what turns do to other runs is done.
    pub async fn settle(&self) {
        while let Ok(delivered) = self.world.deliver(self.session).await
            && delivered.left > 0
        {}
    }

    /// Commits one turn, which the world accepts.
    pub async fn commit_done(&self, turn: Turn) {
        assert_eq!(self.commit(turn).await, Ok(Committed::Done));
    }

    /// Ends the sessions of those that are gone; answers how many runs that were.
    pub async fn takeover(&self) -> u64 {
        self.world.takeover(self.session).await.expect("the session is alive")
    }

    /// How many runs it holds, as its next beat says.
    pub async fn held(&self) -> u64 {
        self.world.beat(self.session, &Report::default(), &[]).await.expect("the session is alive").held
    }

    /// Leaves the world.
    pub async fn leave(&self) {
        self.world.leave(self.session).await.expect("a worker may leave");
    }
}
