//! Evidence of a diagnosis, gathered now or read from a record.

use clearstream_record::{Reader, RecordError};
use clearstream_schema::{
    BitRate,
    control::FailureKind,
    diagnosis::ExperimentKind,
    failure::Classified,
    flow::{FLOW_SUMMARY_SCHEMA, FlowConfig, FlowSummary, Interval, Protocol},
    host::HostReport,
    notice::Notice,
    probe::{PROBE_SUMMARY_SCHEMA, ProbeSummary},
    record::TrialDocument,
};
use serde::{Deserialize, Serialize};

use crate::facts::Facts;

/// All evidence of a path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The end that connects.
    pub client: HostReport,
    /// The end that waits.
    pub server: HostReport,
    /// Delay, loss and path MTU.
    pub probe: Option<ProbeSummary>,
    /// Flows; the first is the one diagnosed, the others are experiments.
    pub flows: Vec<FlowObservation>,
    /// Rate that is wanted of the path, where it was given.
    pub goal: Option<BitRate>,
    /// Rate of the line between the hosts: of a lab's only link; of a record outside of a lab that
    /// of the slower of the two interfaces that carried the flow, where both are cards.
    #[serde(default)]
    pub line_rate: Option<BitRate>,
    /// Facts that could not be gathered.
    pub notices: Vec<Notice>,
}

/// A flow that was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowObservation {
    /// The parameter that it varies of the flow diagnosed.
    pub kind: ExperimentKind,
    /// As requested.
    pub config: FlowConfig,
    /// Its intervals, warm-up included.
    pub intervals: Vec<Interval>,
    /// Its figures; absent when it could not be run.
    pub summary: Option<FlowSummary>,
    /// Reason for ending early or not running.
    pub failure: Option<String>,
}

impl FlowObservation {
    /// Goodput after the warm-up.
    pub fn goodput_bps(&self) -> f64 {
        self.summary.as_ref().map_or(0.0, |summary| summary.goodput_bps)
    }
}

/// Reason why a record is no evidence.
#[derive(Debug, thiserror::Error)]
pub enum RecordEvidenceError {
    /// It could not be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// No flow in it.
    #[error("the run {id} has no finished TCP flow to diagnose")]
    NoFlow {
        /// The run.
        id: String,
    },
    /// The trial requested is none.
    #[error("trial {trial} of the run {id} is no finished flow: `clearstream report` lists the trials")]
    NoTrial {
        /// The run.
        id: String,
        /// As requested.
        trial: u32,
    },
}

impl Classified for RecordEvidenceError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Record(error) => error.failure_kind(),
            Self::NoFlow { .. } | Self::NoTrial { .. } => FailureKind::Name,
        }
    }
}

impl Evidence {
    /// Evidence out of a record alone. Without a trial number the flow with
    /// the highest goodput is diagnosed: what kept the best from being better.
    ///
    /// # Errors
    /// When the record cannot be read or has no such flow.
    pub fn from_record(reader: &Reader, trial: Option<u32>) -> Result<Self, RecordEvidenceError> {
        let run = reader.run();
        let mut probe = None;
        let mut best: Option<(TrialDocument, FlowSummary)> = None;
        for document in reader.trials()? {
            let document = document?;
            let Some(outcome) = document.outcome.measured() else { continue };
            if let Some(Ok(summary)) = outcome.detail::<ProbeSummary>(PROBE_SUMMARY_SCHEMA) {
                probe = Some(summary);
            } else if let Some(Ok(summary)) = outcome.detail::<FlowSummary>(FLOW_SUMMARY_SCHEMA)
                && takes(&document, &summary, trial)
                && best.as_ref().is_none_or(|(_, best)| summary.goodput_bps > best.goodput_bps)
            {
                best = Some((document, summary));
            }
        }
        let Some((document, summary)) = best else {
            let id = run.id.clone();
            return Err(match trial {
                Some(trial) => RecordEvidenceError::NoTrial { id, trial },
                None => RecordEvidenceError::NoFlow { id },
            });
        };
        let intervals = reader.samples(&document)?.collect::<Result<Vec<Interval>, RecordError>>()?;
        let notice = Notice {
            id: "from-record".to_owned(),
            message: format!(
                "trial {} of {} ({}), recorded {}: no experiment was run",
                document.trial, run.id, document.experiment, document.started
            ),
        };
        let mut evidence = Self {
            client: run.host("client").cloned().unwrap_or_default(),
            server: run.host("server").cloned().unwrap_or_default(),
            probe,
            flows: vec![FlowObservation {
                kind: ExperimentKind::AsRequested,
                config: summary.requested.clone(),
                intervals,
                summary: Some(summary),
                failure: None,
            }],
            goal: None,
            line_rate: None,
            notices: vec![notice],
        };
        evidence.line_rate = match &run.lab {
            Some(lab) => lab.line_rate(),
            None => slower_card(&evidence),
        };
        Ok(evidence)
    }
}

/// Line rate of the slower of the two cards that carried the flow.
fn slower_card(evidence: &Evidence) -> Option<BitRate> {
    let facts = Facts::of(evidence)?;
    let rates: Option<Vec<u64>> = facts.parts().into_iter().map(|part| part.nic?.line_rate_bps()).collect();
    rates?.into_iter().min().map(BitRate)
}

fn takes(document: &TrialDocument, summary: &FlowSummary, trial: Option<u32>) -> bool {
    match trial {
        Some(trial) => document.trial == trial,
        None => summary.requested.protocol == Protocol::Tcp,
    }
}
