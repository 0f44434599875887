//! A record with what its figures have in common: the colours of labels, and the plateaus that stay below what window
//! and link allow.

use std::collections::BTreeMap;

use clearstream_record::Reader;

use crate::{
    digest::{Digest, ExperimentDigest},
    error::{Diagnose, ReportError},
    figures::{Palette, gateways, throughput},
    shortfall::Shortfall,
};

/// A record, read and analysed once for every format.
#[derive(Debug)]
pub(crate) struct Analysis {
    pub(crate) digest: Digest,
    /// Colours of labels, the same in the whole page.
    pub(crate) palette: Palette,
    /// By the name of the experiment.
    shortfalls: BTreeMap<String, Shortfall>,
}

impl Analysis {
    /// Reads a record; `diagnose` explains a trial that needs it.
    ///
    /// # Errors
    /// As [`Digest::read`].
    pub(crate) fn of(reader: &Reader, diagnose: Option<&Diagnose<'_>>) -> Result<Self, ReportError> {
        let digest = Digest::read(reader)?;
        let mut palette = Palette::default();
        for experiment in &digest.experiments {
            palette.add(&throughput::labels(experiment));
            palette.add(&gateways::labels(experiment));
        }
        let short = |experiment: &ExperimentDigest| {
            let found = Shortfall::of(&digest, experiment, reader, diagnose)?;
            Some((experiment.spec.name.clone(), found))
        };
        let shortfalls = digest.experiments.iter().filter_map(short).collect();
        Ok(Self { palette, shortfalls, digest })
    }

    /// The plateau of an experiment below the model, where there is one.
    pub(crate) fn shortfall(&self, experiment: &ExperimentDigest) -> Option<&Shortfall> {
        self.shortfalls.get(&experiment.spec.name)
    }
}
