//! The interface of a world under test.

use std::sync::Arc;

use async_trait::async_trait;
use outlast_core::{SessionId, World};

/// A fresh, empty world under test, with the operations that only its author can provide.
#[async_trait]
pub trait WorldUnderTest: Send + Sync {
    /// The world as this process sees it.
    fn world(&self) -> Arc<dyn World>;

    /// The same world, opened as another process would open it. A world in memory has only one
    /// handle, and returns that.
    async fn other_handle(&self) -> Arc<dyn World>;

    /// Simulates the death of the process that has `handle` (from [`WorldUnderTest::other_handle`]) and has joined
    /// `session` with it: it makes no more calls, and the next takeover ends its session.
    ///
    /// No other clone of `handle` exists.
    async fn crash(&self, handle: Arc<dyn World>, session: SessionId);
}

#[async_trait]
impl WorldUnderTest for Box<dyn WorldUnderTest> {
    fn world(&self) -> Arc<dyn World> {
        self.as_ref().world()
    }

    async fn other_handle(&self) -> Arc<dyn World> {
        self.as_ref().other_handle().await
    }

    async fn crash(&self, handle: Arc<dyn World>, session: SessionId) {
        self.as_ref().crash(handle, session).await;
    }
}
