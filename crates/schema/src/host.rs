//! A host described: what `inspect` finds and what a record keeps.

use std::collections::BTreeMap;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of the format.
pub const HOST_SCHEMA: &str = "clearstream.host";

/// A host. Parts that could not be read are absent and named in `missing`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostReport {
    /// [`HOST_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Host name.
    pub name: String,
    /// CPU model as the kernel names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// NUMA nodes, ascending.
    pub nodes: Vec<NumaNode>,
    /// Packages (sockets), ascending.
    pub packages: Vec<Package>,
    /// Groups of cores that share a last-level cache.
    pub llc_groups: Vec<LlcGroup>,
    /// Private second-level cache of a core, the smallest of the cores read;
    /// absent where the kernel does not describe it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_cache_bytes: Option<u64>,
    /// Processing units (logical CPUs), ascending, offline ones included.
    pub processing_units: Vec<ProcessingUnit>,
    /// PCI devices that matter here: NICs, NVMe, and the bridges above them.
    pub pci_devices: Vec<PciDevice>,
    /// Network interfaces.
    pub nics: Vec<Nic>,
    /// Device interrupts.
    pub interrupts: Vec<Interrupt>,
    /// Kernel.
    pub kernel: Kernel,
    /// Limits put on this process by containers and namespaces.
    pub limits: Limits,
    /// Parts that could not be read, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingPart>,
}

/// A part that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingPart {
    /// Subject: `numa node 3`, `nic eth2 rings`.
    pub part: String,
    /// Source: path below the root, or the kernel interface.
    pub source: String,
    /// Cause.
    pub reason: String,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NumaNode {
    /// Node number.
    pub node: u32,
    /// Its processing units; empty for memory-only nodes.
    pub cores: Vec<u32>,
    /// Memory; zero for memory-less nodes.
    pub memory_bytes: u64,
    /// Free memory.
    pub free_bytes: u64,
    /// Distance to each node, in the order of `HostReport::nodes` (10 is local).
    pub distances: Vec<u32>,
}

/// A package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Package {
    /// `physical_package_id`.
    pub package: u32,
    /// Its processing units.
    pub cores: Vec<u32>,
}

/// Cores that share a last-level cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LlcGroup {
    /// Cache level, usually 3.
    pub level: u32,
    /// Size.
    pub size_bytes: u64,
    /// Processing units that share it.
    pub cores: Vec<u32>,
}

/// A logical CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessingUnit {
    /// Number as the kernel counts.
    pub core: u32,
    /// Online.
    pub online: bool,
    /// Package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<u32>,
    /// NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Core identifier within the package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_id: Option<u32>,
    /// SMT siblings, itself included.
    pub siblings: Vec<u32>,
    /// This process may run on it.
    pub allowed: bool,
}

/// Speed and width of a PCIe link, now or at most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PcieLink {
    /// GT/s per lane.
    pub gigatransfers_per_second: f64,
    /// Lanes.
    pub lane_count: u32,
}

/// Goodput a PCIe link can carry, with the arithmetic (tuning notes 3.4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PcieCeiling {
    /// Generation, 1 to 6.
    pub generation: u32,
    /// Lanes.
    pub lane_count: u32,
    /// Payload bits per line bit: 0.8 (8b/10b), 128/130, 242/256.
    pub encoding_ratio: f64,
    /// Rate after the line code.
    pub raw_bps: f64,
    /// Maximum payload size assumed or read.
    pub max_payload_bytes: u32,
    /// The payload size was read from the device (else it is an assumption).
    pub max_payload_known: bool,
    /// After TLP headers, no link-layer packets in the data's direction.
    pub optimistic_bps: f64,
    /// After TLP headers, acknowledgements, flow control and skip sets at the specification's limits.
    pub conservative_bps: f64,
    /// The arithmetic as text.
    pub arithmetic: String,
}

/// A PCI device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PciDevice {
    /// `0000:3b:00.0`.
    pub address: String,
    /// `0x15b3`.
    pub vendor: String,
    /// `0x1003`.
    pub device: String,
    /// `0x020000`.
    pub class: String,
    /// Driver bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// NUMA node; absent when the firmware reports none (-1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Cores local to it (`local_cpulist`).
    pub local_cores: Vec<u32>,
    /// Address of the bridge above, when there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Link as trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<PcieLink>,
    /// Link at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_max: Option<PcieLink>,
    /// Bandwidth of the trained link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<PcieCeiling>,
    /// Largest read request the device may send (Device Control bits 14:12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_read_request_bytes: Option<u32>,
}

/// Rings, channels or similar: set now and at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NowAndMax {
    /// In effect.
    pub now_count: u32,
    /// Device maximum.
    pub max_count: u32,
}

/// Receive side scaling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rss {
    /// `toeplitz`, `xor`, `crc32`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_function: Option<String>,
    /// Key in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Queue of each table entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indirection: Vec<u32>,
    /// Transform of the input: `symmetric-xor`, `symmetric-or-xor`; absent for
    /// none, and where the kernel does not report it (before 6.8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_transform: Option<String>,
    /// Receive queues that packets can be hashed to (`ETHTOOL_GRXRINGS`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_count: Option<u32>,
    /// Fields hashed by kind of packet (`tcp4`, `udp6`), in ethtool's letters:
    /// `s` and `d` addresses, `f` and `n` ports; empty where the driver does
    /// not report them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
}

/// Name and versions of a driver, as `ethtool -i` prints them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriverInformation {
    /// Driver name; virtual interfaces have one too (`veth`).
    pub name: String,
    /// Driver version, the kernel's for drivers without one of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Firmware version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware_version: Option<String>,
    /// Address on its bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
}

/// A value of interrupt coalescing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CoalescingValue {
    /// Microseconds, frames or packets/s, as the name states.
    Number(u32),
    /// On or off.
    Switch(bool),
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Nic {
    /// Interface name.
    pub name: String,
    /// Driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// PCI address; absent for virtual interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    /// NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Node distance from each node to the NIC's node, in the order of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distances: Vec<u32>,
    /// Hops from each node to the NIC's node, in the order of the nodes: 0 on
    /// it, 1 for the nearest remote distance, and so on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<u32>,
    /// `up`, `down`, `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operational_state: Option<String>,
    /// Link speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_bps: Option<u64>,
    /// MTU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
    /// Receive queues as sysfs lists them.
    pub receive_queue_count: u32,
    /// Transmit queues.
    pub transmit_queue_count: u32,
    /// `rps_cpus` per receive queue, where set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub receive_steering: BTreeMap<u32, Vec<u32>>,
    /// `xps_cpus` per transmit queue, where set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub transmit_steering: BTreeMap<u32, Vec<u32>>,
    /// Receive ring entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_ring: Option<NowAndMax>,
    /// Transmit ring entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transmit_ring: Option<NowAndMax>,
    /// Combined channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub combined_channels: Option<NowAndMax>,
    /// Receive-only channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_channels: Option<NowAndMax>,
    /// Transmit-only channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmit_channels: Option<NowAndMax>,
    /// Offloads by ethtool's name: on or off.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub offloads: BTreeMap<String, bool>,
    /// Receive side scaling, where the driver reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss: Option<Rss>,
    /// Name and versions of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_information: Option<DriverInformation>,
    /// Interrupt coalescing by ethtool's names (`rx-usecs`, `adaptive-rx`):
    /// what the device has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub coalescing: BTreeMap<String, CoalescingValue>,
    /// Interrupts of its queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<u32>,
    /// NAPI instance of each receive queue that has one, as
    /// `SO_INCOMING_NAPI_ID` names it (Linux 6.8).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub receive_napi: BTreeMap<u32, u32>,
    /// Root queueing discipline as `tc` spells it (`tbf rate 1gbit burst 32768b`,
    /// `fq`, `noqueue`); of kinds whose parameters are not known here the kind alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_qdisc: Option<String>,
}

/// Direction of the data that a queue carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QueueDirection {
    /// Receive only.
    Receive,
    /// Transmit only.
    Transmit,
    /// One vector for a pair of queues.
    Both,
}

/// The queue that an interrupt serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterruptQueue {
    /// Interface name.
    pub interface: String,
    /// Direction.
    pub direction: QueueDirection,
    /// Queue number, as in `queues/rx-N`.
    pub queue: u32,
}

/// A device interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Interrupt {
    /// Number.
    pub interrupt: u32,
    /// Action names from `/proc/interrupts`.
    pub action: String,
    /// Deliveries per core, only cores with any.
    pub counts: BTreeMap<u32, u64>,
    /// Cores it may go to (`smp_affinity_list`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_cores: Vec<u32>,
    /// Cores it does go to (`effective_affinity_list`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effective_cores: Vec<u32>,
    /// Node of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Interface queue it serves, where the name of the action contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<InterruptQueue>,
}

/// Kernel facts that matter to a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Kernel {
    /// `uname -r`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// Congestion controls available.
    pub congestion_controls: Vec<String>,
    /// Default congestion control.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Default qdisc.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_qdisc: Option<String>,
    /// Sysctls that matter, by dotted name, as read.
    pub sysctls: BTreeMap<String, String>,
    /// Page size; zero when it could not be determined.
    pub page_bytes: u64,
}

/// Limits of the process's surroundings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// Cores the process may use.
    pub allowed_cores: Vec<u32>,
    /// Cores that the scheduler leaves alone (boot option `isolcpus`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub isolated_cores: Vec<u32>,
    /// Memory nodes the process may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_nodes: Vec<u32>,
    /// Memory the process may lock (`RLIMIT_MEMLOCK`, which bounds zero-copy); absent when unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_memory_bytes: Option<u64>,
    /// CPU quota in thousandths of a core (cgroup `cpu.max`); absent when unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_quota_millicores: Option<u64>,
    /// Memory limit (cgroup `memory.max`); absent when unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Runs in a network namespace other than the host's, when that could be determined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_network_namespace: Option<bool>,
    /// Runs in a container, by name of the kind found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Hypervisor flag of the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine: Option<bool>,
}
