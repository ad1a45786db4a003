//! What a world provides to be examined.

use std::sync::Arc;

use async_trait::async_trait;
use outlast_core::{SessionId, World};

/// A fresh, empty world under examination, and what only it can do.
#[async_trait]
pub trait WorldUnderTest: Send + Sync {
    /// The world as this process sees it.
    fn world(&self) -> Arc<dyn World>;

    /// The same world as another process would see it. A world inside this process has only one
    /// view, and returns that.
    async fn other_handle(&self) -> Arc<dyn World>;

    /// The process dies that has `handle`, from [`WorldUnderTest::other_handle`], and that joined `session`
    /// with it: nothing more comes from it, and the next takeover finds its worker gone.
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
