//! A window curve that ends below what window and link allow: by how much, what
//! diagnosis of one of its trials, and the effect of the lab itself.

use clearstream_record::Reader;
use clearstream_schema::{
    diagnosis::{Diagnosis, Verdict},
    study::Figure as Kind,
};

use crate::{
    delay_lines::LineShare,
    digest::{Digest, ExperimentDigest},
    error::Diagnose,
    figures::window::{Remarks, WindowModel},
    format::{bytes, count, percent, range, rate},
    link,
};

/// Number of statements of the evidence shown.
const EVIDENCE: usize = 4;

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
    /// The shortfall of a window curve with the diagnosis of its trial; one that fails is reported as such.
    pub(crate) fn of(
        digest: &Digest,
        experiment: &ExperimentDigest,
        reader: &Reader,
        diagnose: Option<&Diagnose<'_>>,
    ) -> Option<Self> {
        if experiment.spec.figure() != Kind::WindowCurve {
            return None;
        }
        let mut found = Self::seen(digest, experiment)?;
        found.diagnosis = diagnose.map(|diagnose| diagnose(reader, found.trial));
        Some(found)
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
        let trial_bps = experiment.measured.of_trial(trial.trial, "goodput")?;
        let link = digest.run.lab.as_ref().and_then(|lab| link::of(lab, experiment));
        Some(Self {
            trial: trial.trial,
            trial_bps,
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
    fn finding(&self) -> String {
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

    /// For the figure of the curve.
    pub(crate) fn remarks(&self) -> Remarks {
        Remarks { finding: self.finding(), notes: self.notes() }
    }

    /// Evidence of the diagnosis, next step, and the lab's part.
    fn notes(&self) -> Vec<String> {
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
