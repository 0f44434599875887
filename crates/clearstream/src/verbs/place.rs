//! `clearstream place`

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Subcommand;
use clearstream_host::{HostRoot, calls::Inspect, capture};
use clearstream_place::document::Role;
use clearstream_place::{
    path::PathHash,
    placement, rank,
    search::PortSpace,
    steering::{self, Request},
};
use clearstream_schema::{
    CoreList,
    flow::Protocol,
    host::{HostReport, Nic, Rss},
};

use clearstream_workload::HostSet;

use crate::{
    endpoints::{Endpoints, HostArgs, PathArgs},
    exit::CommandError,
    files,
    output::{Output, Unwritten, place},
    steer::Chosen,
};

/// Where interrupts, queues, processes and flows belong.
#[derive(Debug, Subcommand)]
pub enum PlaceVerb {
    /// Rank the cores for the interrupts, readers and writers of an interface
    Rank(RankArgs),
    /// Plan queues, interrupt affinities, steering masks and process cores
    Plan(PlanArgs),
    /// Find source ports that RSS maps to the requested receive queues
    Ports(Box<PortsArgs>),
}

impl PlaceVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::Rank(args) => args.run(out),
            Self::Plan(args) => args.run(out),
            Self::Ports(args) => args.run(out),
        }
    }
}

/// Rank the cores of a host for an interface.
#[derive(Debug, clap::Args)]
pub struct RankArgs {
    /// Interface
    interface: String,
    /// Show one role only
    #[arg(long, value_enum)]
    role: Option<Role>,
    /// Rank readers and writers against this core (default: the first queue's interrupt core)
    #[arg(long, value_name = "CORE")]
    interrupt_core: Option<u32>,
    /// Rank for a captured host instead of this one
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

impl RankArgs {
    fn run(self, out: &Output) -> Result<(), CommandError> {
        let (_, host) = describe(self.from.as_ref())?;
        let mut ranking = rank::rank(&host, &self.interface, self.interrupt_core)?;
        ranking.roles.retain(|ranked| self.role.is_none_or(|role| ranked.role == role));
        Ok(out.result(&ranking, || place::ranking(&ranking))?)
    }
}

/// Plan the placement of an interface.
#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// Interface
    interface: String,
    /// Flows to place: each gets a queue and a core where there are enough
    #[arg(long, short = 'P', value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    flows: u32,
    /// Plan for a captured host instead of this one
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Write the plan for `clearstream plan apply`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl PlanArgs {
    fn run(self, out: &Output) -> Result<(), CommandError> {
        let (root, host) = describe(self.from.as_ref())?;
        let placement = placement::plan(&root, &host, &self.interface, self.flows)?;
        if let Some(path) = &self.out {
            let text =
                clearstream_schema::json::to_string_pretty(&placement.plan).map_err(Unwritten::from)?;
            files::write(path, &(text + "\n"))?;
        }
        Ok(out.result(&placement, || {
            let text = place::placement(&placement);
            match &self.out {
                Some(path) => format!("{text}\n\nplan written: clearstream plan apply {}", path.display()),
                None => text,
            }
        })?)
    }
}

/// Find source ports.
#[derive(Debug, clap::Args)]
pub struct PortsArgs {
    /// The receiver.
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    path: PathArgs,
    /// Flows to find a port for
    #[arg(long, short = 'P', value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    flows: u32,
    /// Port that the receiver listens on
    #[arg(long, short = 'p', visible_alias = "destination-port", value_name = "PORT", default_value_t = steering::DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Protocol of the flows
    #[arg(long, value_enum, default_value_t = Protocol::Tcp)]
    protocol: Protocol,
    /// Receive queues, assigned to the flows round-robin (default: all)
    #[arg(long, value_name = "LIST")]
    queues: Option<CoreList>,
    /// Queues of the acknowledgements at the sender, assigned to the flows round-robin
    #[arg(long, value_name = "LIST")]
    ack_queues: Option<CoreList>,
    /// Hash by which a path or link aggregate selects its member: linux:SEED:WEIGHT+WEIGHT, toeplitz:KEY:MEMBERS, xor:MEMBERS, crc32:MEMBERS
    #[arg(long, value_name = "HASH")]
    path_hash: Option<PathHash>,
    /// Observed members: a file with a source port and a member on each line
    #[arg(long, value_name = "FILE", conflicts_with = "path_hash")]
    path_table: Option<PathBuf>,
    /// Path members, assigned to the flows round-robin
    #[arg(long, value_name = "LIST")]
    members: Option<CoreList>,
    /// Interface of the receiver; needed where several have receive queues
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Interface of the sender
    #[arg(long, value_name = "NAME")]
    sender_interface: Option<String>,
    /// Captured receiver, instead of querying it (with --source and --address)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["HostArgs", "lab"])]
    from_receiver: Option<PathBuf>,
    /// Captured sender (default: this host)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["HostArgs", "lab"])]
    from_sender: Option<PathBuf>,
    /// Address of the sender, where no host is queried
    #[arg(long, value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// Toeplitz key of the receiver as `ethtool -x` prints it, instead of querying it (with --source and --address)
    #[arg(long, value_name = "HEX", requires = "queue_count", conflicts_with_all = ["HostArgs", "lab", "from_receiver"])]
    key: Option<String>,
    /// Receive queues of the receiver, with --key: assumes an indirection table of 128 entries, round-robin
    #[arg(long, value_name = "COUNT", requires = "key", value_parser = clap::value_parser!(u32).range(2..=1024))]
    queue_count: Option<u32>,
}

/// Both hosts and the addresses between them.
struct Between {
    receiver: HostReport,
    sender: HostReport,
    source: IpAddr,
    destination: IpAddr,
    /// The sender is this host, so that its sockets can be inspected.
    sender_here: bool,
}

impl PortsArgs {
    fn run(self, out: &Output) -> Result<(), CommandError> {
        let between = self.between(out)?;
        let receiver =
            steering::receiving_interface(&between.receiver, self.interface.as_deref(), between.destination)?;
        let sender =
            steering::receiving_interface(&between.sender, self.sender_interface.as_deref(), between.source);
        let sender = match (sender, self.ack_queues.is_some() || self.sender_interface.is_some()) {
            (Ok(nic), _) => Some(nic),
            (Err(error), true) => return Err(error.into()),
            (Err(_), false) => None,
        };
        let list = |list: &Option<CoreList>| list.clone().unwrap_or_default().0;
        let request = Request {
            source: SocketAddr::new(between.source, 0),
            destination: SocketAddr::new(between.destination, self.port),
            protocol: self.protocol,
            flows: self.flows,
            receive_queues: list(&self.queues),
            acknowledgement_queues: list(&self.ack_queues),
            path: self.path()?,
            members: list(&self.members),
        };
        let mut space = PortSpace::of_host(&between.sender);
        if between.sender_here {
            space.exclude_taken(&HostRoot::live());
        }
        let ports = steering::steer(&request, (&between.receiver, receiver), sender, &mut space)
            .map_err(clearstream_place::PlaceError::from)?;
        Ok(out.result(&ports, || place::ports(&ports))?)
    }

    fn between(&self, out: &Output) -> Result<Between, CommandError> {
        if self.key.is_none() && self.from_receiver.is_none() {
            let mut ends = Endpoints::open(self.host.name(), &self.path)?;
            out.set_hosts(ends.identities());
            let mut hosts = ends.hosts()?;
            let sender_here = hosts.lab().is_none();
            let (client, server) = hosts.client_and_server()?;
            let source = self.source.or(client.address).ok_or_else(|| {
                CommandError::usage(
                    "the address that the flows leave from is not known: write it with --source",
                )
            })?;
            return Ok(Between {
                receiver: server.peer.call(&Inspect {})?,
                sender: client.peer.call(&Inspect {})?,
                source,
                destination: server.known_address()?,
                sender_here,
            });
        }
        let (Some(source), Some(destination)) = (self.source, self.path.address) else {
            return Err(CommandError::usage(
                "no host is queried, so both addresses are needed: --source ADDRESS --address ADDRESS",
            ));
        };
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(CommandError::usage(
                "--source and --address are of different families: write two of one",
            ));
        }
        let receiver = match (&self.from_receiver, &self.key) {
            (Some(path), _) => describe(Some(path))?.1,
            (None, key) => typed(key.clone().unwrap_or_default(), self.queue_count.unwrap_or(2)),
        };
        let (_, sender) = describe(self.from_sender.as_ref())?;
        Ok(Between { receiver, sender, source, destination, sender_here: self.from_sender.is_none() })
    }

    fn path(&self) -> Result<Option<PathHash>, CommandError> {
        let Some(path) = &self.path_table else { return Ok(self.path_hash.clone()) };
        let text = files::read_text(path)?;
        let mut seen = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let mut fields = line.split_whitespace();
            match (fields.next().map(str::parse), fields.next().map(str::parse), fields.next()) {
                (Some(Ok(port)), Some(Ok(member)), None) => seen.push((port, member)),
                _ => {
                    return Err(CommandError::Usage(format!(
                        "{}: line {}: write a source port and a member, as in \"40000 1\"",
                        path.display(),
                        at + 1
                    )));
                }
            }
        }
        Ok(Some(PathHash::Observed(seen)))
    }
}

/// A receiver of which only key and queue count are known.
fn typed(key: String, queue_count: u32) -> HostReport {
    const ENTRIES: u32 = 128;
    let rss = Rss {
        hash_function: Some("toeplitz".to_owned()),
        key: Some(key),
        indirection: (0..ENTRIES).map(|entry| entry % queue_count).collect(),
        ..Rss::default()
    };
    let nic = Nic { name: "the receiver".to_owned(), rss: Some(rss), ..Nic::default() };
    HostReport { nics: vec![nic], ..HostReport::default() }
}

/// This host, or a captured one, with the root that it was read from.
fn describe(from: Option<&PathBuf>) -> Result<(HostRoot, HostReport), CommandError> {
    let Some(path) = from else {
        let root = HostRoot::live();
        let host = clearstream_host::inspect(&root);
        return Ok((root, host));
    };
    let captured = capture::open(path)?;
    Ok((captured.root().clone(), clearstream_host::inspect(captured.root())))
}

/// Ports for the flows of a test between two agents, the client sending.
pub fn steer_test(
    hosts: &mut HostSet<'_>,
    config: &clearstream_schema::flow::FlowConfig,
) -> Result<Result<Chosen, String>, CommandError> {
    let in_lab = hosts.lab().is_some();
    let (client, server) = hosts.client_and_server()?;
    let destination = server.known_address()?;
    let receiver = server.peer.call(&Inspect {})?;
    let sender = client.peer.call(&Inspect {})?;
    let Some(source) = config.bind_address.or(client.address) else {
        return Ok(Err(
            "the address that the flows leave from is not known; write it with --bind-address".to_owned()
        ));
    };
    let nic = match steering::receiving_interface(&receiver, config.steer_interface.as_deref(), destination) {
        Ok(nic) => nic,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let port = config.destination_port.unwrap_or(steering::DEFAULT_PORT);
    let request = Request {
        source: SocketAddr::new(source, 0),
        destination: SocketAddr::new(destination, port),
        protocol: config.protocol,
        flows: config.flows,
        receive_queues: Vec::new(),
        acknowledgement_queues: Vec::new(),
        path: None,
        members: Vec::new(),
    };
    let mut space = PortSpace::of_host(&sender);
    if !in_lab {
        space.exclude_taken(&HostRoot::live());
    }
    let sender_nic = steering::receiving_interface(&sender, config.bind_interface.as_deref(), source).ok();
    Ok(match steering::steer(&request, (&receiver, nic), sender_nic, &mut space) {
        Ok(ports) => {
            let nic = nic.clone();
            Ok(Chosen { receiver, nic, ports, port })
        }
        Err(error) => Err(error.to_string()),
    })
}
