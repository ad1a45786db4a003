//! The text format of Prometheus.

use std::fmt::Write;

use outlast::{MetricFamily, MetricValue};

/// A text of metrics.
#[derive(Debug, Default)]
pub(super) struct MetricsText(String);

impl MetricsText {
    /// Begins the samples of one metric.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// A family with all its samples.
    pub(super) fn whole_family(&mut self, family: &MetricFamily) {
        self.family(family.name, family.kind.as_str(), family.help);
        for sample in &family.samples {
            let labels: Vec<_> = sample.labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
            match &sample.value {
                MetricValue::Histogram(value) => {
                    let (bounds, counts): (Vec<_>, Vec<_>) = value.buckets.iter().copied().unzip();
                    self.histogram(family.name, &labels, &bounds, &counts, value.count, value.sum);
                }
                MetricValue::Number(number) => self.sample(family.name, &labels, *number),
                _ => {}
            }
        }
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels = written(labels);
        self.line(format_args!("{name}{labels} {value}"));
    }

    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bounds: &[f64],
        buckets: &[u64],
        count: u64,
        sum: f64,
    ) {
        let bounds = bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, below) in bounds.zip(buckets.iter().copied().chain([count])) {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.sample(&format!("{name}_bucket"), &labels, below as f64);
        }
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, count as f64);
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

fn written(labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escape = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped_and_buckets_are_cumulative() {
        let mut text = MetricsText::default();
        text.sample("a", &[("b", "x\"\\\n")], 1.0);
        text.histogram("t", &[("m", "GET")], &[0.5, 1.0], &[1, 2], 3, 4.5);
        let expected = "a{b=\"x\\\"\\\\\\n\"} 1\n\
                        t_bucket{m=\"GET\",le=\"0.5\"} 1\n\
                        t_bucket{m=\"GET\",le=\"1\"} 2\n\
                        t_bucket{m=\"GET\",le=\"+Inf\"} 3\n\
                        t_sum{m=\"GET\"} 4.5\n\
                        t_count{m=\"GET\"} 3\n";
        assert_eq!(text.finish(), expected);
    }
}
