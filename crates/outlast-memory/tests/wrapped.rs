//! A world that passes all its calls to another passes the conformance suite: no method is left out. The effects of turns are
//! applied later, because otherwise `deliver` has nothing to do.

mod subject;

use std::sync::Arc;

use outlast_core::{RunId, World, WorldError, WorldMethod, WorldWrapper};
use outlast_memory::MemoryWorld;
use outlast_testkit::TestClock;
use subject::MemorySubject;

outlast_conformance::suite!(open);

async fn open(clock: TestClock) -> MemorySubject {
    let memory = MemoryWorld::new(Arc::new(clock)).with_deferred_effects();
    MemorySubject::wrapped(memory, |inner| PlainWrapper { inner })
}

/// A world that changes nothing.
#[derive(Debug)]
struct PlainWrapper {
    inner: Arc<MemoryWorld>,
}

impl WorldWrapper for PlainWrapper {
    fn inner(&self) -> &dyn World {
        &*self.inner
    }
}

/// A world whose calls all fail.
#[derive(Debug)]
struct RefusingWrapper {
    inner: Arc<MemoryWorld>,
}

impl WorldWrapper for RefusingWrapper {
    fn inner(&self) -> &dyn World {
        &*self.inner
    }

    async fn call<T: Send>(
        &self,
        method: WorldMethod,
        _: impl Future<Output = Result<T, WorldError>> + Send,
    ) -> Result<T, WorldError> {
        Err(WorldError::unavailable(format!("no {method:?} today")))
    }

    async fn blocked_by(&self, run: RunId) -> Result<Option<String>, WorldError> {
        Ok(Some(format!("a test blocks {run}")))
    }
}

#[tokio::test]
async fn a_wrapper_changes_all_calls_except_the_methods_that_it_overrides() {
    let inner = Arc::new(MemoryWorld::new(Arc::new(TestClock::new())));
    let world: Arc<dyn World> = Arc::new(RefusingWrapper { inner });
    assert_eq!(world.counts().await.unwrap_err().to_string(), "no Counts today");
    assert_eq!(world.prune(TestClock::BEGIN, None, 1).await.unwrap_err().to_string(), "no Prune today");
    let run = world.run_id(None, 1);
    assert_eq!(world.blocked_by(run).await.unwrap(), Some(format!("a test blocks {run}")));
}
