//! The workloads and factors that this program has, one line each.

use clearstream_explore::{Explore, LiveTraffic};
use clearstream_failover::{Failover, RoutesOver};
use clearstream_flow::{AllPairs, Flow};
use clearstream_message::Message;
use clearstream_overlap::Overlap;
use clearstream_probe::Probe;
use clearstream_rdma::{Rdma, VerbsCalls};
use clearstream_storage::{
    metadata::StorageMetadataWorkload, semantics::StorageSemanticsWorkload, stream::StorageStream,
};
use clearstream_workload::{Inspect, LinkDelay, LinkRate, Registry};

/// All of them.
pub fn registry() -> Registry {
    Registry::default()
        .with(Flow)
        .with(AllPairs)
        .with(Probe)
        .with(Message)
        .with(Overlap)
        .with(Explore)
        .with(LiveTraffic)
        .with(Rdma)
        .with(VerbsCalls)
        .with(StorageStream)
        .with(StorageMetadataWorkload)
        .with(StorageSemanticsWorkload)
        .with(Inspect)
        .with(Failover)
        .with_factor(RoutesOver)
        .with_factor(LinkDelay)
        .with_factor(LinkRate)
}
