//! The hosts of a run: agents with names, roles and addresses, and optionally the lab they are in.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use clearstream_control::Peer;
use clearstream_lab::{LabError, RunningLab};
use clearstream_schema::{
    BitRate,
    control::{Failure, FailureKind},
    lab::DelayLineStats,
};

use crate::TrialError;

/// Role of the host that connects.
pub const CLIENT: &str = "client";
/// Role of the host that listens.
pub const SERVER: &str = "server";

/// Address at which the first of two hosts, by name, reaches the second, where it differs from the second's
/// general address.
pub type PairAddresses = BTreeMap<(String, String), IpAddr>;

/// A participating host.
#[derive(Debug)]
pub struct Host<'a> {
    /// Role in this run: [`CLIENT`], [`SERVER`], or a role of the workload's own.
    pub role: String,
    /// Its agent, which has its name.
    pub peer: &'a mut Peer,
    /// Address for data; unknown where only the other direction is needed.
    pub address: Option<IpAddr>,
}

impl Host<'_> {
    /// The address for data.
    ///
    /// # Errors
    /// It is unknown.
    pub fn known_address(&self) -> Result<IpAddr, TrialError> {
        self.address.ok_or_else(|| {
            let message = format!("the address of {} for data is not known", self.peer.name());
            Failure { kind: FailureKind::Invalid, message }.into()
        })
    }
}

/// All hosts of a run.
#[derive(Debug)]
pub struct HostSet<'a> {
    hosts: Vec<Host<'a>>,
    /// General address of each host, used without a pair address.
    usual: Vec<Option<IpAddr>>,
    pair_addresses: PairAddresses,
    lab: Option<&'a RunningLab>,
    program: PathBuf,
}

impl<'a> HostSet<'a> {
    /// A set of any number of hosts.
    pub fn new(hosts: Vec<Host<'a>>, lab: Option<&'a RunningLab>) -> Self {
        let usual = hosts.iter().map(|host| host.address).collect();
        Self {
            hosts,
            usual,
            pair_addresses: PairAddresses::new(),
            lab,
            program: PathBuf::from("clearstream"),
        }
    }

    /// The common case: a connecting and a listening host.
    pub fn pair(
        (client, client_address): (&'a mut Peer, Option<IpAddr>),
        (server, server_address): (&'a mut Peer, IpAddr),
        lab: Option<&'a RunningLab>,
    ) -> Self {
        let client = Host { role: CLIENT.to_owned(), peer: client, address: client_address };
        let server = Host { role: SERVER.to_owned(), peer: server, address: Some(server_address) };
        Self::new(vec![client, server], lab)
    }

    /// Adds addresses between pairs of hosts. The first client and the first server use the addresses between
    /// them.
    #[must_use]
    pub fn with_pair_addresses(mut self, pair_addresses: PairAddresses) -> Self {
        self.pair_addresses = pair_addresses;
        let place = |role: &str| self.hosts.iter().position(|host| host.role == role);
        if let (Some(client), Some(server)) = (place(CLIENT), place(SERVER)) {
            let (back, there) = (self.address(server, client), self.address(client, server));
            (self.hosts[client].address, self.hosts[server].address) = (back, there);
        }
        self
    }

    /// Sets the program that is started on hosts of a lab.
    #[must_use]
    pub fn with_program(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// All hosts.
    pub fn iter(&self) -> impl Iterator<Item = &Host<'a>> {
        self.hosts.iter()
    }

    /// All hosts, for requests.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Host<'a>> {
        self.hosts.iter_mut()
    }

    /// Number of hosts.
    pub fn count(&self) -> usize {
        self.hosts.len()
    }

    /// The first host of a role.
    ///
    /// # Errors
    /// No host has this role.
    pub fn role(&mut self, role: &str) -> Result<&mut Host<'a>, TrialError> {
        self.hosts.iter_mut().find(|host| host.role == role).ok_or_else(|| missing(role))
    }

    /// The connecting and the listening host together; the first of several.
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

    /// Address at which the first host reaches the second, by their indexes in the set.
    pub fn address(&self, from: usize, to: usize) -> Option<IpAddr> {
        let (here, there) = (self.hosts.get(from)?, self.hosts.get(to)?);
        let pair = (here.peer.name().to_owned(), there.peer.name().to_owned());
        self.pair_addresses.get(&pair).copied().or(self.usual[to])
    }

    /// Sets of two hosts each, the connecting one first, for concurrent use. A host can be in one of them
    /// only: later pairs with it are omitted.
    pub fn pairs(&mut self, places: &[(usize, usize)]) -> Vec<HostSet<'_>> {
        let addresses: Vec<_> =
            places.iter().map(|&(from, to)| (self.address(to, from), self.address(from, to))).collect();
        let (lab, program) = (self.lab, &self.program);
        let mut hosts: Vec<_> = self.hosts.iter_mut().map(Some).collect();
        let mut take = |place: usize, role: &str, address| {
            let host = hosts.get_mut(place)?.take()?;
            Some(Host { role: role.to_owned(), peer: &mut *host.peer, address })
        };
        let pair = |(&(from, to), (client, server))| {
            let hosts = vec![take(from, CLIENT, client)?, take(to, SERVER, server)?];
            Some(HostSet::new(hosts, lab).with_program(program.clone()))
        };
        places.iter().zip(addresses).filter_map(pair).collect()
    }

    /// Rate of the one link of the lab, where there is one and it has a rate.
    pub fn line_rate(&self) -> Option<BitRate> {
        match self.lab?.file().links.as_slice() {
            [link] => link.rate,
            _ => None,
        }
    }

    /// Resets the counters of the lab's delay lines; does nothing outside a lab.
    ///
    /// # Errors
    /// The lab does not respond.
    pub fn reset_delay_lines(&self) -> Result<(), LabError> {
        self.lab.map_or(Ok(()), RunningLab::reset_delay_line_stats)
    }

    /// Counters of the lab's delay lines since the reset; empty outside a lab.
    ///
    /// # Errors
    /// The lab does not respond.
    pub fn delay_lines(&self) -> Result<Vec<DelayLineStats>, LabError> {
        self.lab.map_or(Ok(Vec::new()), RunningLab::delay_line_stats)
    }

    /// The lab, if any.
    pub fn lab(&self) -> Option<&'a RunningLab> {
        self.lab
    }

    /// This program, to be started on hosts of a lab.
    pub fn program(&self) -> &PathBuf {
        &self.program
    }
}

fn missing(role: &str) -> TrialError {
    Failure { kind: FailureKind::Invalid, message: format!("no host has the role \"{role}\"") }.into()
}
