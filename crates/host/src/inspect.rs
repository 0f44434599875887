//! Assembles the whole report.

use clearstream_schema::host::{HOST_SCHEMA, HostReport};

use crate::{
    interrupt, kernel, limits,
    missing::Missing,
    nic,
    parse::text::{self, CpuInfo},
    pci,
    root::HostRoot,
    topology,
};

/// Enough of `/proc/cpuinfo` for its first processor.
const CPU_INFO_BYTES: u64 = 8 << 10;

/// Version of the report.
const VERSION: u32 = 1;

/// Describes the host below `root`. Never fails: a part that could not be read is absent and listed in
/// `missing` with its source and the reason. Reads files and, on the running host, queries drivers over
/// netlink; changes nothing.
pub fn inspect(root: &HostRoot) -> HostReport {
    let mut missing = Missing::default();
    let name = missing.keep("host name", root.line("proc/sys/kernel/hostname")).unwrap_or_default();
    let cpu = root.read_head("proc/cpuinfo", CPU_INFO_BYTES).map(|cpuinfo| text::cpu_info(&cpuinfo));
    let cpu: CpuInfo = missing.keep("processor model", cpu.map_err(Into::into)).unwrap_or_default();
    let limits = limits::read(root, &cpu, &mut missing);
    let allowed = (!limits.allowed_cores.is_empty()).then_some(limits.allowed_cores.as_slice());
    let topology = topology::read(root, allowed, &mut missing);
    let pci_devices = pci::read(root, &mut missing);
    let mut interrupts = interrupt::read(root, &mut missing);
    let mut context =
        nic::NicContext { nodes: &topology.nodes, pci_devices: &pci_devices, interrupts: &mut interrupts };
    let nics = nic::read(root, &mut context, &mut missing);
    let kernel = kernel::read(root, &cpu, &mut missing);
    HostReport {
        schema: HOST_SCHEMA.to_owned(),
        version: VERSION,
        name,
        cpu_model: cpu.model,
        nodes: topology.nodes,
        packages: topology.packages,
        llc_groups: topology.llc_groups,
        l2_cache_bytes: topology.l2_cache_bytes,
        processing_units: topology.processing_units,
        pci_devices,
        nics,
        interrupts,
        kernel,
        limits,
        missing: missing.into_parts(),
    }
}
