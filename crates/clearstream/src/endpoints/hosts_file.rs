//! Hosts by a file (`--hosts`), by several names, or all of a lab: any number, each with its role and its
//! access method.

use std::{collections::BTreeSet, net::IpAddr, path::Path};

use clearstream_configfile::{ConfigError, Fault, FileKind};
use clearstream_control::{Peer, pairing::Pairing};
use clearstream_host::HostRoot;
use clearstream_lab::RunningLab;
use clearstream_schema::{
    hosts::{HOSTS_SCHEMA, HostEntry, HostsFile},
    lab::LabFile,
};
use clearstream_workload::{CLIENT, PairAddresses, SERVER};

use super::{
    Endpoint, Endpoints, FamilyArgs, PathArgs, REMOTE_PROGRAM, agent_in, connect_daemon, data_address,
    lab_address, local_agent, open_lab, resolve, source_address, ssh_agent,
};
use crate::exit::CommandError;

const HOSTS: FileKind =
    FileKind { noun: "hosts", schema: HOSTS_SCHEMA, version: 1, folder: "hosts", built_in: &[] };

/// Role of a host that no workload requests by name.
const OTHER_ROLE: &str = "host";

/// Reads and checks such a file.
pub(super) fn load(path: &Path) -> Result<HostsFile, CommandError> {
    let mut path = path.to_string_lossy().into_owned();
    // A name without a slash is a file here: there are no built-in ones.
    if !path.contains('/') {
        path.insert_str(0, "./");
    }
    let source = HOSTS.find(&path)?;
    let file: HostsFile = HOSTS.read(&source)?;
    check(&file).map_err(|fault| -> ConfigError { source.invalid(fault) })?;
    Ok(file)
}

fn check(file: &HostsFile) -> Result<(), Fault> {
    let fault = |key: String, problem: String| Err(Fault { key, problem });
    if file.hosts.len() < 2 {
        return fault("host".to_owned(), "name two hosts or more".to_owned());
    }
    let mut names = BTreeSet::new();
    for (number, host) in file.hosts.iter().enumerate() {
        let key = |name: &str| format!("host[{number}].{name}");
        if host.name.is_empty() || !names.insert(host.name.as_str()) {
            return fault(key("name"), format!("\"{}\" is empty or there twice", host.name));
        }
        let places = [("local", host.local), ("ssh", host.ssh.is_some()), ("daemon", host.daemon.is_some())];
        let given: Vec<&str> = places.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        match (&file.lab, given.as_slice()) {
            (Some(lab), [first, ..]) => {
                return fault(key(first), format!("the hosts are in the lab {lab}: leave it out"));
            }
            (None, []) => {
                let problem = "specify how to reach it: local = true, ssh = \"DESTINATION\", or daemon = \
                               \"ADDRESS:PORT\" with pairing = \"FILE\"";
                return fault(key("name"), problem.to_owned());
            }
            (None, [_, second, ..]) => {
                return fault(
                    key(second),
                    "a host is reached by one method: leave the others out".to_owned(),
                );
            }
            _ => {}
        }
        if host.daemon.is_some() != host.pairing.is_some() {
            let at = if host.daemon.is_some() { "daemon" } else { "pairing" };
            return fault(key(at), "a daemon needs its pairing: write both".to_owned());
        }
        let of_ssh = host.remote_program.is_some() || !host.ssh_options.is_empty();
        if of_ssh && host.ssh.is_none() {
            return fault(key("name"), "ssh-options and remote-program need ssh".to_owned());
        }
    }
    for (number, lane) in file.lanes.iter().enumerate() {
        for (end, name) in [("from", &lane.from), ("to", &lane.to)] {
            if !names.contains(name.as_str()) {
                return fault(format!("lane[{number}].{end}"), format!("there is no host {name} here"));
            }
        }
    }
    Ok(())
}

/// Roles as in the file; where it has none, the first host is the client and
/// the last the server.
fn roles(hosts: &[HostEntry]) -> Vec<String> {
    let unspecified = hosts.iter().all(|host| host.role.is_none());
    let usual = |number: usize| match number {
        0 if unspecified => CLIENT,
        _ if unspecified && number + 1 == hosts.len() => SERVER,
        _ => OTHER_ROLE,
    };
    let numbered = hosts.iter().enumerate();
    numbered.map(|(number, host)| host.role.clone().unwrap_or_else(|| usual(number).to_owned())).collect()
}

fn of(lab: Option<String>, hosts: Vec<HostEntry>) -> HostsFile {
    HostsFile { schema: HOSTS_SCHEMA.to_owned(), version: 1, lab, hosts, lanes: Vec::new() }
}

/// All hosts of a lab but its routers.
pub(super) fn of_lab(lab: &LabFile) -> HostsFile {
    let ends = lab.hosts.iter().filter(|host| !host.router);
    let entries = ends.map(|host| HostEntry { name: host.name.clone(), ..HostEntry::default() });
    of(Some(lab.name.clone()), entries.collect())
}

/// This host and these others, by ssh.
pub(super) fn of_names(others: &[String], path: &PathArgs) -> Result<HostsFile, CommandError> {
    let usage = |text: String| Err(CommandError::Usage(text));
    let options = [("--address", path.address.is_some()), ("--pairing", path.pairing.is_some())];
    if let Some((option, _)) = options.iter().find(|(_, given)| *given) {
        return usage(format!("{option} is of one host: write several into a file for --hosts FILE"));
    }
    let own = HostRoot::live().read("proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    if let Some(here) = others.iter().find(|name| **name == own || *name == "localhost") {
        return usage(format!("{here} is this host, which takes part anyway: leave it out"));
    }
    let mut entries = vec![HostEntry { name: own, local: true, ..HostEntry::default() }];
    for name in others {
        if entries.iter().any(|entry| entry.name == *name) {
            return usage(format!("{name} is named twice"));
        }
        entries.push(HostEntry {
            name: name.clone(),
            ssh: Some(name.clone()),
            ssh_options: path.ssh_options.clone(),
            remote_program: Some(path.remote_program.clone()),
            ..HostEntry::default()
        });
    }
    Ok(of(None, entries))
}

/// Starts an agent on every host of the file.
pub(super) fn open(file: &HostsFile, family: FamilyArgs) -> Result<Endpoints, CommandError> {
    let (lab, own_lab) = match &file.lab {
        Some(name) => open_lab(name).map(|(lab, own)| (Some(lab), own))?,
        None => (None, None),
    };
    let lanes: PairAddresses =
        file.lanes.iter().map(|lane| ((lane.from.clone(), lane.to.clone()), lane.address)).collect();
    let mut hosts = Vec::new();
    for (entry, role) in file.hosts.iter().zip(roles(&file.hosts)) {
        let (peer, found) = reach(entry, lab.as_ref(), family)?;
        hosts.push(Endpoint { role, peer, address: entry.address.or(found) });
    }
    // This host's address is the one that it uses towards the others.
    if let Some(towards) = hosts.iter().find_map(|host| host.address) {
        for (host, entry) in hosts.iter_mut().zip(&file.hosts) {
            host.address = host.address.or_else(|| source_address(towards).filter(|_| entry.local));
        }
    }
    Ok(Endpoints { hosts, lanes, lab, _own_lab: own_lab })
}

/// The agent of a host, and its address where the access method provides it.
fn reach(
    entry: &HostEntry,
    lab: Option<&RunningLab>,
    family: FamilyArgs,
) -> Result<(Peer, Option<IpAddr>), CommandError> {
    let name = entry.name.as_str();
    if let Some(lab) = lab {
        return Ok((agent_in(lab, name)?, Some(lab_address(lab, name, family)?)));
    }
    if let (Some(daemon), Some(pairing)) = (&entry.daemon, &entry.pairing) {
        let pairing = Pairing::load(Path::new(pairing))?;
        let address = resolve(daemon, pairing.port(), family)?;
        return Ok((connect_daemon(name, address, &pairing)?.with_name(name), Some(address.ip())));
    }
    let Some(destination) = &entry.ssh else { return Ok((local_agent(name)?, None)) };
    let program = entry.remote_program.as_deref().unwrap_or(REMOTE_PROGRAM);
    let peer = ssh_agent(destination, name, program, &entry.ssh_options, family)?;
    let address = match entry.address {
        Some(address) => address,
        None => data_address(&peer, destination, &entry.ssh_options, family)?,
    };
    Ok((peer, Some(address)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may end by panic")]
mod tests {
    use super::*;

    fn loaded(text: &str) -> Result<HostsFile, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my.toml");
        std::fs::write(&path, format!("schema = \"clearstream.hosts\"\nversion = 1\n{text}")).unwrap();
        load(&path).map_err(|error| error.to_string().replace(&path.display().to_string(), "my.toml"))
    }

    #[test]
    fn slips_are_named_with_file_line_and_key() {
        let two = "[[host]]\nname = \"a\"\nlocal = true\n[[host]]\nname = \"b\"\nssh = \"b\"\n";
        assert!(loaded(two).is_ok());
        let slips = [
            ("[[host]]\nname = \"a\"\nlocal = true\n", "my.toml:3: host: name two hosts"),
            (
                &two.replace("\"b\"\nssh", "\"a\"\nssh"),
                "my.toml:7: host[1].name: \"a\" is empty or there twice",
            ),
            (&two.replace("local = true\n", ""), "my.toml:4: host[0].name: specify how to reach it"),
            (&two.replace("local", "ssh = \"a\"\nlocal"), "my.toml:5: host[0].ssh: a host is reached by one"),
            (&two.replace("ssh = \"b\"", "daemon = \"b\""), "my.toml:8: host[1].daemon: a daemon needs"),
            (&format!("lab = \"x\"\n{two}"), "my.toml:6: host[0].local: the hosts are in the lab x"),
            (
                &format!("{two}[[lane]]\nfrom = \"a\"\nto = \"c\"\naddress = \"10.0.0.1\"\n"),
                "my.toml:11: lane[0].to: there is no host c",
            ),
            (&two.replace("local", "locl"), "my.toml:5: host[0].locl: there is no `locl` here; did you mean"),
        ];
        for (text, expected) in slips {
            let message = loaded(text).unwrap_err();
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn without_roles_the_first_connects_and_the_last_listens() {
        let three = "lab = \"x\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[host]]\nname = \"c\"\n";
        assert_eq!(roles(&loaded(three).unwrap().hosts), ["client", "host", "server"]);
        let specified = three.replace("\"b\"\n", "\"b\"\nrole = \"server\"\n");
        assert_eq!(roles(&loaded(&specified).unwrap().hosts), ["host", "server", "host"]);
    }
}
