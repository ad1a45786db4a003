//! Metrics as programs read them.

/// All samples of one metric.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MetricFamily {
    /// The name, such as `outlast_runs_ended_total`. It follows the rules of Prometheus.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// How the numbers behave.
    pub kind: MetricKind,
    /// One sample for each combination of label values.
    pub samples: Vec<MetricSample>,
}

/// How the numbers of a metric behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A number that only grows, until the process ends.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
    /// The distribution of many numbers.
    Histogram,
}

/// One sample of a metric.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MetricSample {
    /// The labels: names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: MetricValue,
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetricValue {
    /// A counter or a gauge.
    Number(f64),
    /// A histogram.
    Histogram(HistogramValue),
}

/// A distribution: how many numbers are at most as large as each bound.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HistogramValue {
    /// The bounds in increasing order, and for each how many numbers it includes, those of smaller bounds as well.
    pub buckets: Vec<(f64, u64)>,
    /// How many numbers there are.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

impl MetricKind {
    /// The name of the kind: `counter`, `gauge` or `histogram`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl MetricFamily {
    pub(super) fn new(name: &'static str, kind: MetricKind, help: &'static str) -> Self {
        Self { name, help, kind, samples: Vec::new() }
    }

    /// Adds a number.
    pub(super) fn number(mut self, labels: Vec<(&'static str, String)>, value: f64) -> Self {
        self.samples.push(MetricSample { labels, value: MetricValue::Number(value) });
        self
    }

    pub(super) fn push(&mut self, labels: Vec<(&'static str, String)>, value: impl Into<MetricValue>) {
        self.samples.push(MetricSample { labels, value: value.into() });
    }
}

impl From<u64> for MetricValue {
    fn from(number: u64) -> Self {
        Self::Number(number as f64)
    }
}

impl From<HistogramValue> for MetricValue {
    fn from(histogram: HistogramValue) -> Self {
        Self::Histogram(histogram)
    }
}
