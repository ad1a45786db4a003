//! The `MemoryWorld` under test.

use std::sync::Arc;

use outlast_conformance::WorldUnderTest;
use outlast_core::{SessionId, World};
use outlast_memory::MemoryWorld;

/// A world in memory, and the handle through which the tests call it.
pub(crate) struct MemorySubject {
    memory: Arc<MemoryWorld>,
    handle: Arc<dyn World>,
}

impl MemorySubject {
    /// Tests that call the world itself.
    #[allow(dead_code, reason = "not every test calls the world itself")]
    pub(crate) fn direct(memory: MemoryWorld) -> Self {
        let memory = Arc::new(memory);
        Self { handle: memory.clone(), memory }
    }

    /// Tests that call the world through another one.
    #[allow(dead_code, reason = "not every test wraps the world")]
    pub(crate) fn wrapped<W: World>(memory: MemoryWorld, wrap: impl FnOnce(Arc<MemoryWorld>) -> W) -> Self {
        let memory = Arc::new(memory);
        Self { handle: Arc::new(wrap(memory.clone())), memory }
    }
}

#[async_trait::async_trait]
impl WorldUnderTest for MemorySubject {
    fn world(&self) -> Arc<dyn World> {
        self.handle.clone()
    }

    async fn other_handle(&self) -> Arc<dyn World> {
        self.handle.clone()
    }

    async fn crash(&self, _: Arc<dyn World>, session: SessionId) {
        self.memory.kill(session);
    }
}
