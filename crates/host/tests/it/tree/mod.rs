//! Hand-made hosts: a few lines describe the shape, and only the files that
//! differ between shapes are written.

use std::{cell::RefCell, collections::BTreeMap, fmt::Write as _};

use clearstream_host::{HostRoot, memory::MemoryTree};

/// A tree of `proc` and `sys` in memory.
#[derive(Default)]
pub(crate) struct Tree {
    files: RefCell<BTreeMap<String, Vec<u8>>>,
    links: RefCell<BTreeMap<String, String>>,
}

/// The shape of a host.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub packages: u32,
    pub nodes_per_package: u32,
    pub cores_per_node: u32,
    pub threads_per_core: u32,
    pub offline: Vec<u32>,
    /// Nodes with memory and without cores, numbered after the others.
    pub memory_only_nodes: u32,
    /// Nodes that have cores and no memory.
    pub memory_less: Vec<u32>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            packages: 1,
            nodes_per_package: 1,
            cores_per_node: 4,
            threads_per_core: 1,
            offline: Vec::new(),
            memory_only_nodes: 0,
            memory_less: Vec::new(),
        }
    }
}

impl Shape {
    /// Units are numbered as by most firmware: first threads of all cores, then second threads.
    fn core_count(&self) -> u32 {
        self.packages * self.nodes_per_package * self.cores_per_node
    }
    pub(crate) fn unit_count(&self) -> u32 {
        self.core_count() * self.threads_per_core
    }
    pub(crate) fn node_of(&self, unit: u32) -> u32 {
        unit % self.core_count() / self.cores_per_node
    }
    fn siblings(&self, unit: u32) -> Vec<u32> {
        let core = unit % self.core_count();
        (0..self.threads_per_core)
            .map(|thread| thread * self.core_count() + core)
            .filter(|sibling| !self.offline.contains(sibling))
            .collect()
    }
    pub(crate) fn online(&self) -> Vec<u32> {
        (0..self.unit_count()).filter(|unit| !self.offline.contains(unit)).collect()
    }
    fn of_node(&self, node: u32) -> Vec<u32> {
        self.online().into_iter().filter(|&unit| self.node_of(unit) == node).collect()
    }
}

/// The kernel's list format.
pub(crate) fn list(cores: &[u32]) -> String {
    clearstream_schema::CoreList(cores.to_vec()).to_string()
}

/// The kernel's mask format for a host with `width` possible units.
pub(crate) fn mask(cores: &[u32], width: u32) -> String {
    let mut groups = vec![0u32; width.div_ceil(32) as usize];
    for &core in cores {
        groups[core as usize / 32] |= 1 << (core % 32);
    }
    groups.iter().rev().map(|group| format!("{group:08x}")).collect::<Vec<_>>().join(",")
}

impl Tree {
    pub(crate) fn new(shape: &Shape) -> Self {
        let tree = Self::default();
        tree.processors(shape);
        tree.nodes(shape);
        tree.process(shape);
        tree
    }

    pub(crate) fn root(&self) -> HostRoot {
        let mut tree = MemoryTree::default();
        tree.name("sys/class/net");
        for (path, bytes) in &*self.files.borrow() {
            tree.file(path, bytes.clone());
        }
        for (path, target) in &*self.links.borrow() {
            tree.link(path, target);
        }
        HostRoot::memory(tree)
    }

    /// Paths of the files, ascending.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.files.borrow().keys().cloned().collect()
    }

    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        self.files.borrow().get(path).cloned().unwrap_or_default()
    }

    fn text(&self, path: &str) -> String {
        String::from_utf8(self.bytes(path)).unwrap()
    }

    pub(crate) fn remove(&self, path: &str) {
        self.files.borrow_mut().remove(path);
    }

    pub(crate) fn file(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        self.files.borrow_mut().insert(path.to_owned(), text.as_ref().to_owned());
        self
    }

    pub(crate) fn link(&self, path: &str, target: &str) -> &Self {
        self.links.borrow_mut().insert(path.to_owned(), target.to_owned());
        self
    }

    fn processors(&self, shape: &Shape) {
        let cpu = "sys/devices/system/cpu";
        self.file(&format!("{cpu}/present"), format!("0-{}\n", shape.unit_count() - 1));
        self.file(&format!("{cpu}/online"), format!("{}\n", list(&shape.online())));
        for unit in 0..shape.unit_count() {
            let folder = format!("{cpu}/cpu{unit}");
            let node = shape.node_of(unit);
            self.link(&format!("{folder}/node{node}"), &format!("../../node/node{node}"));
            if shape.offline.contains(&unit) {
                continue;
            }
            let package = node / shape.nodes_per_package;
            let core = unit % shape.core_count();
            self.file(&format!("{folder}/topology/physical_package_id"), format!("{package}\n"));
            self.file(&format!("{folder}/topology/core_id"), format!("{core}\n"));
            let siblings = list(&shape.siblings(unit));
            self.file(&format!("{folder}/topology/thread_siblings_list"), siblings + "\n");
            for (index, level, kind, size, cores) in [
                (0, 1, "Data", "32K", shape.siblings(unit)),
                (1, 1, "Instruction", "32K", shape.siblings(unit)),
                (2, 2, "Unified", "1024K", shape.siblings(unit)),
                (3, 3, "Unified", "32768K", shape.of_node(node)),
            ] {
                let cache = format!("{folder}/cache/index{index}");
                self.file(&format!("{cache}/level"), format!("{level}\n"));
                self.file(&format!("{cache}/type"), format!("{kind}\n"));
                self.file(&format!("{cache}/size"), format!("{size}\n"));
                self.file(&format!("{cache}/shared_cpu_list"), list(&cores) + "\n");
            }
        }
    }

    fn nodes(&self, shape: &Shape) {
        let with_cores = shape.packages * shape.nodes_per_package;
        let count = with_cores + shape.memory_only_nodes;
        for node in 0..count {
            let folder = format!("sys/devices/system/node/node{node}");
            let cores = if node < with_cores { list(&shape.of_node(node)) } else { String::new() };
            self.file(&format!("{folder}/cpulist"), cores + "\n");
            let row: Vec<String> = (0..count)
                .map(|other| match other {
                    other if other == node => "10",
                    other if other / shape.nodes_per_package == node / shape.nodes_per_package => "12",
                    _ => "32",
                })
                .map(str::to_owned)
                .collect();
            self.file(&format!("{folder}/distance"), row.join(" ") + "\n");
            let total = if shape.memory_less.contains(&node) { 0 } else { 1 << 20 };
            self.file(
                &format!("{folder}/meminfo"),
                format!("Node {node} MemTotal:  {total} kB\nNode {node} MemFree:  {} kB\n", total / 2),
            );
        }
    }

    fn process(&self, shape: &Shape) {
        let online = shape.online();
        self.file("proc/cpuinfo", "processor\t: 0\nmodel name\t: Hand-made\nflags\t\t: fpu lm\n");
        self.file("proc/sys/kernel/hostname", "tree\n");
        self.file("proc/sys/kernel/osrelease", "6.12.0\n");
        self.file("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
        self.file("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n");
        self.file("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic bbr\n");
        self.file(
            "proc/self/status",
            format!("Name:\tx\nCpus_allowed_list:\t{}\nMems_allowed_list:\t0\n", list(&online)),
        );
        self.file("proc/self/limits", "Max locked memory  8388608  8388608  bytes\n");
        self.file("proc/self/cgroup", "0::/\n");
        self.file("manifest.json", r#"{"schema":"clearstream.host-capture","version":1,"program":"test","page_bytes":4096,"host_name_kept":true}"#);
        self.file("ethtool.json", "{}");
        let head: String = online.iter().fold(String::new(), |mut head, core| {
            write!(head, "CPU{core} ").unwrap();
            head
        });
        self.file("proc/interrupts", format!("     {head}\n"));
        self.file("proc/net/dev", "Inter-|\n face |\n");
    }

    /// An interface on a PCI device behind a bridge, with one vector per queue.
    pub(crate) fn nic(&self, shape: &Shape, name: &str, node: i32, queues: u32) -> String {
        let bridge = "0000:20:00.0";
        let address = "0000:21:00.0";
        let folder = format!("sys/devices/pci0000:20/{bridge}/{address}");
        for (device, class, vendor) in [
            (format!("sys/devices/pci0000:20/{bridge}"), "0x060400", "0x8086"),
            (folder.clone(), "0x020000", "0x15b3"),
        ] {
            self.file(&format!("{device}/class"), format!("{class}\n"));
            self.file(&format!("{device}/vendor"), format!("{vendor}\n"));
            self.file(&format!("{device}/device"), "0x1003\n");
            self.file(&format!("{device}/numa_node"), format!("{node}\n"));
            self.file(&format!("{device}/current_link_speed"), "5.0 GT/s PCIe\n");
            self.file(&format!("{device}/current_link_width"), "8\n");
            self.file(&format!("{device}/max_link_speed"), "8.0 GT/s PCIe\n");
            self.file(&format!("{device}/max_link_width"), "16\n");
        }
        self.link(&format!("sys/bus/pci/devices/{bridge}"), &format!("../../../devices/pci0000:20/{bridge}"));
        self.link(
            &format!("sys/bus/pci/devices/{address}"),
            &format!("../../../devices/pci0000:20/{bridge}/{address}"),
        );
        self.link(&format!("{folder}/driver"), "../../../../bus/pci/drivers/mlx4_core");
        let net = format!("{folder}/net/{name}");
        self.link(&format!("{net}/device"), "../../../0000:21:00.0");
        self.link(
            &format!("sys/class/net/{name}"),
            &format!("../../devices/pci0000:20/{bridge}/{address}/net/{name}"),
        );
        self.file(&format!("{net}/mtu"), "9000\n");
        self.file(&format!("{net}/speed"), "40000\n");
        self.file(&format!("{net}/operstate"), "up\n");
        let width = shape.unit_count();
        let online = shape.online();
        let mut rows = self.text("proc/interrupts");
        for queue in 0..queues {
            self.file(&format!("{net}/queues/rx-{queue}/rps_cpus"), mask(&[], width) + "\n");
            let core = online[queue as usize % online.len()];
            self.file(&format!("{net}/queues/tx-{queue}/xps_cpus"), mask(&[core], width) + "\n");
            let vector = 100 + queue;
            self.file(&format!("{folder}/msi_irqs/{vector}"), "msix\n");
            let counts: String = online.iter().map(|&unit| if unit == core { " 77" } else { " 0" }).collect();
            writeln!(rows, " {vector}:{counts}  PCI-MSI {vector}-edge      mlx4-{queue}@{address}").unwrap();
            self.file(&format!("proc/irq/{vector}/smp_affinity_list"), list(&online) + "\n");
            self.file(&format!("proc/irq/{vector}/effective_affinity_list"), format!("{core}\n"));
            self.file(&format!("proc/irq/{vector}/node"), format!("{node}\n"));
        }
        self.file("proc/interrupts", rows);
        let mut dev = self.text("proc/net/dev");
        writeln!(dev, "{name}: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16").unwrap();
        self.file("proc/net/dev", dev);
        folder
    }
}
