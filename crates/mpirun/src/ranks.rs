//! Where the two ranks run.

use std::net::IpAddr;

use clearstream_control::Peer;
use clearstream_lab::RunningLab;
use clearstream_schema::control::{Failure, FailureKind};
use clearstream_sys::process::host_name;
use clearstream_workload::HostSet;

use crate::failure;

/// Hosts of the ranks.
pub(crate) enum Ranks<'a> {
    /// Both on this host.
    Here,
    /// Rank 0 on this host, rank 1 on one that `mpirun` reaches by ssh.
    Remote {
        /// Address of this host for the other one, or its name.
        client: String,
        server: String,
    },
    /// Each in a host of a lab.
    Lab(LabRanks<'a>),
}

/// Hosts of a lab.
pub(crate) struct LabRanks<'a> {
    pub(crate) lab: &'a RunningLab,
    pub(crate) client: String,
    pub(crate) server: String,
    /// Interfaces that have the addresses of the measurement, of the client and of the server.
    pub(crate) interfaces: [String; 2],
    /// This program, whose `lab exec` enters the hosts.
    pub(crate) program: String,
}

impl<'a> Ranks<'a> {
    /// Reads them from the hosts of a measurement.
    pub(crate) fn of(hosts: &mut HostSet<'a>) -> Result<Self, Failure> {
        let (lab, program) = (hosts.lab(), hosts.program().to_string_lossy().into_owned());
        let (client, server) = hosts.client_and_server().map_err(|error| error.failure)?;
        let server_address = server.known_address().map_err(|error| error.failure)?;
        let name = |peer: &Peer| peer.name().to_owned();
        if let Some(lab) = lab {
            let client_address = client.known_address().map_err(|error| error.failure)?;
            let (client, server) = (name(client.peer), name(server.peer));
            let interfaces =
                [interface(lab, &client, client_address)?, interface(lab, &server, server_address)?];
            return Ok(Self::Lab(LabRanks { lab, client, server, interfaces, program }));
        }
        if client.peer.hello().host != host_name() {
            return Err(failure(
                FailureKind::Invalid,
                format!(
                    "mpirun is started on this host, which has to be the client: run this on {}, or exchange the roles",
                    client.peer.name()
                ),
            ));
        }
        if server_address.is_loopback() {
            return Ok(Self::Here);
        }
        let client = client.address.map_or_else(host_name, |address| address.to_string());
        Ok(Self::Remote { client, server: without_port(server.peer.name()) })
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
        failure(FailureKind::Invalid, format!("no interface of {host} in the lab has the address {address}"))
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
