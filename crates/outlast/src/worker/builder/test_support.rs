//! Settings that only tests need.

use std::sync::Arc;

use outlast_core::World;
use outlast_core::event::RULES;

use super::WorkerBuilder;
use crate::authoring::step::StepHandle;
use crate::error::StepError;

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Replaces the code of a step by `code`. For the test world of `outlast-testkit`.
    #[must_use]
    pub fn mock<H, M>(
        mut self,
        step: H,
        code: impl Fn(H::Input) -> Result<H::Output, StepError> + Send + Sync + 'static,
    ) -> Self
    where
        H: StepHandle<M>,
        H::Input: serde::de::DeserializeOwned,
        H::Output: serde::Serialize,
    {
        let names = std::iter::once(step.name()).chain(step.was().iter().copied());
        self.registry.replace(names, step.policy(), code);
        self.has_code = true;
        self
    }

    /// Sets the world that the worker joins. For the test world of `outlast-testkit`.
    #[must_use]
    pub fn on(mut self, world: Arc<dyn World>) -> Self {
        self.world = world;
        self
    }

    /// Sets the world of the clients whose starts the worker takes without a claim, if the worker joins another one. For
    /// the test world of `outlast-testkit`.
    #[must_use]
    pub fn local_to(mut self, world: Arc<dyn World>) -> Self {
        self.local_world = Some(world);
        self
    }

    /// Sets the highest rules that the worker announces, as if it was an older build. For tests.
    #[must_use]
    pub fn rules(mut self, rules: u32) -> Self {
        self.rules = rules.clamp(1, RULES);
        self
    }

    /// Sets the maximum number of events in one part of a turn; at least one. For tests.
    #[must_use]
    pub fn part_events(mut self, max: usize) -> Self {
        self.part_events = max.max(1);
        self
    }
}
