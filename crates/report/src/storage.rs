//! What trials of storage say beside their metrics: which hosts measured, and what may have come from
//! a client's cache.

use clearstream_schema::{
    outcome::Outcome,
    semantics::{STORAGE_SEMANTICS_SCHEMA, StorageSemantics},
    storage::{
        ClientCache, STORAGE_STREAM_SCHEMA, StreamSummary,
        metadata::{STORAGE_METADATA_SCHEMA, StorageMetadata},
    },
};

use crate::error::{ReportError, detail};

/// A trial of storage.
#[derive(Debug, Default)]
pub(crate) struct StorageFacts {
    /// Hosts whose calls were measured; an absent name is the host of the client.
    pub(crate) clients: Vec<Option<String>>,
    /// Metrics that may have come from a client's cache.
    pub(crate) cached: Vec<String>,
}

impl StorageFacts {
    /// Of a trial; nothing of a workload that does not measure storage.
    pub(crate) fn of(outcome: &Outcome, trial: u32) -> Result<Option<Self>, ReportError> {
        if let Some(found) = detail::<StreamSummary>(outcome, STORAGE_STREAM_SCHEMA, trial)? {
            return Ok(Some(of_stream(outcome, &found)));
        }
        if let Some(found) = detail::<StorageMetadata>(outcome, STORAGE_METADATA_SCHEMA, trial)? {
            return Ok(Some(of_metadata(&found)));
        }
        let found = detail::<StorageSemantics>(outcome, STORAGE_SEMANTICS_SCHEMA, trial)?;
        Ok(found.map(|found| {
            let mounts = std::iter::once(found.mount).chain(found.peer);
            Self { clients: mounts.map(|mount| mount.host).collect(), cached: Vec::new() }
        }))
    }
}

fn of_stream(outcome: &Outcome, found: &StreamSummary) -> StorageFacts {
    let ranks = found.points.iter().flat_map(|point| &point.ranks).map(|rank| Some(rank.host.clone()));
    // Threads of one process know their host by the summary, which has its name in a lab.
    let clients = match &found.requested.hosts {
        Some(_) => ranks.collect(),
        None => vec![found.host.clone()],
    };
    let has = |id: &str| found.notices.iter().any(|notice| notice.id == id);
    let of_phase = |phase: &str| {
        let all = outcome.metrics.iter().filter(move |metric| metric.name.starts_with(phase));
        all.map(|metric| metric.name.clone()).collect::<Vec<_>>()
    };
    let mut cached = Vec::new();
    for (id, phase) in [("read-may-be-cached", "read-"), ("write-may-be-cached", "write-")] {
        cached.extend(has(id).then(|| of_phase(phase)).into_iter().flatten());
    }
    StorageFacts { clients, cached }
}

fn of_metadata(found: &StorageMetadata) -> StorageFacts {
    let is_cached =
        |cache: Option<ClientCache>| matches!(cache, Some(ClientCache::Possible | ClientCache::Advised));
    let cached = found.summary.iter().filter(|of| is_cached(of.client_cache));
    StorageFacts {
        clients: found.hosts.iter().cloned().map(Some).collect(),
        cached: cached.map(|of| format!("{}-{}", of.kind.name(), of.operation.name())).collect(),
    }
}
