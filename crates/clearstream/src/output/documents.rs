//! Every JSON document that the command prints, in one list. What is not in it
//! cannot be printed: [`Document`] is implemented here and nowhere else, and
//! [`Output`](super::Output) takes nothing else. The list makes the committed
//! schemas too (`schemas`).

use clearstream_explore::document::Exploration;
use clearstream_place::document::{Placement, Ranking, SteeredPorts};
use clearstream_prove::document::RouteVerification;
use clearstream_schema::{
    JsonSchema,
    congestion::CongestionControls,
    connections::Connections,
    diagnosis::Diagnosis,
    event::ErrorDocument,
    fabric::FabricFile,
    host::HostReport,
    improvement::Improvement,
    live::LiveSummary,
    plan::{Plan, Verification},
    provenance::Provenance,
    route_plan::RoutePlan,
    semantics::StorageSemantics,
    storage::{StreamSummary, comparison::StorageComparison, metadata::StorageMetadata},
    tune::LintReport,
    watch::{WatchEvent, WatchStatus},
};
use clearstream_study::{Comparison, ReferenceCheck, ScheduleTable, Trend};
use clearstream_workload::Verb;
use serde::Serialize;

use super::daemon::Served;
use crate::verbs::{
    cc::CcChange,
    compat::Iperf3Document,
    defaults::DefaultsDocument,
    deploy::Deployed,
    flow::{FlowDocument, FlowRuns},
    lab::{LabDown, LabFaults, LabList, LabState},
    pair::{PairingChange, Pairings},
    plan::{Applied, Confirmed, Journals, RecoveredJournals, RenderedPlan, Reverted},
    rdma::{PingDocument, RdmaDocument},
    runs::{PrunedRuns, RunList, RunOverview},
    study::{StudyEnd, StudyList},
};
#[cfg(debug_assertions)]
use crate::workloads;

/// A document with a name, a version and a committed schema.
pub trait Document: Serialize + listed::Listed {
    /// Its name, `clearstream.flow`.
    const SCHEMA: &'static str;
    /// Its version: readers of an older one have to be changed.
    const VERSION: u32;
    /// Where name and version are.
    const KEYS: Keys;
}

/// Where a document has the keys `schema` and `version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// In its type.
    Own,
    /// Put before its keys when it is printed.
    Added,
}

mod listed {
    /// Only the list below implements it.
    pub trait Listed {}
}

macro_rules! documents {
    ($($schema:literal $version:literal $keys:ident $document:ty;)*) => {
        $(
            impl listed::Listed for $document {}
            impl Document for $document {
                const SCHEMA: &'static str = $schema;
                const VERSION: u32 = $version;
                const KEYS: Keys = Keys::$keys;
            }
        )*

        /// The schemas of what verbs print.
        #[cfg(debug_assertions)]
        pub fn schemas() -> Vec<super::schemas::Published> {
            let mut all = vec![$(super::schemas::Published::printed::<$document>()),*];
            all.extend(workloads::all().verbs.iter().map(|verb| verb.published()));
            all
        }
    };
}

documents! {
    "clearstream.applied" 1 Added Applied<'_>;
    "clearstream.comparison" 2 Added Comparison;
    "clearstream.confirmed" 1 Added Confirmed;
    "clearstream.congestion-control-change" 1 Added CcChange<'_>;
    "clearstream.congestion-controls" 1 Added CongestionControls;
    "clearstream.connections" 1 Own Connections;
    "clearstream.defaults" 1 Added DefaultsDocument;
    "clearstream.deployed" 1 Added Deployed;
    "clearstream.diagnosis" 1 Own Diagnosis;
    "clearstream.error" 1 Own ErrorDocument;
    "clearstream.exploration" 1 Own Exploration;
    "clearstream.fabric" 1 Own FabricFile;
    "clearstream.flow" 1 Added FlowDocument<'_>;
    "clearstream.flow-runs" 1 Added FlowRuns<'_>;
    "clearstream.host" 1 Own HostReport;
    "clearstream.improvement" 1 Own Improvement;
    "clearstream.iperf3" 1 Added Iperf3Document<'_>;
    "clearstream.journals" 2 Added Journals;
    "clearstream.lab-down" 1 Added LabDown<'_>;
    "clearstream.lab-faults" 1 Added LabFaults<'_>;
    "clearstream.lab-list" 1 Added LabList<'_>;
    "clearstream.lab-state" 1 Added LabState<'_>;
    "clearstream.lint" 1 Own LintReport;
    "clearstream.live" 1 Own LiveSummary;
    "clearstream.pairing-change" 1 Added PairingChange<'_>;
    "clearstream.pairings" 2 Added Pairings<'_>;
    "clearstream.placement" 1 Own Placement;
    "clearstream.plan" 1 Own Plan;
    "clearstream.ports" 1 Own SteeredPorts;
    "clearstream.pruned-runs" 1 Added PrunedRuns;
    "clearstream.ranking" 1 Own Ranking;
    "clearstream.rdma" 1 Added RdmaDocument<'_>;
    "clearstream.rdma-ping" 1 Added PingDocument<'_>;
    "clearstream.recovered" 2 Added RecoveredJournals;
    "clearstream.rendered-plan" 1 Added RenderedPlan;
    "clearstream.rendered-routes" 1 Added clearstream_netconfig::routes::Summary;
    "clearstream.reverted" 1 Added Reverted;
    "clearstream.route-plan" 1 Own RoutePlan;
    "clearstream.route-proof" 1 Own RouteVerification;
    "clearstream.run-overview" 1 Added RunOverview;
    "clearstream.runs" 1 Added RunList;
    "clearstream.served" 1 Added Served;
    "clearstream.storage-semantics" 1 Own StorageSemantics;
    "clearstream.storage-metadata" 1 Own StorageMetadata;
    "clearstream.storage-comparison" 1 Added StorageComparison;
    "clearstream.storage-stream" 1 Added StreamSummary;
    "clearstream.study-check" 1 Added ReferenceCheck;
    "clearstream.study-end" 1 Added StudyEnd<'_>;
    "clearstream.study-list" 1 Added StudyList;
    "clearstream.study-plan" 1 Added ScheduleTable;
    "clearstream.trend" 1 Added Trend;
    "clearstream.verification" 1 Added Verification;
    "clearstream.watch-event" 1 Own WatchEvent;
    "clearstream.watch-status" 1 Own WatchStatus;
    "clearstream.written" 1 Added Written<'_>;
}

/// The document of a workload, which its contract names: the one kind that is not in the list.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Measured<W: Verb>(pub W::Document);

impl<W: Verb> listed::Listed for Measured<W> {}

impl<W: Verb> Document for Measured<W> {
    const SCHEMA: &'static str = W::DOCUMENT.0;
    const VERSION: u32 = W::DOCUMENT.1;
    const KEYS: Keys = Keys::Added;
}

/// Files that a verb wrote.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Written<'a> {
    /// Their paths, as they were named.
    pub files: &'a [String],
}

/// The document as it is printed.
#[derive(Serialize)]
struct Printed<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(flatten)]
    document: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    provenance: Option<&'a Provenance>,
}

/// The document with the keys that its type lacks, and where it comes from.
pub(super) fn named<'a, D: Document, T: Serialize>(
    document: &'a T,
    provenance: Option<&'a Provenance>,
) -> impl Serialize + 'a {
    let (schema, version) = match D::KEYS {
        Keys::Added => (Some(D::SCHEMA), Some(D::VERSION)),
        Keys::Own => (None, None),
    };
    Printed { schema, version, document, provenance }
}
