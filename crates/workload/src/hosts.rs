//! The hosts of a run: agents with names, roles and addresses, and perhaps the
//! lab they are in.

use std::{net::IpAddr, path::PathBuf};

use clearstream_control::Peer;
use clearstream_lab::RunningLab;
use clearstream_schema::control::{Failure, FailureKind};

use crate::TrialError;

/// Role of the host that connects.
pub const CLIENT: &str = "client";
/// Role of the host that listens.
pub const SERVER: &str = "server";

/// A host that takes part.
#[derive(Debug)]
pub struct Host<'a> {
    /// What it is in this run: [`CLIENT`], [`SERVER`], or a role of the workload's own.
    pub role: String,
    /// Its agent, which carries its name.
    pub peer: &'a mut Peer,
    /// Its address for data; unknown where only the other direction is needed.
    pub address: Option<IpAddr>,
}

/// All hosts of a run.
#[derive(Debug)]
pub struct HostSet<'a> {
    hosts: Vec<Host<'a>>,
    lab: Option<&'a RunningLab>,
    program: PathBuf,
}

impl<'a> HostSet<'a> {
    /// Any number of hosts.
    pub fn new(hosts: Vec<Host<'a>>, lab: Option<&'a RunningLab>) -> Self {
        Self { hosts, lab, program: PathBuf::from("clearstream") }
    }

    /// The common case: one that connects and one that listens.
    pub fn pair(
        (client, client_address): (&'a mut Peer, Option<IpAddr>),
        (server, server_address): (&'a mut Peer, IpAddr),
        lab: Option<&'a RunningLab>,
    ) -> Self {
        let client = Host { role: CLIENT.to_owned(), peer: client, address: client_address };
        let server = Host { role: SERVER.to_owned(), peer: server, address: Some(server_address) };
        Self::new(vec![client, server], lab)
    }

    /// Names the program that is started on hosts of a lab.
    #[must_use]
    pub fn with_program(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Host<'a>> {
        self.hosts.iter()
    }

    /// All of them, for requests.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Host<'a>> {
        self.hosts.iter_mut()
    }

    /// The first host of a role.
    ///
    /// # Errors
    /// There is none.
    pub fn role(&mut self, role: &str) -> Result<&mut Host<'a>, TrialError> {
        self.hosts.iter_mut().find(|host| host.role == role).ok_or_else(|| missing(role))
    }

    /// The hosts that connect and listen, both at once.
    ///
    /// # Errors
    /// One of them is missing.
    pub fn client_and_server(&mut self) -> Result<(&mut Host<'a>, &mut Host<'a>), TrialError> {
        let (mut client, mut server) = (None, None);
        for host in &mut self.hosts {
            match host.role.as_str() {
                CLIENT if client.is_none() => client = Some(host),
                SERVER if server.is_none() => server = Some(host),
                _ => {}
            }
        }
        Ok((client.ok_or_else(|| missing(CLIENT))?, server.ok_or_else(|| missing(SERVER))?))
    }

    /// The lab, when there is one.
    pub fn lab(&self) -> Option<&'a RunningLab> {
        self.lab
    }

    /// This program, for what is started on hosts of a lab.
    pub fn program(&self) -> &PathBuf {
        &self.program
    }
}

fn missing(role: &str) -> TrialError {
    Failure { kind: FailureKind::Invalid, message: format!("no host has the role \"{role}\"") }.into()
}
