//! Host captures: `proc`, `sys` and the driver state in a `.tar.gz`, without what identifies the machine or
//! its owner.
//!
//! A capture holds what the readers read while they made a report, so that a captured host gives the same
//! report as the running one. Beside the trees the bundle holds `manifest.json` (`clearstream.host-capture`),
//! `ethtool.json` and `routing.json`: addresses, routes, rules and nexthop objects.

mod archive;
mod recording;
mod redact;
mod routing;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use clearstream_netlink::{RouteSocket, ethtool::Ethtool, netdev::Netdev, source_translations};
use clearstream_schema::{
    control::FailureKind,
    failure::Classified,
    host::{HostReport, Nic},
    routing::{HostRouting, SourceTranslation},
};
use serde::{Deserialize, Serialize};

pub use self::archive::{Captured, open};
pub(crate) use self::recording::Recording;
pub use self::routing::{AddressKey, Addresses};
use crate::{
    counters,
    drivers::{DriverState, Drivers},
    inspect,
    root::HostRoot,
};

/// Name of the bundle's format.
const CAPTURE_SCHEMA: &str = "clearstream.host-capture";
/// Its version.
const CAPTURE_VERSION: u32 = 1;

/// Name of a captured host whose name was not kept.
pub const CAPTURED_NAME: &str = "captured";

const MANIFEST: &str = "manifest.json";
const ETHTOOL: &str = "ethtool.json";
const ROUTING: &str = "routing.json";

/// Files that today's report does not use but a later reader may.
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

/// Sysctl folders that are kept whole, so that a sysctl missing from a capture is known not to exist on the
/// host.
const SYSCTL_FOLDERS: &[&str] = &["proc/sys/net/core", "proc/sys/net/ipv4"];

/// Folders with a subfolder per interface, and the sysctls in them that routing depends on.
const INTERFACE_FOLDERS: &[&str] = &["proc/sys/net/ipv4/conf", "proc/sys/net/ipv6/conf"];
const INTERFACE_SYSCTLS: &[&str] = &[
    "accept_redirects",
    "arp_announce",
    "arp_ignore",
    "forwarding",
    "ignore_routes_with_linkdown",
    "proxy_arp",
    "proxy_ndp",
    "rp_filter",
    "send_redirects",
    "src_valid_mark",
];

/// Exists where the kernel tracks connections.
const CONNECTION_TRACKING: &str = "proc/sys/net/netfilter/nf_conntrack_count";
/// Tables of `iptables-legacy` in the network namespace.
const LEGACY_TABLES: [&str; 2] = ["proc/net/ip_tables_names", "proc/net/ip6_tables_names"];

/// Sysctls that are secrets, or that control packet steering (RSS key).
const SECRET_SYSCTLS: &[&str] = &["tcp_fastopen_key", "netdev_rss_key"];

/// A capture that could not be written or opened.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The bundle could not be written.
    #[error("cannot write the capture: {source}")]
    Write {
        /// System error.
        source: io::Error,
    },
    /// The bundle could not be read.
    #[error("cannot read the capture {path}: {source}")]
    Read {
        /// The bundle.
        path: PathBuf,
        /// System error.
        source: io::Error,
    },
    /// The bundle is no capture of a host.
    #[error("{path} is no captured host: {reason}")]
    NotACapture {
        /// The bundle.
        path: PathBuf,
        /// Reason.
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

impl Classified for CaptureError {
    fn failure_kind(&self) -> FailureKind {
        FailureKind::File
    }
}

/// Options of a capture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaptureOptions {
    /// Keep the host name; otherwise the captured host is called `captured`.
    pub keep_host_name: bool,
    /// Anonymization of the addresses used in routing.
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
    /// Error numbers of files that existed and could not be read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    refused: BTreeMap<String, i32>,
}

/// Metadata of a captured tree.
#[derive(Debug)]
pub(crate) struct Bundle {
    page_bytes: Option<u64>,
    errors: BTreeMap<String, i32>,
    ethtool: Result<BTreeMap<String, DriverState>, String>,
    routing: Result<HostRouting, String>,
}

impl Bundle {
    /// Reads the metadata of a tree; a tree of another origin has none.
    pub(crate) fn read(file: impl Fn(&str) -> io::Result<Vec<u8>>) -> Self {
        let manifest: Manifest = json(file(MANIFEST)).unwrap_or_default();
        Self {
            page_bytes: manifest.page_bytes,
            errors: manifest.refused,
            ethtool: json(file(ETHTOOL)),
            routing: json(file(ROUTING)),
        }
    }

    /// The error of reading `rel` on the captured host.
    pub(crate) fn recorded_error(&self, rel: &str) -> Option<io::Error> {
        self.errors.get(rel).map(|&code| io::Error::from_raw_os_error(code))
    }
}

fn json<T: for<'de> Deserialize<'de>>(file: io::Result<Vec<u8>>) -> Result<T, String> {
    let text = file.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "not part of this capture".to_owned(),
        _ => error.to_string(),
    })?;
    clearstream_schema::json::from_slice(&text).map_err(|error| error.to_string())
}

impl HostRoot {
    /// The source of driver state; `Err` with the reason when there is none.
    pub(crate) fn drivers(&self) -> Result<Drivers, String> {
        match self.bundle() {
            None => Ethtool::open()
                .map(|ethtool| Drivers::Live(ethtool, Netdev::open(), RouteSocket::open().ok()))
                .map_err(|error| error.to_string()),
            Some(bundle) => bundle.ethtool.clone().map(Drivers::Captured),
        }
    }

    /// Routing state of the host, without sysctls: for the running host, the kernel's state in the calling
    /// thread's network namespace. Fails with the reason when the kernel refuses, or when the capture does
    /// not contain it.
    pub fn routing(&self) -> Result<HostRouting, String> {
        match self.bundle() {
            None => {
                let routing = RouteSocket::open().and_then(|mut socket| socket.host_routing());
                let mut routing = routing.map_err(|error| error.to_string())?;
                routing.source_translations = self.source_translations();
                Ok(routing)
            }
            Some(bundle) => bundle.routing.clone(),
        }
    }

    /// Masquerade and SNAT of the running kernel; `None` where they cannot be read:
    /// without `CAP_NET_ADMIN`, and where they are in tables of `iptables-legacy`.
    fn source_translations(&self) -> Option<Vec<SourceTranslation>> {
        // NAT is part of connection tracking. Without it no request is sent, since it would make the kernel
        // load nf_tables.
        if !self.exists(CONNECTION_TRACKING) {
            return Some(Vec::new());
        }
        let is_legacy =
            |path: &&str| self.read(path).is_ok_and(|tables| tables.lines().any(|it| it == "nat"));
        if LEGACY_TABLES.iter().any(is_legacy) {
            return None;
        }
        source_translations().ok()
    }

    /// Page size of the host; `None` for a capture that does not record it.
    pub(crate) fn page_bytes(&self) -> Option<u64> {
        match self.bundle() {
            None => u64::try_from(rustix::param::page_size()).ok(),
            Some(bundle) => bundle.page_bytes,
        }
    }
}

/// Writes the anonymized bundle of a host, without its name.
pub fn write(root: &HostRoot, out: impl Write) -> Result<(), CaptureError> {
    write_with(root, out, CaptureOptions::default()).map(|_| ())
}

/// Writes the anonymized bundle of a host and returns the report made while it was recorded. The report is
/// not anonymized: the bundle gives the same one except for the replacements.
///
/// Removed or replaced: MAC and IP addresses (also in interface names derived from them), serial numbers in
/// configuration space and `/proc/cpuinfo`, identifiers in names of control groups, and the host name unless
/// requested. Addresses in routes, rules and nexthop objects are replaced consistently with their networks,
/// see [`Addresses`]. Never read: neighbours, DMI, command line, environment.
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
        // Absent files are simply not part of the bundle.
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
    let mut redacted = redact::redact(&mut recording, routing, options);
    let manifest = Manifest {
        schema: CAPTURE_SCHEMA.to_owned(),
        version: CAPTURE_VERSION,
        program: concat!("clearstream ", env!("CARGO_PKG_VERSION")).to_owned(),
        page_bytes,
        host_name_kept: options.keep_host_name,
        refused: std::mem::take(&mut redacted.errors),
    };
    archive::write(&manifest, &redacted, out).map_err(|source| CaptureError::Write { source })?;
    Ok(report)
}

/// Reads all network sysctls except secrets.
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

/// Reads the sysctls that routing depends on, per interface.
fn keep_interface_sysctls(recorder: &HostRoot) {
    for folder in INTERFACE_FOLDERS {
        for name in recorder.list(folder).unwrap_or_default() {
            for key in INTERFACE_SYSCTLS {
                let _ = recorder.read_bytes(&format!("{folder}/{name}/{key}"));
            }
        }
    }
}

/// Reads attributes that the report of an interface does not contain.
fn keep_interface(recorder: &HostRoot, nic: &Nic) {
    let folder = format!("sys/class/net/{}", nic.name);
    for file in ["tx_queue_len", "mode", "brport/state"] {
        let _ = recorder.read_bytes(&format!("{folder}/{file}"));
    }
    for queue in 0..nic.receive_queue_count {
        let _ = recorder.read_bytes(&format!("{folder}/queues/rx-{queue}/rps_flow_cnt"));
    }
}
