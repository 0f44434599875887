//! `clearstream rdma`

mod ping;
pub mod run;
mod serve;
mod spreload;
mod transfer;

use std::net::{IpAddr, SocketAddr};

use clap::Subcommand;
use clearstream_control::{Peer, encoding};
use clearstream_rdma::{Cookie, calls::Serve};
use clearstream_schema::rdma::RdmaOperation;

use crate::{
    endpoints::{FamilyArgs, agent_command, resolve},
    exit::CommandError,
    output::Output,
};

pub use self::{ping::PingDocument, transfer::RdmaDocument};

/// RDMA over TCP in software: ping, bandwidth, latency. No card, no module.
#[derive(Debug, Subcommand)]
pub enum RdmaVerb {
    /// Exchange pings with rping or clearstream: rounds of Send, Read and Write
    Ping(ping::PingArgs),
    /// Measure Send into posted receives
    Send(Box<transfer::TransferArgs>),
    /// Measure RDMA Write into the peer's memory
    Write(Box<transfer::TransferArgs>),
    /// Measure RDMA Read from the peer's memory
    Read(Box<transfer::TransferArgs>),
    /// Run a program that uses libibverbs and librdmacm, without a card
    Run(run::RunArgs),
    /// Serve pings and measurements of other hosts, until Ctrl-C
    Serve(serve::ServeArgs),
}

impl RdmaVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::Ping(args) => args.run(out),
            Self::Send(args) => args.run(RdmaOperation::Send, out),
            Self::Write(args) => args.run(RdmaOperation::Write, out),
            Self::Read(args) => args.run(RdmaOperation::Read, out),
            Self::Run(args) => args.run(out),
            Self::Serve(args) => args.run(out),
        }
    }
}

/// Address of the server.
#[derive(Debug, clap::Args)]
struct TargetArgs {
    /// Where `clearstream rdma serve` or another server listens: a name or ADDRESS[:PORT]
    #[arg(value_name = "SERVER")]
    host: Option<String>,
    /// Port of the server (default: 7174, 18515 with --perftest, any free one with --to)
    #[arg(long, short = 'p', visible_alias = "destination-port", value_name = "PORT")]
    port: Option<u16>,
    /// Start a temporary server on this host
    #[arg(long, conflicts_with = "host")]
    local: bool,
}

/// A server, and the session that keeps it alive.
struct Target {
    address: SocketAddr,
    /// Cookie that the server of `--local` expects.
    cookie: Option<Cookie>,
    /// Agent with the server of `--local`, which ends with its session.
    _agent: Option<Peer>,
}

impl TargetArgs {
    /// Resolves the address, or starts the server of `--local`.
    fn find(&self, default_port: u16, family: FamilyArgs) -> Result<Target, CommandError> {
        match (&self.host, self.local) {
            (Some(host), _) => {
                let address = resolve(host, self.port.unwrap_or(default_port), family)?;
                Ok(Target { address, cookie: None, _agent: None })
            }
            (None, true) => start_local_server(self.port, family.loopback()),
            (None, false) => Err(CommandError::usage(
                "name the server, where `clearstream rdma serve` listens, or write --local to start one on this host",
            )),
        }
    }
}

/// Starts an agent with a server on loopback.
fn start_local_server(port: Option<u16>, address: IpAddr) -> Result<Target, CommandError> {
    let mut agent = clearstream_control::spawn(agent_command()?, "server")?;
    let cookie: Cookie = rand::random();
    let named = clearstream_schema::control::Cookie(encoding::hex(&cookie));
    let listening = agent.call(&Serve { address, port, cookie: Some(named), peer: Some(address) })?;
    Ok(Target { address: listening.address, cookie: Some(cookie), _agent: Some(agent) })
}
