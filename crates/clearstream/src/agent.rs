//! What an agent serves on its host: the calls of every engine.

use clearstream_control::Services;
use clearstream_diagnose::passive::SocketAgent;
use clearstream_explore::ExploreAgent;
use clearstream_flow::FlowAgent;
use clearstream_host::calls::HostAgent;
use clearstream_live::LiveAgent;
use clearstream_message::MessageAgent;
use clearstream_overlap::OverlapAgent;
use clearstream_plan::Plans;
use clearstream_probe::ProbeAgent;
use clearstream_prove::ProofAgent;
use clearstream_rdma::RdmaAgent;
use clearstream_storage::{
    StorageAgent,
    semantics::{ProcessCommands, SemanticsAgent},
};

use crate::verbs::{
    plan::guarded_for_agent,
    storage::{guardian, operations},
};

/// The services of an agent with a process of its own. A daemon does not have the file operations among them: they are
/// those of the user who starts the agent.
pub fn services_of_process() -> Services {
    let commands = ProcessCommands { guard: guardian, operations };
    services().with(SemanticsAgent::new(commands)).with(StorageAgent::new(guardian))
}

/// The services of one session. What they own ends with it.
pub fn services() -> Services {
    Services::new()
        .with(HostAgent::default())
        .with(SocketAgent::default())
        .with(LiveAgent::default())
        .with(FlowAgent::default())
        .with(ProbeAgent::default())
        .with(MessageAgent::default())
        .with(OverlapAgent::default())
        .with(ExploreAgent::default())
        .with(ProofAgent::default())
        .with(RdmaAgent::default())
        .with(Plans::new(guarded_for_agent))
}
