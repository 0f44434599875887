//! A host in a file: `proc`, `sys` and the drivers' answers in a `.tar.gz`,
//! without what identifies the machine or its owner.
//!
//! What is kept is what the readers saw while they made a report, so that a
//! captured host gives the same report as the running one did. Beside the
//! trees the bundle holds `manifest.json` ([`CAPTURE_SCHEMA`]), `ethtool.json`
//! and `routing.json`: addresses, routes, rules and nexthop objects.

mod archive;
mod recording;
mod routing;
mod scrub;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use clearstream_netlink::{RouteSocket, ethtool::Ethtool, netdev::Netdev};
use clearstream_schema::{
    host::{HostReport, Nic},
    routing::HostRouting,
};
use serde::{Deserialize, Serialize};

pub use self::archive::{Captured, open};
pub(crate) use self::recording::Recording;
pub use self::routing::{AddressKey, Addresses};
use crate::{
    counters,
    drivers::{Answers, Drivers},
    inspect,
    root::HostRoot,
};

/// Name of the bundle's format.
pub const CAPTURE_SCHEMA: &str = "clearstream.host-capture";
/// Its version.
pub const CAPTURE_VERSION: u32 = 1;

/// The name of a captured host whose name was not kept.
pub const CAPTURED_NAME: &str = "captured";

const MANIFEST: &str = "manifest.json";
const ETHTOOL: &str = "ethtool.json";
const ROUTING: &str = "routing.json";

/// Files that a later reader may want and today's report does not use.
const ALSO_KEPT: &[&str] = &[
    "proc/meminfo",
    "proc/net/netstat",
    "proc/net/snmp",
    "proc/net/sockstat",
    "proc/sys/vm/min_free_kbytes",
    "proc/sys/vm/nr_hugepages",
    "proc/sys/vm/zone_reclaim_mode",
    "proc/sys/net/ipv4/route/mtu_expires",
    "proc/sys/net/ipv6/fib_multipath_hash_fields",
    "proc/sys/net/ipv6/fib_multipath_hash_policy",
    "proc/sys/net/netfilter/nf_conntrack_count",
    "proc/uptime",
    "proc/pressure/cpu",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/devices/system/cpu/smt/active",
    "sys/devices/system/cpu/isolated",
    "sys/devices/system/cpu/nohz_full",
    "sys/kernel/mm/transparent_hugepage/enabled",
];

/// Folders of sysctls that are kept whole, so that what a captured host does
/// not have is known not to be there.
const SYSCTL_FOLDERS: &[&str] = &["proc/sys/net/core", "proc/sys/net/ipv4"];

/// Folders with a folder for each interface, and what routes depend on there.
const INTERFACE_FOLDERS: &[&str] = &["proc/sys/net/ipv4/conf", "proc/sys/net/ipv6/conf"];
const INTERFACE_SYSCTLS: &[&str] = &[
    "accept_redirects",
    "arp_announce",
    "arp_ignore",
    "forwarding",
    "ignore_routes_with_linkdown",
    "rp_filter",
    "send_redirects",
    "src_valid_mark",
];

/// Sysctls that are secrets, or that random choice of a host that steers its packets.
const SECRET_SYSCTLS: &[&str] = &["tcp_fastopen_key", "netdev_rss_key"];

/// A capture that could not be written or opened.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The bundle could not be written.
    #[error("cannot write the capture: {source}")]
    Write {
        /// What the system said.
        source: io::Error,
    },
    /// The bundle could not be read.
    #[error("cannot read the capture {path}: {source}")]
    Read {
        /// The bundle.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The bundle is no capture of a host.
    #[error("{path} is no captured host: {reason}")]
    NotACapture {
        /// The bundle.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The bundle was written by a later version.
    #[error(
        "{path} has version {found} of the capture format, this program reads up to {CAPTURE_VERSION}: use a newer clearstream"
    )]
    Version {
        /// The bundle.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

/// What goes into a bundle beyond the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaptureOptions {
    /// Keep the host name; else the captured host is called `captured`.
    pub keep_host_name: bool,
    /// What becomes of the addresses that the host routes by.
    pub addresses: Addresses,
}

/// `manifest.json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Manifest {
    schema: String,
    version: u32,
    program: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    page_bytes: Option<u64>,
    host_name_kept: bool,
    /// Error numbers of files that were there and could not be read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    refused: BTreeMap<String, i32>,
}

/// What a captured tree says about itself.
#[derive(Debug)]
pub(crate) struct Bundle {
    page_bytes: Option<u64>,
    refused: BTreeMap<String, i32>,
    ethtool: Result<BTreeMap<String, Answers>, String>,
    routing: Result<HostRouting, String>,
}

impl Bundle {
    /// Reads the two files of a tree; a tree of another origin has neither.
    pub(crate) fn read(file: impl Fn(&str) -> io::Result<Vec<u8>>) -> Self {
        let manifest: Manifest = json(file(MANIFEST)).unwrap_or_default();
        Self {
            page_bytes: manifest.page_bytes,
            refused: manifest.refused,
            ethtool: json(file(ETHTOOL)),
            routing: json(file(ROUTING)),
        }
    }

    /// The error that reading `rel` gave on the captured host.
    pub(crate) fn refusal(&self, rel: &str) -> Option<io::Error> {
        self.refused.get(rel).map(|&code| io::Error::from_raw_os_error(code))
    }
}

fn json<T: for<'de> Deserialize<'de>>(file: io::Result<Vec<u8>>) -> Result<T, String> {
    let text = file.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "not part of this capture".to_owned(),
        _ => error.to_string(),
    })?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

impl HostRoot {
    /// Who answers for the drivers; the reason when nobody does.
    pub(crate) fn drivers(&self) -> Result<Drivers, String> {
        match self.bundle() {
            None => Ethtool::open()
                .map(|ethtool| Drivers::Live(ethtool, Netdev::open()))
                .map_err(|error| error.to_string()),
            Some(bundle) => bundle.ethtool.clone().map(Drivers::Captured),
        }
    }

    /// What the host routes by, without sysctls: of the running host what the
    /// kernel says in the calling thread's network namespace. Fails with the
    /// reason when the kernel refuses, or when it is no part of a capture.
    pub fn routing(&self) -> Result<HostRouting, String> {
        match self.bundle() {
            None => RouteSocket::open()
                .and_then(|mut socket| socket.host_routing())
                .map_err(|error| error.to_string()),
            Some(bundle) => bundle.routing.clone(),
        }
    }

    /// Page size of the host; `None` for a capture that does not record it.
    pub(crate) fn page_bytes(&self) -> Option<u64> {
        match self.bundle() {
            None => u64::try_from(rustix::param::page_size()).ok(),
            Some(bundle) => bundle.page_bytes,
        }
    }
}

/// Writes the scrubbed bundle of a host, without its name.
pub fn write(root: &HostRoot, out: impl Write) -> Result<(), CaptureError> {
    write_with(root, out, CaptureOptions::default()).map(|_| ())
}

/// Writes the scrubbed bundle of a host and returns the report that was made
/// while it was recorded, which is not scrubbed: the bundle gives the same one
/// but for what was replaced.
///
/// Left out or replaced: MAC and IP addresses (also in interface names made of
/// them), serial numbers in configuration space and `/proc/cpuinfo`, names of
/// control groups made of identifiers, and the host name unless asked for.
/// Addresses in routes, rules and nexthop objects become others that lie in
/// each other's networks as before, as [`Addresses`] says.
/// Never read: neighbours, DMI, command line, environment.
pub fn write_with(
    root: &HostRoot,
    out: impl Write,
    options: CaptureOptions,
) -> Result<HostReport, CaptureError> {
    let recording = Arc::new(Mutex::new(Recording::default()));
    let recorder = root.recording(Arc::clone(&recording));
    let report = inspect::inspect(&recorder);
    counters::read(&recorder);
    for path in ALSO_KEPT {
        // Absent files are no part of the bundle; that is all there is to say.
        let _ = recorder.read_bytes(path);
    }
    keep_sysctls(&recorder);
    keep_interface_sysctls(&recorder);
    for nic in &report.nics {
        keep_interface(&recorder, nic);
    }
    let routing = root.routing().ok();
    let page_bytes = root.page_bytes();
    drop(recorder);
    let mut recording = recording.lock().unwrap_or_else(PoisonError::into_inner);
    let mut scrubbed = scrub::scrub(&mut recording, routing, options);
    let manifest = Manifest {
        schema: CAPTURE_SCHEMA.to_owned(),
        version: CAPTURE_VERSION,
        program: concat!("clearstream ", env!("CARGO_PKG_VERSION")).to_owned(),
        page_bytes,
        host_name_kept: options.keep_host_name,
        refused: std::mem::take(&mut scrubbed.refused),
    };
    archive::write(&manifest, &scrubbed, out).map_err(|source| CaptureError::Write { source })?;
    Ok(report)
}

/// Reads every sysctl of the network that is no secret.
fn keep_sysctls(recorder: &HostRoot) {
    for folder in SYSCTL_FOLDERS {
        for name in recorder.list(folder).unwrap_or_default() {
            let path = format!("{folder}/{name}");
            if !SECRET_SYSCTLS.contains(&name.as_str()) && !recorder.is_directory(&path) {
                let _ = recorder.read_bytes(&path);
            }
        }
    }
}

/// Reads what routes depend on, interface by interface.
fn keep_interface_sysctls(recorder: &HostRoot) {
    for folder in INTERFACE_FOLDERS {
        for name in recorder.list(folder).unwrap_or_default() {
            for key in INTERFACE_SYSCTLS {
                let _ = recorder.read_bytes(&format!("{folder}/{name}/{key}"));
            }
        }
    }
}

/// Reads what the report of an interface does not hold.
fn keep_interface(recorder: &HostRoot, nic: &Nic) {
    let folder = format!("sys/class/net/{}", nic.name);
    for file in ["tx_queue_len", "mode", "brport/state"] {
        let _ = recorder.read_bytes(&format!("{folder}/{file}"));
    }
    for queue in 0..nic.receive_queue_count {
        let _ = recorder.read_bytes(&format!("{folder}/queues/rx-{queue}/rps_flow_cnt"));
    }
}
