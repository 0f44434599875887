//! From what was typed to two agents and the address between them.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    ops::ControlFlow,
    path::PathBuf,
    process::Command,
};

use clearstream_control::{Peer, pairing::Pairing, ssh_command, tls};
use clearstream_lab::{LabError, OwnedLab, RunningLab};
use clearstream_schema::{BitRate, lab::DelayLineStats};
use clearstream_workload::HostSet;

use crate::{
    exit::CommandError,
    output::{self, diagnostics},
    verbs::lab::keeper_command,
};

/// How the two ends are found.
#[derive(Debug, Clone, clap::Args)]
pub struct PathArgs {
    /// Measure inside this lab (brought up for the test when it is not running)
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
    /// Host of the lab that connects; the first one of the file when absent
    #[arg(long, value_name = "HOST", requires = "lab")]
    pub client: Option<String>,
    /// Host of the lab that listens; the last one of the file when absent
    #[arg(long, value_name = "HOST", requires = "lab")]
    pub server: Option<String>,
    /// Address of the other host for the data, where it differs from the one for control
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<IpAddr>,
    /// Talk to `clearstream serve` there, with the pairing made for it
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

/// Two agents and what lies between them.
#[derive(Debug)]
pub struct Endpoints {
    /// The side that connects.
    pub client: Peer,
    /// The side that listens.
    pub server: Peer,
    /// Where the client reaches the server.
    pub server_address: IpAddr,
    /// Where the server reaches the client, when that is known.
    pub client_address: Option<IpAddr>,
    /// The lab they are in.
    pub lab: Option<RunningLab>,
    /// The lab that this command brought up; it goes down with these endpoints.
    _own_lab: Option<OwnedLab>,
}

impl Endpoints {
    /// Starts both agents. `host` is `localhost`, a destination for ssh, or
    /// `ADDRESS[:PORT]` of a paired daemon; with `--lab` there is none.
    pub fn open(host: Option<&str>, path: &PathArgs) -> Result<Self, CommandError> {
        path.check(host)?;
        match (host, &path.lab) {
            (Some(_), Some(_)) => {
                Err(CommandError::usage("a host and --lab exclude each other: name one of them"))
            }
            (None, None) => Err(CommandError::usage(
                "name the other host (as ssh knows it, or `localhost`), or a lab with --lab NAME",
            )),
            (None, Some(name)) => Self::in_lab(name, path),
            (Some(host), None) => Self::to_host(host, path),
        }
    }

    /// Rate of the one link of a lab, where there is one and it has a rate.
    pub fn line_rate(&self) -> Option<BitRate> {
        match self.lab.as_ref()?.file().links.as_slice() {
            [link] => link.rate,
            _ => None,
        }
    }

    fn to_host(host: &str, path: &PathArgs) -> Result<Self, CommandError> {
        let (server, found) = if host == "localhost" {
            (local_agent("server")?, Some(IpAddr::V4(Ipv4Addr::LOCALHOST)))
        } else if let Some(file) = &path.pairing {
            let pairing = Pairing::load(file)?;
            let address = resolve(host, pairing.port())?;
            let mut shown = false;
            let peer = tls::connect_waiting(address, &pairing, &mut |busy| {
                if !std::mem::replace(&mut shown, true) {
                    output::log(&format!("{host}: {busy}"));
                }
                ControlFlow::Continue(())
            })?;
            (peer, Some(address.ip()))
        } else {
            let command = ssh_command(host, &path.remote_program, &path.ssh_options);
            (clearstream_control::spawn(command, host)?, None)
        };
        let server_address = match (path.address, found) {
            (Some(address), _) | (None, Some(address)) => address,
            (None, None) => resolve(&ssh_host_name(host), 0)?.ip(),
        };
        let client_address = source_address(server_address);
        Ok(Self {
            client: local_agent("client")?,
            server,
            server_address,
            client_address,
            lab: None,
            _own_lab: None,
        })
    }

    fn in_lab(name: &str, path: &PathArgs) -> Result<Self, CommandError> {
        let (lab, own_lab) = match clearstream_lab::open(name) {
            Ok(lab) => (lab, None),
            Err(LabError::NotRunning { .. }) => {
                let file = clearstream_lab::file::load(name)?;
                let own = clearstream_lab::up_owned(&file, keeper_command()?)?;
                (own.lab().clone(), Some(own))
            }
            Err(error) => return Err(error.into()),
        };
        let ends: Vec<&str> =
            lab.file().hosts.iter().filter(|host| !host.router).map(|host| host.name.as_str()).collect();
        let choose = |asked: &Option<String>, otherwise: Option<&&str>| {
            asked.clone().or_else(|| otherwise.map(|name| (*name).to_owned()))
        };
        let (Some(client), Some(server)) =
            (choose(&path.client, ends.first()), choose(&path.server, ends.last()))
        else {
            return Err(CommandError::usage("the lab has no two hosts to measure between"));
        };
        let agent_in = |host: &str| -> Result<Peer, CommandError> {
            let command = lab.command(host, agent_command()?)?;
            Ok(clearstream_control::spawn(command, host)?)
        };
        let endpoints = Self {
            client: agent_in(&client)?,
            server: agent_in(&server)?,
            server_address: path.address.map_or_else(|| lab.address(&server), Ok)?,
            client_address: Some(lab.address(&client)?),
            lab: Some(lab),
            _own_lab: own_lab,
        };
        Ok(endpoints)
    }
}

impl Endpoints {
    /// Both as the hosts of a workload.
    pub fn hosts(&mut self) -> Result<HostSet<'_>, CommandError> {
        let client = (&mut self.client, self.client_address);
        let server = (&mut self.server, self.server_address);
        Ok(HostSet::pair(client, server, self.lab.as_ref()).with_program(own_program()?))
    }

    /// Lets the lab's delay lines count anew; nothing outside a lab.
    pub fn reset_delay_lines(&self) -> Result<(), CommandError> {
        self.lab.as_ref().map_or(Ok(()), |lab| Ok(lab.reset_delay_line_stats()?))
    }

    /// What the lab's delay lines did since; empty outside a lab.
    pub fn delay_lines(&self) -> Result<Vec<DelayLineStats>, CommandError> {
        self.lab.as_ref().map_or(Ok(Vec::new()), |lab| Ok(lab.delay_line_stats()?))
    }
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

/// The address of a name, or of an address with or without a port.
pub fn resolve(host: &str, port: u16) -> Result<SocketAddr, CommandError> {
    let fail = |reason: String| CommandError::Unreachable { host: host.to_owned(), reason };
    let mut found = match host.parse::<SocketAddr>() {
        Ok(address) => return Ok(address),
        Err(_)
            if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
                && !host.contains("::") =>
        {
            host.to_socket_addrs()
        }
        Err(_) => (host, port).to_socket_addrs(),
    }
    .map_err(|error| fail(error.to_string()))?;
    found.next().ok_or_else(|| fail("the name has no address".to_owned()))
}

/// The name behind an ssh destination: the operator's ssh configuration may
/// give it another one (`ssh -G` prints it).
fn ssh_host_name(destination: &str) -> String {
    let bare = destination.rsplit_once('@').map_or(destination, |(_, host)| host).to_owned();
    let output = Command::new("ssh").args(["-G", "--", destination]).output();
    output
        .ok()
        .and_then(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().find_map(|line| line.strip_prefix("hostname ").map(str::to_owned))
        })
        .unwrap_or(bare)
}

/// The address this host would use towards `server`: a connected UDP socket
/// asks the routing table and sends nothing.
fn source_address(server: IpAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
    socket.connect((server, 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}
