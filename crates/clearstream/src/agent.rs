//! What an agent serves on its host: the calls of every engine.

use clearstream_control::Services;
use clearstream_flow::FlowAgent;
use clearstream_host::calls::HostAgent;
use clearstream_message::MessageAgent;
use clearstream_probe::ProbeAgent;
use clearstream_rdma::RdmaAgent;
use clearstream_route::wire::WireAgent;

use crate::guarded::controller::Plans;

/// The services of one session. What they own ends with it.
pub fn services() -> Services {
    Services::new()
        .with(HostAgent::default())
        .with(FlowAgent::default())
        .with(ProbeAgent::default())
        .with(MessageAgent::default())
        .with(WireAgent::default())
        .with(RdmaAgent::default())
        .with(Plans::default())
}
