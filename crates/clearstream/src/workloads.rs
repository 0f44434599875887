//! The workloads and factors that this program has, one line each: `with` those that have a verb of another shape, or
//! none, `with_verb` those whose verb is made of their contract.

use clearstream_explore::{Explore, LiveTraffic};
use clearstream_failover::{Failover, RoutesOver};
use clearstream_flow::{AllPairs, Flow};
use clearstream_messages::{Message, Overlap};
use clearstream_probe::Probe;
use clearstream_rdma::{Rdma, VerbsCalls};
use clearstream_storage::{StorageMetadataWorkload, StorageStream, semantics::StorageSemanticsWorkload};
use clearstream_workload::{Inspect, LinkDelay, LinkRate, Registry, Verb, Workload};

use crate::verbs::measure::{MeasuringVerb, Of};

/// Workloads and factors, and the verbs of those that have one.
#[derive(Default)]
pub struct Workloads {
    /// For studies, and for what agents serve.
    pub registry: Registry,
    /// For the command line.
    pub verbs: Vec<Box<dyn MeasuringVerb>>,
}

impl Workloads {
    fn with(mut self, workload: impl Workload) -> Self {
        self.registry = self.registry.with(workload);
        self
    }

    fn with_verb<W: Verb>(mut self, workload: W) -> Self {
        self.verbs.push(Box::new(Of::<W>::default()));
        self.with(workload)
    }
}

/// All of them.
pub fn all() -> Workloads {
    let mut all = Workloads::default()
        .with(Flow)
        .with(AllPairs)
        .with_verb(Probe)
        .with_verb(Message)
        .with_verb(Overlap)
        .with(Explore)
        .with(LiveTraffic)
        .with(Rdma)
        .with(VerbsCalls)
        .with(StorageStream)
        .with(StorageMetadataWorkload)
        .with(StorageSemanticsWorkload)
        .with(Inspect)
        .with(Failover);
    all.registry = all.registry.with_factor(RoutesOver).with_factor(LinkDelay).with_factor(LinkRate);
    all
}

/// The workloads and factors alone.
pub fn registry() -> Registry {
    all().registry
}
