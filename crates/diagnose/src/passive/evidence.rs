//! Evidence items of a connection, each with the samples that it rests on.

use clearstream_schema::{
    connections::{ConnectionRemedy, SocketOwner},
    diagnosis::{EvidenceItem, Role},
    human::{bytes, rate, time},
};

use super::facts::Facts;
use crate::formulas;

/// A thread that ran or waited for a core for this part of the time is saturated.
pub(super) const SATURATED: f64 = 0.85;
/// Part of a maximum from which on a buffer has reached it.
const AT_MAXIMUM: f64 = 0.95;

impl Facts<'_> {
    /// An item; `source` names field and figure.
    pub(super) fn item(&self, statement: String, source: &str) -> EvidenceItem {
        let samples = format!("{}, {:.1} s", self.last().local, self.seconds());
        EvidenceItem { statement, source: format!("samples of {samples}: {source}") }
    }

    /// Rate that a number of bytes for each round trip allows.
    pub(super) fn bound_bps(&self, window_bytes: f64) -> f64 {
        formulas::window_bps(window_bytes, self.rtt_ns())
    }

    /// `window * 8 / round-trip time = rate`.
    pub(super) fn bound_item(&self, what: &str, window_bytes: f64) -> EvidenceItem {
        let statement = format!(
            "{what}: {} * 8 / {} = {}; measured {}",
            bytes(window_bytes as u64),
            time(self.rtt_ns()),
            rate(self.bound_bps(window_bytes)),
            rate(self.out_bps())
        );
        self.item(statement, "medians, tcpi_rtt, change of tcpi_bytes_acked")
    }

    /// The process with the busiest thread among those that hold the socket.
    pub(super) fn busiest(&self) -> Option<(&SocketOwner, f64)> {
        let owners = self.series.owners.iter();
        let known = owners.filter_map(|owner| Some((owner, owner.busiest_thread_ratio?)));
        known.max_by(|one, two| one.1.total_cmp(&two.1))
    }

    /// The same when it is saturated.
    pub(super) fn saturated(&self) -> Option<(&SocketOwner, f64)> {
        self.busiest().filter(|(_, ratio)| *ratio >= SATURATED)
    }

    pub(super) fn thread_item(&self) -> Option<EvidenceItem> {
        let (owner, ratio) = self.busiest()?;
        let statement = format!(
            "the busiest thread of {} ran or waited for a core {:.0} % of the time",
            owned(owner),
            ratio * 100.0
        );
        Some(self.item(statement, "schedstat of its threads (proc_pid_task(5))"))
    }

    /// Whether the receive buffer has the maximum of `tcp_rmem`.
    pub(super) fn receive_buffer_at_maximum(&self) -> bool {
        at(self.last().memory.receive_limit_bytes, self.series.receive_buffer_max_bytes)
    }

    /// Whether the send buffer has the maximum of `tcp_wmem`.
    pub(super) fn send_buffer_at_maximum(&self) -> bool {
        at(self.last().memory.send_limit_bytes, self.series.send_buffer_max_bytes)
    }
}

/// A buffer within 5 % of a maximum: a size that a program requested exceeds it, or is elsewhere.
fn at(buffer: u32, maximum: Option<u64>) -> bool {
    maximum.is_some_and(|maximum| (f64::from(buffer) / maximum.max(1) as f64 - 1.0).abs() <= 1.0 - AT_MAXIMUM)
}

/// `iperf3[4711]`.
pub(super) fn owned(owner: &SocketOwner) -> String {
    format!("{}[{}]", owner.program, owner.pid)
}

/// Raises the maximum of `tcp_rmem` or `tcp_wmem` to twice the buffer, which allows twice the rate.
pub(super) fn raise(on: Role, name: &str, buffer: u32) -> ConnectionRemedy {
    ConnectionRemedy::RaiseSysctl {
        on,
        name: name.to_owned(),
        field: 2,
        at_least: u64::from(buffer).saturating_mul(2),
    }
}

pub(super) fn change(on: Role, what: &str) -> ConnectionRemedy {
    ConnectionRemedy::ChangeProgram { on, what: what.to_owned() }
}
