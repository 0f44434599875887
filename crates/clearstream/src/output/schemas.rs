//! JSON schemas of all documents, made out of their types: `tests/it/schemas.rs` compares the committed ones with them.

use clearstream_iperf3::document::Iperf3Interval;
use clearstream_messages::message::{MessagePoint, MessageSummary};
use clearstream_messages::overlap::{OverlapPoint, OverlapSummary};
use clearstream_rdma::{VerbsSample, VerbsSummary};
use clearstream_schema::{
    JsonSchema,
    all_pairs::{AllPairsSummary, PairGoodput},
    config::ConfigFile,
    event::Event,
    flow::{FlowSummary, Interval},
    gateways::GatewaySummary,
    hosts::HostsFile,
    lab::LabFile,
    live::LiveSample,
    probe::ProbeSummary,
    provenance::Provenance,
    rdma::{PingSummary, RdmaSample, RdmaSummary},
    record::{RunDocument, TrialDocument},
    storage::{StreamPoint, StreamSummary, metadata::MetadataPhase},
    study::StudyFile,
};
use clearstream_workload::Verb;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;

use super::documents::{Document, Keys};

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

impl Published {
    /// Of what a verb prints.
    pub fn printed<D: Document + JsonSchema>() -> Self {
        let json_schema = || match D::KEYS {
            Keys::Added => named::<D>(D::SCHEMA),
            Keys::Own => with_provenance(json_schema::<D>()),
        };
        Self { schema: D::SCHEMA, version: D::VERSION, json_schema }
    }

    /// Of what the verb of a workload prints.
    pub fn measured<W: Verb>() -> Self {
        let (schema, version) = W::DOCUMENT;
        Self { schema, version, json_schema: || named::<W::Document>(W::DOCUMENT.0) }
    }
}

/// The schema of a document that gets name and version when it is printed.
fn named<T: JsonSchema>(name: &str) -> Value {
    let mut schema = json_schema::<Named<T>>();
    schema["title"] = name.into();
    with_provenance(schema)
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
