//! Where the ranks run.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use clearstream_control::Peer;
use clearstream_lab::RunningLab;
use clearstream_schema::control::{Failure, FailureKind};
use clearstream_sys::process::host_name;
use clearstream_workload::HostSet;

/// Hosts of the ranks.
pub struct Ranks<'a> {
    /// As the launcher names them, in the order of the ranks; none when all ranks are on this host.
    pub(crate) hosts: Vec<String>,
    /// Ranks on each.
    pub(crate) per_host: usize,
    /// Address of this host, the first one, for the others, or its name.
    pub(crate) own: Option<String>,
    /// Lab that the hosts are of.
    pub(crate) lab: Option<LabRanks<'a>>,
    /// This program.
    pub(crate) program: PathBuf,
}

/// Hosts of a lab.
pub(crate) struct LabRanks<'a> {
    pub(crate) lab: &'a RunningLab,
    /// Interfaces that have the addresses of the measurement, of each host.
    pub(crate) interfaces: Vec<String>,
    /// This program, whose `lab exec` enters the hosts.
    pub(crate) program: String,
}

/// Hosts of a job that were named.
#[derive(Debug, Clone, Copy)]
pub struct Placement<'a> {
    /// Names, in the order of the ranks: for ssh, or of a lab's hosts. None: all ranks on this host.
    pub hosts: &'a [String],
    /// Ranks on each.
    pub per_host: usize,
    /// Lab that they are of.
    pub lab: Option<&'a RunningLab>,
    /// This program.
    pub program: &'a Path,
}

impl<'a> Ranks<'a> {
    /// Reads one rank for the client and one for the server from the hosts of a measurement.
    ///
    /// # Errors
    /// A host or its address is missing, or the client is another host than this one.
    pub fn of(hosts: &mut HostSet<'a>) -> Result<Self, Failure> {
        let (lab, program) = (hosts.lab(), hosts.program().clone());
        let (client, server) = hosts.client_and_server().map_err(|error| error.failure)?;
        let server_address = server.known_address().map_err(|error| error.failure)?;
        let name = |peer: &Peer| peer.name().to_owned();
        if let Some(lab) = lab {
            let client_address = client.known_address().map_err(|error| error.failure)?;
            let (client, server) = (name(client.peer), name(server.peer));
            let interfaces =
                vec![interface(lab, &client, client_address)?, interface(lab, &server, server_address)?];
            let lab = Some(LabRanks { lab, interfaces, program: program.to_string_lossy().into_owned() });
            return Ok(Self { hosts: vec![client, server], per_host: 1, own: None, lab, program });
        }
        if client.peer.hello().host != host_name() {
            return Err(Failure::new(
                FailureKind::Invalid,
                format!(
                    "mpirun is started on this host, which has to be the client: run this on {}, or exchange the roles",
                    client.peer.name()
                ),
            ));
        }
        if server_address.is_loopback() {
            return Ok(Self { hosts: Vec::new(), per_host: 2, own: None, lab: None, program });
        }
        let own = client.address.map_or_else(host_name, |address| address.to_string());
        let hosts = vec!["localhost".to_owned(), without_port(server.peer.name())];
        Ok(Self { hosts, per_host: 1, own: Some(own), lab: None, program })
    }

    /// Ranks on hosts that were named.
    pub(crate) fn on(placement: Placement<'a>) -> Result<Self, Failure> {
        let Placement { hosts, per_host, lab, program } = placement;
        let lab = lab
            .map(|lab| {
                let interfaces = hosts.iter().map(|host| {
                    let address = lab.address(host);
                    let address =
                        address.map_err(|error| Failure::new(FailureKind::Invalid, error.to_string()))?;
                    interface(lab, host, address)
                });
                let interfaces = interfaces.collect::<Result<_, _>>()?;
                Ok::<_, Failure>(LabRanks {
                    lab,
                    interfaces,
                    program: program.to_string_lossy().into_owned(),
                })
            })
            .transpose()?;
        Ok(Self { hosts: hosts.to_vec(), per_host, own: None, lab, program: program.to_owned() })
    }

    /// Number of ranks.
    pub(crate) fn count(&self) -> usize {
        self.hosts.len().max(1) * self.per_host
    }
}

/// The name of a paired daemon may have its port.
fn without_port(name: &str) -> String {
    match name.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') && port.parse::<u16>().is_ok() => host.to_owned(),
        _ => name.to_owned(),
    }
}

fn interface(lab: &RunningLab, host: &str, address: IpAddr) -> Result<String, Failure> {
    let has = |texts: &[String]| {
        let text = address.to_string();
        texts.iter().any(|prefix| prefix.split('/').next() == Some(text.as_str()))
    };
    let mut ends = lab.file().ends().filter(|end| end.host == host);
    ends.find(|end| has(&end.addresses)).map(|end| end.interface.clone()).ok_or_else(|| {
        Failure::new(
            FailureKind::Invalid,
            format!("no interface of {host} in the lab has the address {address}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_ssh_have_no_port() {
        for (name, expected) in [("dtn2", "dtn2"), ("dtn2:4810", "dtn2"), ("fd00::1", "fd00::1")] {
            assert_eq!(without_port(name), expected);
        }
    }
}
