//! Clamps the advertised window to the requested value.
//!
//! `SO_RCVBUF` bounds memory, not the window: the kernel derives the window from the buffer by the ratio of
//! payload to memory of received packets (`tcp_win_from_space`), which for large packets is closer to the
//! whole of the doubled buffer than to its half. `TCP_WINDOW_CLAMP` bounds the window itself, but the kernel
//! resets it whenever that ratio changes (net/ipv4/tcp_input.c, `tcp_measure_rcv_mss`), as with the first
//! full segments. So the clamp is set periodically, outside the data threads; where nothing has changed that
//! is one cheap system call.

use std::time::{Duration, Instant};

use clearstream_schema::flow::{FlowConfig, Protocol};
use clearstream_sys::socket::set_window_clamp;

use super::sample::Flow;
use crate::data::Gate;

/// Interval at which the clamp is set: a few round trips of a long path.
const PERIOD: Duration = Duration::from_millis(50);

/// Maximum window advertised by this side's receivers, where one was requested.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowClamp(Option<u32>);

impl WindowClamp {
    pub(super) fn of(config: &FlowConfig, receives: bool) -> Self {
        let requested = config.receive_buffer.or(config.window);
        let stream = config.protocol != Protocol::Udp;
        Self(requested.filter(|_| receives && stream).map(|bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX)))
    }

    /// Waits as [`Gate::wait_until`] does, setting the clamp meanwhile.
    pub(super) fn wait_until(self, gate: &Gate, until: Instant, flows: &[Flow]) -> bool {
        let Some(bytes) = self.0 else { return gate.wait_until(until) };
        loop {
            for flow in flows {
                // A connection that has just ended has no window to clamp.
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
