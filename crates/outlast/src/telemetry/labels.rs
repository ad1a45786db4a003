//! Metrics by the value of a label, with a limit for the number of values.

use std::fmt;
use std::sync::{Arc, LazyLock};

use outlast_core::limits::METRIC_LABEL_VALUES_MAX;
use parking_lot::RwLock;

use crate::name_map::NameMap;

/// The value of a label after the first [`METRIC_LABEL_VALUES_MAX`].
const OTHER: &str = "other";

static OTHER_NAME: LazyLock<Arc<str>> = LazyLock::new(|| OTHER.into());

/// A metric for each value of a label. After a number of values, all others share one metric.
pub(crate) struct Labelled<T> {
    create: fn() -> T,
    by_value: RwLock<NameMap<Arc<LabelledMetric<T>>>>,
}

/// The metric of one label value.
#[derive(Debug)]
pub(crate) struct LabelledMetric<T> {
    /// The value of the label, which may be `other`.
    pub(crate) label: Arc<str>,
    pub(crate) metric: T,
}

impl<T> Labelled<T> {
    pub(super) fn new(create: fn() -> T) -> Self {
        Self { create, by_value: RwLock::default() }
    }

    /// The metric of a label value.
    pub(crate) fn of(&self, value: &str) -> Arc<LabelledMetric<T>> {
        if let Some(known) = self.by_value.read().get(value) {
            return known.clone();
        }
        let mut by_value = self.by_value.write();
        if let Some(known) = by_value.get(value) {
            return known.clone();
        }
        let others = usize::from(by_value.contains_key(OTHER));
        let is_full = by_value.len() - others >= METRIC_LABEL_VALUES_MAX;
        let label = if is_full { OTHER_NAME.clone() } else { value.into() };
        let create = || Arc::new(LabelledMetric { label: label.clone(), metric: (self.create)() });
        by_value.entry(label.clone()).or_insert_with(create).clone()
    }

    /// All metrics, sorted by label.
    pub(super) fn all(&self) -> Vec<Arc<LabelledMetric<T>>> {
        let mut all: Vec<_> = self.by_value.read().values().cloned().collect();
        all.sort_by(|a, b| a.label.cmp(&b.label));
        all
    }
}

impl<T> fmt::Debug for Labelled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Labelled({})", self.by_value.read().len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::instruments::MetricCounter;
    use super::*;

    #[test]
    fn values_after_the_limit_are_counted_together() {
        let counters: Labelled<MetricCounter> = Labelled::new(MetricCounter::default);
        for round in 0..2 {
            for number in 0..1_000 {
                counters.of(&format!("workflow_{number}")).metric.add(1);
            }
            assert_eq!(counters.all().len(), METRIC_LABEL_VALUES_MAX + 1, "in round {round}");
        }
        assert_eq!(counters.of("workflow_7").metric.get(), 2);
        let others = 2 * (1_000 - METRIC_LABEL_VALUES_MAX as u64);
        assert_eq!(counters.of("workflow_999").metric.get(), others);
        assert_eq!(&*counters.of("never seen").label, OTHER);
    }
}
