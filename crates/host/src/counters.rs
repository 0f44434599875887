//! The counters that a flow's sampler reads every interval: time, softirqs,
//! interrupts and softnet rows per core, and the interface counters.

use std::{fs::File, io::Seek};

use clearstream_schema::counters::{CoreCounters, HostCounters};

use crate::{
    attribute::AttributeError,
    parse::{ParseError, stat, table},
    root::{HostRoot, ReadError, read_whole},
};

/// Reads the counters once. For repeated reads keep a [`CounterReader`].
pub fn read(root: &HostRoot) -> HostCounters {
    CounterReader::open(root).read()
}

/// The counter files, kept open with one buffer: a read takes six `read` calls and no allocation except for
/// the result.
///
/// The interface counters are those of the network namespace of the thread that called `open`.
#[derive(Debug)]
pub struct CounterReader {
    root: HostRoot,
    stat: Source,
    softirqs: Source,
    interrupts: Source,
    softnet: Source,
    interfaces: Source,
    tcp: Source,
    buffer: Vec<u8>,
}

/// A counter file.
#[derive(Debug)]
struct Source {
    path: &'static str,
    /// `None` for a root whose files are read by path each time.
    file: Option<Result<File, ReadError>>,
}

impl Source {
    fn open(root: &HostRoot, path: &'static str) -> Self {
        Self { path, file: root.open(path) }
    }

    /// Opens a file of `/proc/net` for the calling thread: `/proc/net` belongs to the process, so a thread in
    /// its own namespace needs the per-thread path.
    fn open_in_namespace(root: &HostRoot, thread: &'static str, process: &'static str) -> Self {
        if root.exists(thread) { Self::open(root, thread) } else { Self::open(root, process) }
    }

    /// Reads the whole file from its start and parses it.
    fn parse<T>(
        &self,
        root: &HostRoot,
        buffer: &mut Vec<u8>,
        parser: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Result<T, AttributeError> {
        let path = self.path;
        let mut file = match &self.file {
            Some(Ok(file)) => file,
            Some(Err(error)) => return Err(error.duplicate().into()),
            None => return root.parse(path, parser),
        };
        buffer.clear();
        file.rewind().map_err(|source| ReadError::Refused { path: path.to_owned(), source })?;
        read_whole(file, buffer, path)?;
        let text = std::str::from_utf8(buffer)
            .map_err(|error| ReadError::NotText { path: path.to_owned(), at: error.valid_up_to() })?;
        parser(text).map_err(|source| AttributeError::Parse { path: path.to_owned(), source })
    }
}

impl CounterReader {
    /// Opens the files. Missing ones are named by each read.
    pub fn open(root: &HostRoot) -> Self {
        Self {
            root: root.clone(),
            stat: Source::open(root, "proc/stat"),
            softirqs: Source::open(root, "proc/softirqs"),
            interrupts: Source::open(root, "proc/interrupts"),
            softnet: Source::open_in_namespace(
                root,
                "proc/thread-self/net/softnet_stat",
                "proc/net/softnet_stat",
            ),
            interfaces: Source::open_in_namespace(root, "proc/thread-self/net/dev", "proc/net/dev"),
            tcp: Source::open_in_namespace(root, "proc/thread-self/net/netstat", "proc/net/netstat"),
            buffer: Vec::new(),
        }
    }

    /// Bytes that all interfaces but loopback have sent until now; nothing where they cannot be read.
    pub fn sent_bytes(&mut self) -> Option<u64> {
        let interfaces = self.interfaces.parse(&self.root, &mut self.buffer, stat::interfaces).ok()?;
        let others = interfaces.iter().filter(|interface| interface.name != "lo");
        Some(others.map(|interface| interface.send_bytes).sum())
    }

    /// Reads all counters now.
    pub fn read(&mut self) -> HostCounters {
        let mut missing = Vec::new();
        let (root, buffer) = (&self.root, &mut self.buffer);
        let mut cores: Vec<CoreCounters> =
            keep(self.stat.parse(root, buffer, stat::core_times), &mut missing)
                .into_iter()
                .map(|time| CoreCounters {
                    core: time.core,
                    user_ns: time.user_ns,
                    system_ns: time.system_ns,
                    softirq_ns: time.softirq_ns,
                    irq_ns: time.irq_ns,
                    idle_ns: time.idle_ns,
                    steal_ns: time.steal_ns,
                    ..CoreCounters::default()
                })
                .collect();
        let interrupts = keep(self.interrupts.parse(root, buffer, table::interrupt_sums), &mut missing);
        if cores.is_empty() {
            // Without /proc/stat the columns of /proc/interrupts list the online cores.
            cores = interrupts
                .iter()
                .map(|&(core, _)| CoreCounters { core, ..CoreCounters::default() })
                .collect();
        }
        // The kernel prints them sorted; a captured file may have been edited.
        cores.sort_unstable_by_key(|core| core.core);
        fill(&mut cores, interrupts, |core, count| core.interrupt_count = count);
        let net_rx = self.softirqs.parse(root, buffer, |text| table::softirq(text, "NET_RX"));
        fill(&mut cores, keep(net_rx, &mut missing), |core, count| core.net_rx_count = count);
        let online: Vec<u32> = cores.iter().map(|core| core.core).collect();
        let softnet = keep(self.softnet.parse(root, buffer, table::softnet), &mut missing);
        let rows = softnet.into_iter().enumerate().filter_map(|(place, row)| {
            let core = row.core.or_else(|| online.get(place).copied())?;
            Some((core, row))
        });
        fill(&mut cores, rows, |core, row| {
            core.softnet_processed_count = row.processed_count;
            core.softnet_dropped_count = row.dropped_count;
            core.softnet_squeezed_count = row.squeezed_count;
        });
        let interfaces = keep(self.interfaces.parse(root, buffer, stat::interfaces), &mut missing);
        let tcp = keep(self.tcp.parse(root, buffer, stat::tcp_extended), &mut missing);
        HostCounters { cores, interfaces, tcp, missing }
    }
}

/// Returns the value, or an empty one with an entry in `missing`.
fn keep<T: Default>(result: Result<T, AttributeError>, missing: &mut Vec<String>) -> T {
    result.unwrap_or_else(|error| {
        missing.push(error.to_string());
        T::default()
    })
}

/// Assigns values to their cores; `cores` is ascending, values of offline cores are dropped.
fn fill<T>(
    cores: &mut [CoreCounters],
    values: impl IntoIterator<Item = (u32, T)>,
    set: impl Fn(&mut CoreCounters, T),
) {
    for (core, value) in values {
        let place = cores.binary_search_by_key(&core, |counters| counters.core);
        if let Some(counters) = place.ok().and_then(|place| cores.get_mut(place)) {
            set(counters, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::root::tests::tree;

    #[test]
    fn joins_the_sources_by_core_when_one_is_offline() {
        let (folder, root) = tree(&[
            ("proc/stat", "cpu0 1 0 0 0 0 0 0\ncpu2 2 0 0 0 0 0 9\nintr 1\n"),
            ("proc/interrupts", "      CPU0   CPU2\n 1:  4  5  PCI-MSI 1-edge  eth0\nNMI: 7 7 x\n"),
            ("proc/softirqs", "     CPU0  CPU1  CPU2\n NET_RX: 10 11 12\n"),
            ("proc/net/softnet_stat", "a 1 2 0 0 0 0 0 0 0\nb 3 4 0 0 0 0 0 0 0\n"),
            ("proc/net/dev", "\n\neth0.7: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"),
            ("proc/net/netstat", "TcpExt: SyncookiesSent PruneCalled\nTcpExt: 0 4\n"),
        ]);
        let mut reader = CounterReader::open(&root);
        let counters = reader.read();
        assert!(counters.missing.is_empty(), "{:?}", counters.missing);
        assert_eq!(counters.cores.len(), 2);
        let second = &counters.cores[1];
        assert_eq!((second.core, second.net_rx_count, second.interrupt_count), (2, 12, 5));
        assert_eq!((second.softnet_processed_count, second.softnet_squeezed_count), (11, 4));
        assert_eq!(second.softirq_ns, 90_000_000);
        assert_eq!(counters.interfaces[0].name, "eth0.7");
        assert_eq!(counters.tcp.get("PruneCalled"), Some(&4));

        fs::write(folder.path().join("proc/stat"), "cpu0 5 0 0 0 0 0 0\ncpu2 2 0 0 0 0 0 9\n").unwrap();
        let spent = reader.read().since(&counters);
        assert_eq!((spent.cores[0].user_ns, spent.cores[1].user_ns), (40_000_000, 0));
    }

    #[test]
    fn names_what_is_missing_and_keeps_the_rest() {
        let (_folder, root) = tree(&[
            ("proc/interrupts", "      CPU0   CPU1\n 1:  4  5  PCI-MSI 1-edge  eth0\n"),
            ("proc/softirqs", "garbage"),
        ]);
        let counters = read(&root);
        assert_eq!(counters.cores[1].interrupt_count, 5);
        let missing = counters.missing.join("\n");
        assert_eq!(counters.missing.len(), 5, "{missing}");
        assert!(missing.contains("/proc/stat: not found"), "{missing}");
        assert!(missing.contains("/proc/softirqs: a head line CPU0 CPU1 ... expected"), "{missing}");
    }

    #[test]
    fn the_running_host_has_every_counter() {
        let mut reader = CounterReader::open(&HostRoot::live());
        let before = reader.read();
        let after = reader.read();
        assert!(after.missing.is_empty(), "{:?}", after.missing);
        assert!(after.interfaces.iter().any(|interface| interface.name == "lo"));
        assert!(after.cores.iter().zip(&before.cores).all(|(after, before)| after.idle_ns >= before.idle_ns));
        assert!(after.cores.iter().any(|core| core.net_rx_count > 0));
    }
}
