//! The hosts of a run by the machine they run on.

use clearstream_schema::{host::HostReport, record::RunHost};

use crate::{digest::Digest, format::join};

/// Hosts that share the cores of one machine, in the order of the record.
pub(crate) struct Machine<'a> {
    hosts: Vec<&'a RunHost>,
}

/// The machines of a run, in the order of their first hosts.
pub(crate) fn of(digest: &Digest) -> Vec<Machine<'_>> {
    let mut machines: Vec<Machine<'_>> = Vec::new();
    for host in &digest.run.hosts {
        let shares = |machine: &&mut Machine<'_>| {
            machine.hosts.iter().any(|other| digest.on_same_machine(&other.report, &host.report))
        };
        match machines.iter_mut().find(shares) {
            Some(machine) => machine.hosts.push(host),
            None => machines.push(Machine { hosts: vec![host] }),
        }
    }
    machines
}

impl Machine<'_> {
    /// Facts of one of its hosts hold for the others.
    pub(crate) fn report(&self) -> &HostReport {
        &self.hosts[0].report
    }

    /// Names of its hosts, each once.
    pub(crate) fn name(&self) -> String {
        let mut names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        names.dedup();
        join(names)
    }

    /// Roles of its hosts in the run.
    pub(crate) fn role(&self, host_count: usize, has_ends: bool) -> String {
        match self.hosts.len() {
            1 if !has_ends => "host".to_owned(),
            2 if !has_ends => "2 hosts, one machine".to_owned(),
            1 => self.hosts[0].role.clone(),
            2 if host_count == 2 => "both ends, one machine".to_owned(),
            count => format!("{count} hosts, one machine"),
        }
    }

    /// For identifiers: the role of its first host, with the name where several have that role.
    pub(crate) fn key(&self, digest: &Digest) -> String {
        let first = self.hosts[0];
        let alone = digest.run.hosts.iter().filter(|host| host.role == first.role).count() == 1;
        if alone { first.role.clone() } else { format!("{}-{}", first.role, first.name) }
    }

    fn has(&self, host: &HostReport) -> bool {
        self.hosts.iter().any(|own| std::ptr::eq(&own.report, host))
    }

    /// The core of it that took the receiver's packets in the first experiment that names one.
    pub(crate) fn interrupt_core(&self, digest: &Digest) -> Option<u32> {
        let here = |is_reverse| self.has(digest.receiver(is_reverse));
        digest.experiments.iter().find_map(|e| e.interrupt_core().filter(|_| here(e.is_reverse())))
    }
}
