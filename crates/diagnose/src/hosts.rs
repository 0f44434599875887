//! Properties of a host, from its description, that limit a flow.

use clearstream_schema::host::{HostReport, Nic, PciDevice};

/// The three numbers of a sysctl such as `tcp_rmem`.
pub(crate) fn triple(host: &HostReport, name: &str) -> Option<[u64; 3]> {
    let text = host.kernel.sysctls.get(name)?;
    let mut numbers = text.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

/// The interface that carried the data, by its byte counter.
pub(crate) fn nic<'a>(host: &'a HostReport, interface: Option<&str>) -> Option<&'a Nic> {
    match interface {
        Some(name) => host.nics.iter().find(|nic| nic.name == name),
        // Without counters: the only card that is up.
        None => {
            let mut cards = host
                .nics
                .iter()
                .filter(|nic| nic.pci_address.is_some() && nic.operational_state.as_deref() == Some("up"));
            cards.next().filter(|_| cards.next().is_none())
        }
    }
}

/// A card, with the device behind it.
pub(crate) fn device<'a>(host: &'a HostReport, nic: &Nic) -> Option<&'a PciDevice> {
    let address = nic.pci_address.as_ref()?;
    host.pci_devices.iter().find(|device| device.address == *address)
}

/// Node of a core.
pub(crate) fn node_of(host: &HostReport, core: u32) -> Option<u32> {
    let unit = host.processing_units.iter().find(|unit| unit.core == core)?;
    unit.node.or_else(|| host.nodes.iter().find(|node| node.cores.contains(&core)).map(|node| node.node))
}

/// Hops from a node to the card's.
pub(crate) fn hops_to(host: &HostReport, nic: &Nic, node: u32) -> Option<u32> {
    let place = host.nodes.iter().position(|known| known.node == node)?;
    nic.hops.get(place).copied()
}

/// Cores that a thread may run on, without `off`: those of the card's node
/// first, then those that share a cache with it, siblings of `off` last.
pub(crate) fn better_cores(host: &HostReport, off: u32, node: Option<u32>) -> Vec<u32> {
    let siblings = host.processing_units.iter().find(|unit| unit.core == off).map(|unit| &unit.siblings);
    let cache = host.llc_groups.iter().find(|group| group.cores.contains(&off)).map(|group| &group.cores);
    let mut cores: Vec<u32> = host
        .processing_units
        .iter()
        .filter(|unit| unit.online && unit.allowed && unit.core != off)
        .map(|unit| unit.core)
        .collect();
    cores.sort_by_key(|core| {
        let on_node = node.is_some() && node_of(host, *core) == node;
        let shares_cache = cache.is_some_and(|cores| cores.contains(core));
        let sibling = siblings.is_some_and(|siblings| siblings.contains(core));
        (sibling, !on_node, !shares_cache, *core)
    });
    cores.truncate(8);
    cores
}

/// Memory of all nodes.
pub(crate) fn memory_bytes(host: &HostReport) -> u64 {
    host.nodes.iter().map(|node| node.memory_bytes).fold(0, u64::saturating_add)
}

/// Content of `tcp_mem`, and whether its pages were mistaken for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TcpMemory {
    pub(crate) pressure_pages: u64,
    pub(crate) pressure_bytes: u64,
    pub(crate) unit_error: bool,
    pub(crate) needed_pages: u64,
}

/// Reads `tcp_mem`. Its unit is pages (ip-sysctl.rst), and the kernel's own
/// default is an eighth of memory at most (net/ipv4/tcp.c, `tcp_init_mem`:
/// limit = free pages / 16, then min, pressure, max = 3/4, 1, 3/2 of it).
/// A maximum above all memory, or a triple that is also that of a socket
/// buffer in bytes, was written in bytes.
pub(crate) fn tcp_memory(host: &HostReport) -> Option<TcpMemory> {
    let [low, pressure, high] = triple(host, "net.ipv4.tcp_mem")?;
    let page = if host.kernel.page_bytes > 0 { host.kernel.page_bytes } else { 4096 };
    let memory = memory_bytes(host);
    let beyond = memory > 0 && u128::from(high) * u128::from(page) > 2 * u128::from(memory);
    let copied = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"]
        .into_iter()
        .any(|name| triple(host, name) == Some([low, pressure, high]));
    // The middle values of old socket triples in bytes: 87380 and 65536.
    let famous = low == 4096 && matches!(pressure, 87_380 | 65_536 | 131_072 | 16_384);
    Some(TcpMemory {
        pressure_pages: pressure,
        pressure_bytes: pressure.saturating_mul(page),
        unit_error: beyond || copied || famous,
        needed_pages: memory / 8 / page,
    })
}

#[cfg(test)]
mod tests {
    use clearstream_schema::host::NumaNode;

    use super::*;

    fn host(tcp_mem: &str) -> HostReport {
        let mut host = HostReport::default();
        host.kernel.page_bytes = 4096;
        host.kernel.sysctls.insert("net.ipv4.tcp_mem".into(), tcp_mem.into());
        host.nodes.push(NumaNode {
            node: 0,
            cores: vec![0],
            memory_bytes: 64 << 30,
            free_bytes: 0,
            distances: vec![10],
        });
        host
    }

    /// The triples of the two papers, and the default of a host of 64 GiB.
    #[test]
    fn pages_written_as_bytes_are_seen() {
        let bytes = tcp_memory(&host("137438953472 137438953472 274877906944")).unwrap();
        assert!(bytes.unit_error);
        let copied = tcp_memory(&host("4096 87380 268435456")).unwrap();
        assert!(copied.unit_error);
        assert_eq!(copied.pressure_bytes, 87_380 * 4096);
        let sane = tcp_memory(&host("769821\t1026430\t1539642")).unwrap();
        assert!(!sane.unit_error, "{sane:?}");
        assert!(tcp_memory(&host("1 2")).is_none());
    }
}
