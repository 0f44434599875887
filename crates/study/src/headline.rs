//! The headline metric of a trial over time, out of its samples.

use clearstream_schema::outcome::{Metric, Series};
use clearstream_workload::Sample;

/// The headline of every sample after the warm-up.
#[derive(Debug, Default)]
pub(crate) struct Headline {
    metric: Option<Metric>,
    values: Vec<f64>,
    /// Their ends, of those that have one.
    ends: Vec<f64>,
}

impl Headline {
    /// Takes in a sample.
    pub(crate) fn add(&mut self, sample: &Sample) {
        let Some(headline) = &sample.headline else { return };
        self.values.push(headline.value);
        self.ends.extend(sample.end_ns.map(|end| end as f64));
        if self.metric.is_none() {
            self.metric = Some(headline.clone());
        }
    }

    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    /// What a trial has whose workload makes no series of its own; nothing where samples are no
    /// parts of a time. It is of bounded length: it stands in the trial's line, so that a report
    /// draws it without knowing what the workload's samples are.
    pub(crate) fn series(&self) -> Option<Series> {
        let metric = self.metric.as_ref().filter(|_| self.ends.len() == self.values.len())?;
        let points: Vec<(f64, f64)> = self.ends.iter().copied().zip(self.values.iter().copied()).collect();
        Some(Series::over_time(metric, &points))
    }
}
