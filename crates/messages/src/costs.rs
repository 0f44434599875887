//! What a measurement costs a side: time of processors, and what network interfaces carried meanwhile.

use clearstream_host::{HostRoot, counters::CounterReader};
use clearstream_schema::mpi::InterfaceBytes;
use rustix::time::{ClockId, clock_gettime};

/// Costs so far, or of a part of the measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Costs {
    /// CPU time.
    pub(crate) cpu_ns: u64,
    /// Bytes that the interfaces but loopback sent, where that is asked.
    pub(crate) sent_bytes: Option<u64>,
}

impl Costs {
    /// What was added.
    pub(crate) fn since(self, before: Self) -> Self {
        let sent = self.sent_bytes.zip(before.sent_bytes);
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            sent_bytes: sent.map(|(now, before)| now.saturating_sub(before)),
        }
    }

    /// What the interfaces of the client, which this is of, and of the server carried.
    pub(crate) fn interfaces(self, server: Self) -> Option<InterfaceBytes> {
        let (client_sent_bytes, server_sent_bytes) = self.sent_bytes.zip(server.sent_bytes)?;
        Some(InterfaceBytes { client_sent_bytes, server_sent_bytes })
    }
}

/// Costs of this process: libraries may have threads of their own.
#[derive(Debug)]
pub(crate) struct ProcessCosts(Option<CounterReader>);

impl ProcessCosts {
    /// Processors alone.
    pub(crate) fn of_processors() -> Self {
        Self(None)
    }

    /// Also of the interfaces of this thread's network namespace.
    pub(crate) fn with_interfaces() -> Self {
        Self(Some(CounterReader::open(&HostRoot::live())))
    }

    /// Until now.
    pub(crate) fn read(&mut self) -> Costs {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let (seconds, rest) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
        let cpu_ns = seconds.unwrap_or(0) * 1_000_000_000 + rest.unwrap_or(0);
        Costs { cpu_ns, sent_bytes: self.0.as_mut().and_then(CounterReader::sent_bytes) }
    }
}
