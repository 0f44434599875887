//! Every JSON document that the command prints, in one list. What is not in it
//! cannot be printed: [`Document`] is implemented here and nowhere else, and
//! [`Output`](super::Output) takes nothing else. The list makes the committed
//! schemas too (`tests/it/schemas.rs`).

use clearstream_schema::{
    all_pairs::{AllPairsSummary, PairGoodput},
    config::ConfigFile,
    congestion::CongestionControls,
    connections::Connections,
    diagnosis::Diagnosis,
    event::{ErrorDocument, Event},
    exploration::Exploration,
    fabric::FabricFile,
    flow::{FlowSummary, Interval},
    gateways::GatewaySummary,
    host::HostReport,
    hosts::HostsFile,
    improvement::Improvement,
    iperf3::Iperf3Interval,
    lab::LabFile,
    live::{LiveSample, LiveSummary},
    message::{MessagePoint, MessageSummary},
    overlap::{OverlapPoint, OverlapSummary},
    place::{Placement, Ranking, SteeredPorts},
    plan::{Plan, Verification},
    probe::ProbeSummary,
    proof::RouteVerification,
    provenance::Provenance,
    rdma::{PingSummary, RdmaSample, RdmaSummary, VerbsSample, VerbsSummary},
    record::{RunDocument, TrialDocument},
    route_plan::RoutePlan,
    semantics::StorageSemantics,
    storage::{
        StreamPoint, StreamSummary,
        comparison::StorageComparison,
        metadata::{MetadataPhase, StorageMetadata},
    },
    study::StudyFile,
    tune::LintReport,
    watch::{WatchEvent, WatchStatus},
};
use clearstream_study::{Comparison, ReferenceCheck, ScheduleTable, Trend};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::Serialize;
use serde_json::Value;

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

/// A document that has a committed schema.
#[derive(Debug, Clone, Copy)]
pub struct Published {
    /// Its name, `clearstream.flow`.
    pub schema: &'static str,
    /// Its version.
    pub version: u32,
    /// Makes its JSON schema out of its type (draft 2020-12).
    pub json_schema: fn() -> Value,
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

        /// What verbs print.
        pub fn printed() -> Vec<Published> {
            vec![$(Published {
                schema: $schema,
                version: $version,
                json_schema: || match Keys::$keys {
                    Keys::Added => {
                        let mut schema = json_schema::<Named<$document>>();
                        schema["title"] = $schema.into();
                        with_provenance(schema)
                    }
                    Keys::Own => with_provenance(json_schema::<$document>()),
                },
            }),*]
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
    "clearstream.message" 1 Added MessageSummary;
    "clearstream.overlap" 1 Added OverlapSummary;
    "clearstream.placement" 1 Own Placement;
    "clearstream.plan" 1 Own Plan;
    "clearstream.ports" 1 Own SteeredPorts;
    "clearstream.probe" 1 Added ProbeSummary;
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

/// Documents that stand in files, in records or in events.
pub fn kept() -> Vec<Published> {
    macro_rules! kept {
        ($($schema:literal $version:literal $document:ty;)*) => {
            vec![$(Published { schema: $schema, version: $version, json_schema: json_schema::<$document> }),*]
        };
    }
    kept! {
        "clearstream.all-pairs" 1 AllPairsSummary;
        "clearstream.config" 1 ConfigFile;
        "clearstream.event" 1 Event;
        "clearstream.flow-summary" 1 FlowSummary;
        "clearstream.gateways" 1 GatewaySummary;
        "clearstream.hosts" 1 HostsFile;
        "clearstream.interval" 1 Interval;
        "clearstream.iperf3-interval" 1 Iperf3Interval;
        "clearstream.lab" 1 LabFile;
        "clearstream.live-sample" 1 LiveSample;
        "clearstream.message-point" 1 MessagePoint;
        "clearstream.message-summary" 1 MessageSummary;
        "clearstream.overlap-point" 1 OverlapPoint;
        "clearstream.overlap-summary" 1 OverlapSummary;
        "clearstream.storage-metadata-phase" 1 MetadataPhase;
        "clearstream.storage-stream-point" 1 StreamPoint;
        "clearstream.storage-stream-summary" 1 StreamSummary;
        "clearstream.pair-goodput" 1 PairGoodput;
        "clearstream.probe-summary" 1 ProbeSummary;
        "clearstream.rdma-ping-summary" 1 PingSummary;
        "clearstream.rdma-sample" 1 RdmaSample;
        "clearstream.rdma-summary" 1 RdmaSummary;
        "clearstream.run" 2 RunDocument;
        "clearstream.study" 1 StudyFile;
        "clearstream.trial" 2 TrialDocument;
        "clearstream.verbs-calls" 1 VerbsSummary;
        "clearstream.verbs-sample" 1 VerbsSample;
    }
}

/// Files that a verb wrote.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Written<'a> {
    /// Their paths, as they were named.
    pub files: &'a [String],
}

/// The schema of a document with its name and version before its keys.
#[derive(Debug, Serialize, JsonSchema)]
struct Named<T> {
    /// Name of the format.
    schema: &'static str,
    /// Version of the format.
    version: u32,
    #[serde(flatten)]
    document: T,
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

/// The schema of a document with the key `provenance`, which documents of
/// before do not have.
fn with_provenance(mut schema: Value) -> Value {
    let mut own = json_schema::<Provenance>();
    let mut definitions = own["$defs"].take();
    if let (Some(own), Some(definitions)) = (own.as_object_mut(), definitions.as_object_mut()) {
        own.retain(|key, _| !matches!(key.as_str(), "$schema" | "$defs"));
        definitions.insert("Provenance".to_owned(), Value::Object(own.clone()));
        let all = schema["$defs"].as_object_mut();
        match all {
            Some(all) => all.append(definitions),
            None => schema["$defs"] = Value::Object(definitions.clone()),
        }
    }
    schema["properties"]["provenance"] = serde_json::json!({ "$ref": "#/$defs/Provenance" });
    schema
}

fn json_schema<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value()
}
