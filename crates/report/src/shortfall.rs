//! A window curve that ends below what window and link allow: by how much, what
//! diagnosis of one of its trials, and the effect of the lab itself.

use clearstream_record::Reader;
use clearstream_schema::{
    diagnosis::{Diagnosis, Verdict},
    lab::DelayLineStats,
    study::Figure as Kind,
};

use crate::{
    Diagnose, ReportError,
    digest::{Digest, ExperimentDigest},
    figures::window::WindowModel,
    format::{bytes, count, percent, range, rate, time},
    link,
};

/// A plateau below this fraction of the model is the first finding of a report.
pub(crate) const SHORT: f64 = 0.9;
/// Number of statements of the evidence shown.
const EVIDENCE: usize = 4;

/// Counters of the delay lines of a lab in one trial, the worse direction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct LineShare {
    late_p50_ns: u64,
    late_p99_ns: u64,
    late_max_ns: u64,
    dropped_count: u64,
    busy_ratio: Option<f64>,
    limited: bool,
}

impl LineShare {
    /// Nothing where no delay line was on the path.
    pub(crate) fn of(lines: &[DelayLineStats]) -> Option<Self> {
        lines.iter().fold(None, |sum: Option<Self>, line| {
            let sum = sum.unwrap_or_default();
            Some(Self {
                late_p50_ns: sum.late_p50_ns.max(line.late_p50_ns),
                late_p99_ns: sum.late_p99_ns.max(line.late_p99_ns),
                late_max_ns: sum.late_max_ns.max(line.late_max_ns),
                dropped_count: sum.dropped_count + line.relay_dropped_count + line.front_dropped_count,
                busy_ratio: match (sum.busy_ratio, line.busy_ratio) {
                    (Some(one), Some(other)) => Some(one.max(other)),
                    (one, other) => one.or(other),
                },
                limited: sum.limited || line.relay_limited,
            })
        })
    }

    fn sentence(&self, trial: u32, delay_ns: Option<u64>) -> String {
        let configured = delay_ns
            .map_or_else(String::new, |ns| format!(", set to {} in each direction,", time(ns as f64)));
        let busy = self.busy_ratio.map_or_else(String::new, |ratio| {
            format!("; its thread worked {} of the time with traffic", percent(ratio))
        });
        let dropped = match self.dropped_count {
            0 => String::new(),
            packets => format!("; {} lost because it was behind", count(packets, "packet")),
        };
        let verdict = if self.limited {
            "It counts as the limit of that trial (notice delay-line-limit): the shortfall is the lab\u{2019}s, not the path\u{2019}s."
        } else {
            "That is below what counts as the limit of a measurement."
        };
        format!(
            "The lab\u{2019}s own effect in trial {trial}: its delay line{configured} released packets {} late in the median, {} at \
             the 99th percentile and {} at most{busy}{dropped}. {verdict}",
            time(self.late_p50_ns as f64),
            time(self.late_p99_ns as f64),
            time(self.late_max_ns as f64),
        )
    }
}

/// A plateau below the model.
#[derive(Debug)]
pub(crate) struct Shortfall {
    /// The trial that was diagnosed: the typical one of the fastest window of the plateau.
    pub(crate) trial: u32,
    trial_bps: f64,
    /// Smallest window of the plateau.
    pub(crate) from_bytes: f64,
    windows: usize,
    /// Lowest and highest median as a fraction of the model.
    shares: (f64, f64),
    /// Lowest and highest median.
    medians_bps: (f64, f64),
    /// Prediction of the model at the smallest and at the largest window.
    models_bps: (f64, f64),
    line: Option<LineShare>,
    delay_ns: Option<u64>,
    /// Absent where nothing that diagnoses was at hand.
    diagnosis: Option<Result<Diagnosis, String>>,
}

impl Shortfall {
    /// The shortfall of a window curve with the diagnosis of its trial.
    ///
    /// # Errors
    /// None of its own: a diagnosis that fails is part of what is reported.
    pub(crate) fn of(
        digest: &Digest,
        experiment: &ExperimentDigest,
        reader: &Reader,
        diagnose: Option<&Diagnose<'_>>,
    ) -> Result<Option<Self>, ReportError> {
        if experiment.spec.figure() != Kind::WindowCurve {
            return Ok(None);
        }
        let Some(mut found) = Self::seen(digest, experiment) else { return Ok(None) };
        found.diagnosis = diagnose.map(|diagnose| diagnose(reader, found.trial));
        Ok(Some(found))
    }

    fn seen(digest: &Digest, experiment: &ExperimentDigest) -> Option<Self> {
        let model = WindowModel::of(digest, experiment)?;
        let plateau = model.short_plateau();
        let (first, last) = (plateau.first()?, plateau.last()?);
        let ends = |of: &dyn Fn(usize) -> f64| {
            (0..plateau.len()).map(of).fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)))
        };
        let median = |index: usize| plateau[index].estimate.median;
        let allowed = |index: usize| model.model_bps(plateau[index].window);
        let fastest = plateau.iter().max_by(|a, b| a.estimate.median.total_cmp(&b.estimate.median))?;
        let trial = experiment.trials().find(|trial| trial.trial == fastest.trial)?;
        let link = digest.run.lab.as_ref().and_then(|lab| link::of(lab, experiment));
        Some(Self {
            trial: trial.trial,
            trial_bps: trial.goodput_bps,
            from_bytes: first.window,
            windows: plateau.len(),
            shares: ends(&|index| median(index) / allowed(index)),
            medians_bps: ends(&median),
            models_bps: (model.model_bps(first.window), model.model_bps(last.window)),
            line: trial.line,
            delay_ns: link.map(|link| link.delay.0),
            diagnosis: None,
        })
    }

    /// `54.2 to 64.9 %`.
    pub(crate) fn fraction_text(&self) -> String {
        range(&percent(self.shares.0), &percent(self.shares.1))
    }

    /// Of how many windows that is.
    pub(crate) fn how_sure(&self) -> String {
        match self.windows {
            1 => "median of one window".to_owned(),
            windows => format!("lowest to highest of the medians of {}", count(windows, "window")),
        }
    }

    /// Place, size and cause.
    pub(crate) fn finding(&self) -> String {
        format!(
            "From a window of {} on goodput stays at {} of the model: {} where window / RTT and the link allow {}; {}.",
            bytes(self.from_bytes),
            self.fraction_text(),
            range(&rate(self.medians_bps.0), &rate(self.medians_bps.1)),
            range(&rate(self.models_bps.0), &rate(self.models_bps.1)),
            self.limit()
        )
    }

    /// The limit, without a full stop.
    pub(crate) fn limit(&self) -> String {
        let trial = format!("trial {} ({})", self.trial, rate(self.trial_bps));
        match &self.diagnosis {
            Some(Ok(diagnosis)) => match &diagnosis.primary {
                Verdict::Found(finding) => {
                    format!("the diagnosis of {trial}: {}", sentence(&finding.sentence))
                }
                Verdict::Unknown { because, .. } => {
                    format!("the diagnosis of {trial} does not find the limit: {}", sentence(because))
                }
            },
            Some(Err(why)) => format!("{trial} could not be diagnosed: {}", sentence(why)),
            None => format!(
                "the cause is not in this report: `clearstream diagnose --from RUN --trial {}` searches for the limit",
                self.trial
            ),
        }
    }

    /// Evidence of the diagnosis, next step, and the lab's part.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(Ok(diagnosis)) = &self.diagnosis {
            match &diagnosis.primary {
                Verdict::Found(finding) => {
                    let shown = finding.evidence.iter().take(EVIDENCE);
                    let evidence: Vec<&str> = shown.map(|item| sentence(&item.statement)).collect();
                    if !evidence.is_empty() {
                        notes.push(format!("Evidence of the diagnosis: {}.", evidence.join("; ")));
                    }
                }
                Verdict::Unknown { experiment, .. } => {
                    notes.push(format!("Next step: {}.", sentence(&experiment.question)));
                }
            }
        }
        notes.extend(self.line.map(|line| line.sentence(self.trial, self.delay_ns)));
        notes
    }
}

/// A text without the full stop that the sentence round it has.
fn sentence(text: &str) -> &str {
    text.trim().trim_end_matches('.')
}
