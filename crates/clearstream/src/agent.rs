//! What an agent serves on its host: the calls of every engine.

use clearstream_control::Services;
use clearstream_diagnose::passive::SocketAgent;
use clearstream_host::calls::HostAgent;
use clearstream_live::LiveAgent;
use clearstream_plan::Plans;
use clearstream_prove::ProofAgent;
use clearstream_storage::{
    StorageAgent,
    semantics::{ProcessCommands, SemanticsAgent},
};

use crate::{
    verbs::{
        plan::guarded_for_agent,
        storage::{guardian, operations},
    },
    workloads,
};

/// The services of an agent with a process of its own. A daemon does not have the file operations among them: they are
/// those of the user who starts the agent.
pub fn services_of_process() -> Services {
    let commands = ProcessCommands { guard: guardian, operations };
    services().with(SemanticsAgent::new(commands)).with(StorageAgent::new(guardian))
}

/// The services of one session. What they own ends with it.
pub fn services() -> Services {
    let own = Services::new()
        .with(HostAgent::default())
        .with(SocketAgent::default())
        .with(LiveAgent::default())
        .with(ProofAgent::default())
        .with(Plans::new(guarded_for_agent));
    workloads::registry().serve(own)
}
