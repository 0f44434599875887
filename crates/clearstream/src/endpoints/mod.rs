//! Hosts of a command line: their agents and the addresses between them.

mod address;
mod hosts_file;
mod system_resolver;

use std::{
    net::{IpAddr, SocketAddr},
    ops::ControlFlow,
    path::PathBuf,
    process::Command,
};

use clearstream_control::{Peer, StartDelay, StartStep, pairing::Pairing, spawn_watched, ssh_command, tls};
use clearstream_host::{HostRoot, terminal::is_prompting};
use clearstream_lab::{LabError, OwnedLab, RunningLab};
use clearstream_schema::provenance::HostIdentity;
use clearstream_workload::{CLIENT, Host, HostSet, PairAddresses, SERVER};

use crate::{
    exit::CommandError,
    output::{self, diagnostics},
    verbs::lab::keeper_command,
};
pub use address::{FamilyArgs, resolve};
use address::{data_address, source_address};

/// The other host, in the same form with every verb that measures towards one.
#[derive(Debug, Clone, clap::Args)]
pub struct HostArgs {
    /// The other host: as ssh knows it, `localhost`, or ADDRESS[:PORT] with --pairing
    host: Option<String>,
    /// The other host, as an option instead of HOST
    #[arg(long, value_name = "HOST", conflicts_with = "host")]
    to: Option<String>,
}

impl HostArgs {
    /// The host that was named; none with `--lab` and `--hosts`.
    pub fn name(&self) -> Option<&str> {
        self.host.as_deref().or(self.to.as_deref())
    }
}

/// The other hosts of a study: one, or several, which together with this one are a mesh.
#[derive(Debug, Clone, clap::Args)]
pub struct MeshArgs {
    /// The other hosts: as ssh knows them, `localhost`, or ADDRESS[:PORT] with --pairing; all of several,
    /// and this one, take part in a study from every host to every other
    #[arg(value_name = "HOST")]
    others: Vec<String>,
    /// Another host, as an option instead of HOST; may be repeated
    #[arg(long, value_name = "HOST", conflicts_with = "others")]
    to: Vec<String>,
}

impl MeshArgs {
    /// The hosts that were named; none with `--lab` and `--hosts`.
    fn names(&self) -> &[String] {
        if self.others.is_empty() { &self.to } else { &self.others }
    }
}

/// How the hosts are found.
#[derive(Debug, Clone, clap::Args)]
pub struct PathArgs {
    /// Measure inside this lab (started for the test when it is not running)
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
    /// File of hosts: names, roles, access methods, addresses between them
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["lab", "address", "pairing", "ssh_options", "remote_program"]
    )]
    pub hosts: Option<PathBuf>,
    /// Client, a host of the lab (default: the first one of the file)
    #[arg(long, value_name = "HOST", requires = "lab")]
    pub client: Option<String>,
    /// Server, a host of the lab (default: the last one of the file)
    #[arg(long, value_name = "HOST", requires = "lab")]
    pub server: Option<String>,
    /// Address of the other host for data, where it differs from that for control
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// Address family of control and data.
    #[command(flatten)]
    pub family: FamilyArgs,
    /// Connect to `clearstream serve` on the other host, with this pairing
    #[arg(long, value_name = "FILE")]
    pub pairing: Option<PathBuf>,
    /// Option for ssh: as it is when it begins with a dash (`-p2222`), else for `-o` (`Port=2222`)
    #[arg(long = "ssh-option", value_name = "OPTION", allow_hyphen_values = true)]
    pub ssh_options: Vec<String>,
    /// Name or path of clearstream on the other host
    #[arg(long, value_name = "PROGRAM", default_value = REMOTE_PROGRAM)]
    pub remote_program: String,
}

/// Program on the other host when none is named.
const REMOTE_PROGRAM: &str = "clearstream";

impl PathArgs {
    /// Rejects options that would have no effect on a path of this kind.
    pub fn check(&self, host: Option<&str>) -> Result<(), CommandError> {
        if let (Some(address), Some(option)) = (self.address, self.family.option())
            && !self.family.has(address)
        {
            return Err(CommandError::Usage(format!("--address {address} is not of the family of {option}")));
        }
        if self.hosts.is_some() {
            return Ok(());
        }
        let (kind, pairing, ssh) = match (host, &self.lab, &self.pairing) {
            (Some("localhost"), ..) => ("localhost", false, false),
            (None, Some(_), _) => ("a lab", false, false),
            (Some(_), _, Some(_)) => ("a paired daemon", true, false),
            // By ssh, or a mistake that is reported elsewhere.
            _ => return Ok(()),
        };
        let unused = [
            ("--pairing", self.pairing.is_some() && !pairing),
            ("--ssh-option", !self.ssh_options.is_empty() && !ssh),
            ("--remote-program", self.remote_program != REMOTE_PROGRAM && !ssh),
        ];
        match unused.iter().find(|(_, is_unused)| *is_unused) {
            Some((option, _)) => Err(CommandError::Usage(format!(
                "{option} has no effect on the path to {kind}: leave it out, or name another host"
            ))),
            None => Ok(()),
        }
    }
}

/// A host with its agent.
#[derive(Debug)]
struct Endpoint {
    role: String,
    peer: Peer,
    /// Where the others reach it, when that is known.
    address: Option<IpAddr>,
}

/// Hosts with agents, and the lab they are in.
#[derive(Debug)]
pub struct Endpoints {
    hosts: Vec<Endpoint>,
    lanes: PairAddresses,
    lab: Option<RunningLab>,
    /// The lab that this command brought up; it goes down with these endpoints.
    _own_lab: Option<OwnedLab>,
}

impl Endpoints {
    /// Starts the agents. `host` is `localhost`, a destination for ssh, or
    /// `ADDRESS[:PORT]` of a paired daemon; with `--lab` and `--hosts` there is none.
    pub fn open(host: Option<&str>, path: &PathArgs) -> Result<Self, CommandError> {
        path.check(host)?;
        match (host, &path.lab, &path.hosts) {
            (Some(_), Some(_), _) => {
                Err(CommandError::usage("a host and --lab exclude each other: name one of them"))
            }
            (Some(_), _, Some(_)) => {
                Err(CommandError::usage("a host and --hosts exclude each other: name one of them"))
            }
            (None, None, None) => Err(CommandError::usage(
                "name the other host (as ssh knows it, or `localhost`), a lab with --lab NAME, or a file of hosts \
                 with --hosts FILE",
            )),
            (None, _, Some(file)) => hosts_file::open(&hosts_file::load(file)?, path.family),
            (None, Some(name), None) => Self::lab_pair(name, path),
            (Some(host), None, None) => Self::to_host(host, path),
        }
    }

    /// As [`Endpoints::open`], for any number of other hosts. With `is_mesh` a lab takes part with all its
    /// hosts that are no routers, in place of two of them.
    pub fn open_all(hosts: &MeshArgs, path: &PathArgs, is_mesh: bool) -> Result<Self, CommandError> {
        match (hosts.names(), &path.lab) {
            ([], Some(name)) if is_mesh && path.client.is_none() && path.server.is_none() => {
                path.check(None)?;
                let (lab, own_lab) = open_lab(name)?;
                let file = hosts_file::of_lab(lab.file());
                Ok(Self { _own_lab: own_lab, ..hosts_file::open(&file, path.family)? })
            }
            ([], _) => Self::open(None, path),
            ([host], _) => Self::open(Some(host), path),
            (several, None) => hosts_file::open(&hosts_file::of_names(several, path)?, path.family),
            (_, Some(_)) => {
                Err(CommandError::usage("hosts and --lab exclude each other: name the ones or the other"))
            }
        }
    }

    fn pair(client: (Peer, Option<IpAddr>), server: (Peer, IpAddr)) -> Self {
        let client = Endpoint { role: CLIENT.to_owned(), peer: client.0, address: client.1 };
        let server = Endpoint { role: SERVER.to_owned(), peer: server.0, address: Some(server.1) };
        Self { hosts: vec![client, server], lanes: PairAddresses::new(), lab: None, _own_lab: None }
    }

    fn to_host(host: &str, path: &PathArgs) -> Result<Self, CommandError> {
        let (server, found) = if host == "localhost" {
            (local_agent("server")?, Some(path.family.loopback()))
        } else if let Some(file) = &path.pairing {
            let pairing = Pairing::load(file)?;
            let address = resolve(host, pairing.port(), path.family)?;
            (connect_daemon(host, address, &pairing)?, Some(address.ip()))
        } else {
            (ssh_agent(host, host, &path.remote_program, &path.ssh_options, path.family)?, None)
        };
        let server_address = match (path.address, found) {
            (Some(address), _) | (None, Some(address)) => address,
            (None, None) => data_address(&server, host, &path.ssh_options, path.family)?,
        };
        let client_address = source_address(server_address);
        Ok(Self::pair((local_agent("client")?, client_address), (server, server_address)))
    }

    fn lab_pair(name: &str, path: &PathArgs) -> Result<Self, CommandError> {
        let (lab, own_lab) = open_lab(name)?;
        let ends: Vec<&str> =
            lab.file().hosts.iter().filter(|host| !host.router).map(|host| host.name.as_str()).collect();
        let choose = |requested: &Option<String>, otherwise: Option<&&str>| {
            requested.clone().or_else(|| otherwise.map(|name| (*name).to_owned()))
        };
        let (Some(client), Some(server)) =
            (choose(&path.client, ends.first()), choose(&path.server, ends.last()))
        else {
            return Err(CommandError::usage("the lab has no two hosts to measure between"));
        };
        let server_address = match path.address {
            Some(address) => address,
            None => lab_address(&lab, &server, path.family)?,
        };
        let client_address = Some(lab_address(&lab, &client, path.family)?);
        let ends = Self::pair(
            (agent_in(&lab, &client)?, client_address),
            (agent_in(&lab, &server)?, server_address),
        );
        Ok(Self { lab: Some(lab), _own_lab: own_lab, ..ends })
    }

    /// What each of them is, by its agent, for the document's provenance.
    pub fn identities(&self) -> Vec<HostIdentity> {
        let identity = |host: &Endpoint| {
            let hello = host.peer.hello();
            HostIdentity {
                name: Some(host.peer.name().to_owned()),
                role: Some(host.role.clone()),
                host_name: hello.host.clone(),
                kernel: hello.kernel.clone(),
                program_version: Some(hello.version.clone()),
            }
        };
        self.hosts.iter().map(identity).collect()
    }

    /// Whether they are in a lab.
    pub fn in_lab(&self) -> bool {
        self.lab.is_some()
    }

    /// Name of the lab that they are in.
    pub fn lab_name(&self) -> Option<&str> {
        self.lab.as_ref().map(|lab| lab.file().name.as_str())
    }

    /// All of them as the hosts of a workload.
    pub fn hosts(&mut self) -> Result<HostSet<'_>, CommandError> {
        let hosts = self.hosts.iter_mut().map(|host| Host {
            role: host.role.clone(),
            peer: &mut host.peer,
            address: host.address,
        });
        let hosts = HostSet::new(hosts.collect(), self.lab.as_ref());
        Ok(hosts.with_pair_addresses(self.lanes.clone()).with_program(own_program()?))
    }
}

/// The lab of this name, brought up when it is not running.
pub fn open_lab(name: &str) -> Result<(RunningLab, Option<OwnedLab>), CommandError> {
    match clearstream_lab::open(name) {
        Ok(lab) => Ok((lab, None)),
        Err(LabError::NotRunning { .. }) => {
            let file = clearstream_lab::file::load(name)?;
            let own = clearstream_lab::up_owned(&file, keeper_command()?)?;
            Ok((own.lab().clone(), Some(own)))
        }
        Err(error) => Err(error.into()),
    }
}

fn agent_in(lab: &RunningLab, host: &str) -> Result<Peer, CommandError> {
    Ok(clearstream_control::spawn(lab.command(host, agent_command()?)?, host)?)
}

/// The first address of a host of a lab that is of the family.
fn lab_address(lab: &RunningLab, host: &str, family: FamilyArgs) -> Result<IpAddr, CommandError> {
    let fits = lab.addresses(host)?.into_iter().find(|address| family.has(*address));
    match (fits, family.option()) {
        (Some(address), _) => Ok(address),
        (None, Some(option)) => Err(CommandError::Usage(format!(
            "{host} of the lab {} has no address of the family of {option}",
            lab.file().name
        ))),
        (None, None) => Ok(lab.address(host)?),
    }
}

/// Options of ssh with that of the family in front: ssh takes the first of those that exclude
/// each other.
pub fn with_family(options: &[String], family: FamilyArgs) -> Vec<String> {
    family.option().into_iter().map(str::to_owned).chain(options.iter().cloned()).collect()
}

/// The agent of a host that ssh reaches. What takes long is reported meanwhile, and text that
/// a login shell printed before the agent is named.
pub fn ssh_agent(
    destination: &str,
    name: &str,
    program: &str,
    options: &[String],
    family: FamilyArgs,
) -> Result<Peer, CommandError> {
    let options = with_family(options, family);
    let peer = spawn_watched(ssh_command(destination, program, &options), name, &mut |delay| {
        report_start(name, delay)
    })?;
    if let Some(text) = peer.skipped_text() {
        output::log(&format!(
            "note: {name}: a start-up file of its shell prints \"{text}\" also without a terminal: skipped"
        ));
    }
    Ok(peer)
}

/// Reports a start that takes long, unless someone types a password: the prompt is the explanation then, and a line
/// would stand in what is being typed. Returns whether it was reported.
pub fn report_start(name: &str, delay: StartDelay) -> bool {
    let is_reported = is_prompting(&HostRoot::live(), delay.pid) != Some(true);
    if is_reported {
        output::log(&start_delay(name, delay));
    }
    is_reported
}

fn start_delay(name: &str, delay: StartDelay) -> String {
    let seconds = delay.elapsed.as_secs();
    match delay.step {
        StartStep::Login if seconds < 30 => format!("waiting for ssh to log in to {name}"),
        StartStep::Login => {
            format!(
                "still waiting for ssh to log in to {name}, for {seconds} s; `ssh -v {name}` shows where it waits"
            )
        }
        StartStep::Agent => format!("connected to {name}, waiting for its agent"),
    }
}

/// A paired daemon; reports once that it is busy.
fn connect_daemon(name: &str, address: SocketAddr, pairing: &Pairing) -> Result<Peer, CommandError> {
    let mut shown = false;
    Ok(tls::connect_waiting(address, pairing, &mut |busy| {
        if !std::mem::replace(&mut shown, true) {
            output::log(&format!("{name}: {busy}"));
        }
        ControlFlow::Continue(())
    })?)
}

/// This program as an agent on standard input and output.
pub fn agent_command() -> Result<Command, CommandError> {
    let mut command = Command::new(own_program()?);
    command.arg("agent");
    diagnostics::pass_on(&mut command);
    Ok(command)
}

/// Path of the running program.
pub fn own_program() -> Result<PathBuf, CommandError> {
    std::env::current_exe().map_err(|source| CommandError::File {
        what: "find this program's own path".to_owned(),
        path: PathBuf::from("/proc/self/exe"),
        source,
    })
}

fn local_agent(name: &str) -> Result<Peer, CommandError> {
    Ok(clearstream_control::spawn(agent_command()?, name)?)
}
