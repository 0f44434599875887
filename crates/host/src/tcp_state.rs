//! TCP of a network namespace as a whole: segments, retransmissions, resets, memory.

use clearstream_schema::live::TcpState;

use crate::{
    attribute::AttributeError,
    parse::{ParseError, stat},
    root::HostRoot,
};

/// Reads counters since boot and the state now, of the network namespace of the calling thread.
///
/// # Errors
/// A file cannot be read, or is not of the kernel's format.
pub fn read(root: &HostRoot) -> Result<TcpState, String> {
    parsed(root).map_err(|error| error.to_string())
}

fn parsed(root: &HostRoot) -> Result<TcpState, AttributeError> {
    // /proc/net belongs to the process: a thread in a namespace of its own needs the path per thread.
    let thread = "proc/thread-self/net";
    let folder = if root.exists(&format!("{thread}/snmp")) { thread } else { "proc/net" };
    let tcp = root.parse(&format!("{folder}/snmp"), stat::tcp)?;
    let count = |name: &str| tcp.get(name).copied().unwrap_or(0);
    let page_bytes = rustix::param::page_size() as u64;
    let memory_pages = root.parse(&format!("{folder}/sockstat"), memory_pages)?;
    // Only the first network namespace has it.
    let pressure_pages = root.parse("proc/sys/net/ipv4/tcp_mem", pressure_pages).ok();
    Ok(TcpState {
        sent_segment_count: count("OutSegs"),
        received_segment_count: count("InSegs"),
        retransmit_count: count("RetransSegs"),
        reset_count: count("EstabResets").saturating_add(count("OutRsts")),
        receive_error_count: count("InErrs"),
        open_count: count("ActiveOpens").saturating_add(count("PassiveOpens")),
        established_count: count("CurrEstab"),
        memory_bytes: memory_pages.saturating_mul(page_bytes),
        memory_pressure_bytes: pressure_pages.map(|pages| pages.saturating_mul(page_bytes)),
    })
}

/// `TCP: inuse 5 orphan 0 tw 0 alloc 6 mem 3` of `/proc/net/sockstat`.
fn memory_pages(text: &str) -> Result<u64, ParseError> {
    let fields = text.lines().find_map(|line| line.strip_prefix("TCP:"));
    let mut fields = fields.unwrap_or_default().split_ascii_whitespace().skip_while(|field| *field != "mem");
    let pages = fields.nth(1).and_then(|field| field.parse().ok());
    pages.ok_or_else(|| ParseError::new("a line TCP: with mem and its pages", text))
}

/// The second of the three bounds (ip-sysctl: `tcp_mem`).
fn pressure_pages(text: &str) -> Result<u64, ParseError> {
    let pages = text.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok());
    pages.ok_or_else(|| ParseError::new("three numbers of pages", text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryTree;

    /// Text of a host whose `nstat -az` printed the same numbers.
    #[test]
    fn counters_and_memory_are_read() {
        let files = [
            (
                "proc/net/snmp",
                "Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets \
                 CurrEstab InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors\n\
                 Tcp: 1 200 120000 -1 7 3 2 1 4 1000 900 12 5 6 0\n",
            ),
            (
                "proc/net/sockstat",
                "sockets: used 31\nTCP: inuse 5 orphan 0 tw 1 alloc 6 mem 3\nUDP: inuse 0 mem 9\n",
            ),
            ("proc/sys/net/ipv4/tcp_mem", "100\t200\t300\n"),
        ];
        let mut tree = MemoryTree::default();
        for (path, text) in files {
            tree.file(path, text.as_bytes().to_vec());
        }
        let page = rustix::param::page_size() as u64;
        let expected = TcpState {
            sent_segment_count: 900,
            received_segment_count: 1000,
            retransmit_count: 12,
            reset_count: 7,
            receive_error_count: 5,
            open_count: 10,
            established_count: 4,
            memory_bytes: 3 * page,
            memory_pressure_bytes: Some(200 * page),
        };
        assert_eq!(read(&HostRoot::memory(tree)), Ok(expected));
        assert!(read(&HostRoot::memory(MemoryTree::default())).unwrap_err().contains("snmp"));
    }

    #[test]
    fn the_running_kernel_is_read() {
        let state = read(&HostRoot::live()).unwrap();
        assert!(state.memory_pressure_bytes.is_some_and(|bytes| bytes > 0), "{state:?}");
    }
}
