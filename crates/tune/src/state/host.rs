//! State of a host, running or captured.

use std::{collections::BTreeSet, net::IpAddr};

use clearstream_host::{HostRoot, parse::text};
use clearstream_netlink::{NetlinkError, RouteQuery, RouteSocket};
use clearstream_schema::host::HostReport;

use super::{Destination, HostState, Interface, Value, configured};
use crate::knowledge::Knowledge;

const FOLDERS: [(&str, &str); 2] = [("net.core", "proc/sys/net/core"), ("net.ipv4", "proc/sys/net/ipv4")];

/// A key that every kernel and namespace has and no report reads: a capture that
/// contains it contains the whole folder, so a missing key does not exist.
const KEY_OF_COMPLETE_CAPTURES: &str = "net.ipv4.tcp_retries2";

/// A key that every kernel has, in its initial network namespace only.
const KEY_OF_INITIAL_NAMESPACE: &str = "net.core.netdev_max_backlog";

impl HostState {
    /// Reads a host; changes nothing.
    pub fn of_host(root: &HostRoot) -> Self {
        Self::of_report(root, clearstream_host::inspect(root))
    }

    /// The same host as the sender to an address: the kernel's route there is looked up.
    ///
    /// # Errors
    /// The kernel's reason when it has no route there.
    pub fn with_route_to(mut self, address: IpAddr) -> Result<Self, NetlinkError> {
        let route = RouteSocket::open()?.lookup(&RouteQuery::to(address))?;
        self.destination = Some(Destination { address, congestion_control: route.congestion_control });
        Ok(self)
    }

    /// Reads a host whose report exists already.
    pub fn of_report(root: &HostRoot, report: HostReport) -> Self {
        let mut missing = Vec::new();
        let mut configured = configured::read(root, &mut missing);
        let tuned = configured::tuned(root, &mut configured, &mut missing);
        let present = present(root);
        let memory = root.read("proc/meminfo").unwrap_or_default();
        let memory_bytes = text::memory_bytes(&memory, "MemTotal").ok();
        let huge_bytes = text::memory_bytes(&memory, "Hugetlb").ok();
        let mut routes = match root.is_live().then(RouteSocket::open) {
            Some(Ok(routes)) => Some(routes),
            Some(Err(error)) => {
                missing.push(format!("queueing disciplines: {error}"));
                None
            }
            None => None,
        };
        let interfaces = report
            .nics
            .iter()
            .filter(|nic| nic.name != "lo")
            .map(|nic| Interface::read(root, nic, routes.as_mut()))
            .collect();
        let mut state = Self {
            subject: if report.name.is_empty() { "this host".to_owned() } else { report.name.clone() },
            host_name: Some(report.name.clone()),
            release: report.kernel.release.clone(),
            kernel: report.kernel.release.as_deref().and_then(|release| release.parse().ok()),
            page_bytes: Some(report.kernel.page_bytes).filter(|&bytes| bytes > 0),
            memory_bytes,
            huge_bytes,
            own_network_namespace: own_namespace(present.as_ref(), &report),
            present,
            interfaces,
            irqbalance_is_running: irqbalance(root),
            tuned,
            configured,
            missing,
            ..Self::default()
        };
        state.read_values(root, &report);
        state.report = Some(report);
        state
    }

    fn read_values(&mut self, root: &HostRoot, report: &HostReport) {
        let known = Knowledge::embedded();
        for key in known.keys() {
            let path = format!("proc/sys/{}", key.name.replace('.', "/"));
            let text = match root.read(&path) {
                Ok(text) => Some(text),
                Err(_) => report.kernel.sysctls.get(&key.name).cloned(),
            };
            let Some(text) = text else { continue };
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let set_by = self.configured.get(&key.name).and_then(|all| {
                all.iter().rev().find(|assignment| assignment.value == text).map(|set| set.place.clone())
            });
            self.values.insert(key.name.clone(), Value { text, place: set_by, effective: true });
        }
    }
}

/// Uses the report where process 1 is visible; elsewhere (in a container with its
/// own PID namespace) the keys.
fn own_namespace(present: Option<&BTreeSet<String>>, report: &HostReport) -> Option<bool> {
    let lacks_host_keys = present.map(|names| !names.contains(KEY_OF_INITIAL_NAMESPACE));
    report.limits.own_network_namespace.or(lacks_host_keys)
}

/// Names of all sysctls of the two folders, if the folders are complete.
fn present(root: &HostRoot) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for (prefix, folder) in FOLDERS {
        names
            .extend(root.list(folder).unwrap_or_default().into_iter().map(|name| format!("{prefix}.{name}")));
    }
    for key in Knowledge::embedded().keys() {
        if root.exists(&format!("proc/sys/{}", key.name.replace('.', "/"))) {
            names.insert(key.name.clone());
        }
    }
    names.contains(KEY_OF_COMPLETE_CAPTURES).then_some(names)
}

/// Folder of irqbalance's socket (irqbalance(1)).
fn irqbalance(root: &HostRoot) -> Option<bool> {
    root.is_live().then(|| {
        let names = root.list("run/irqbalance").unwrap_or_default();
        names.iter().any(|name| name.ends_with(".sock"))
    })
}
