//! Holds the advertised window at what was asked for.
//!
//! `SO_RCVBUF` bounds memory, not the window: the kernel makes the window out
//! of the buffer by the share of payload in the memory of received packets
//! (`tcp_win_from_space`), which is nearer to the whole of the doubled buffer
//! than to the half of it when packets are large. `TCP_WINDOW_CLAMP` bounds the
//! window itself, but the kernel sets it anew whenever that share changes
//! (net/ipv4/tcp_input.c, `tcp_measure_rcv_mss`), as it does with the first
//! full segments. So the clamp is set again and again, from beside the data
//! threads; where nothing has changed that is one cheap system call.

use std::time::{Duration, Instant};

use clearstream_schema::flow::{FlowConfig, Protocol};
use clearstream_sys::socket::set_window_clamp;

use super::sample::Flow;
use crate::data::Gate;

/// How often the clamp is set again: a few round trips of a long path.
const PERIOD: Duration = Duration::from_millis(50);

/// The window that this side's receivers advertise at most, where one was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldWindow(Option<u32>);

impl HeldWindow {
    pub(super) fn of(config: &FlowConfig, receives: bool) -> Self {
        let asked = config.receive_buffer.or(config.window);
        let stream = config.protocol != Protocol::Udp;
        Self(asked.filter(|_| receives && stream).map(|bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX)))
    }

    /// Waits as [`Gate::wait_until`] does, holding the windows meanwhile.
    pub(super) fn wait_until(self, gate: &Gate, until: Instant, flows: &[Flow]) -> bool {
        let Some(bytes) = self.0 else { return gate.wait_until(until) };
        loop {
            for flow in flows {
                // A connection that has just ended has no window to hold.
                drop(set_window_clamp(&*flow.socket, bytes));
            }
            let next = until.min(Instant::now() + PERIOD);
            if gate.wait_until(next) {
                return true;
            }
            if next == until {
                return false;
            }
        }
    }
}
