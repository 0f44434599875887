//! The window of a flow: the buffers of its socket, and the window that it advertises.
//!
//! `SO_RCVBUF` bounds memory, not the window: the kernel derives the window from the buffer by the ratio of
//! payload to memory of received packets (`tcp_win_from_space`), which for large packets is closer to the
//! whole of the doubled buffer than to its half. `TCP_WINDOW_CLAMP` bounds the window itself, but the kernel
//! resets it whenever that ratio changes (net/ipv4/tcp_input.c, `tcp_measure_rcv_mss`), as with the first
//! full segments. So the clamp is set periodically, outside the data threads; where nothing has changed that
//! is one cheap system call.

use std::{
    io,
    time::{Duration, Instant},
};

use clearstream_schema::{
    control::Failure,
    flow::{FlowConfig, Protocol},
};
use clearstream_sys::socket as options;
use socket2::Socket;

use super::{open::step, sample::Flow};
use crate::data::Gate;

/// Default send and receive buffers of UDP sockets: UDP has no autotuning, and the kernel's default of 208 KiB
/// overflows at once.
const UDP_BUFFER_BYTES: usize = 4 << 20;
/// Default receive buffers of all UDP flows of a test together, where this process may exceed
/// `net.core.rmem_max`: a receiver that its host stops for some milliseconds loses nothing.
const UDP_RECEIVE_BYTES: usize = 64 << 20;
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
                drop(options::set_window_clamp(&*flow.socket, bytes));
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

/// Sets the buffers as requested.
pub(super) fn set_buffers(socket: &Socket, config: &FlowConfig) -> Result<(), Failure> {
    let udp = (config.protocol == Protocol::Udp).then_some(UDP_BUFFER_BYTES);
    let size = |own: Option<clearstream_schema::ByteCount>| {
        own.or(config.window)
            .map(|bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX).min(i32::MAX as usize))
    };
    if let Some(bytes) = size(config.send_buffer).or(udp) {
        set_buffer(socket, bytes, config.force_buffers, Buffer::Send).map_err(step("set SO_SNDBUF"))?;
    }
    let (receive, force) = match (size(config.receive_buffer), udp) {
        (None, Some(least)) => (Some((UDP_RECEIVE_BYTES / config.flows.max(1) as usize).max(least)), true),
        (requested, _) => (requested, config.force_buffers),
    };
    if let Some(bytes) = receive {
        set_buffer(socket, bytes, force, Buffer::Receive).map_err(step("set SO_RCVBUF"))?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Buffer {
    Send,
    Receive,
}

fn set_buffer(socket: &Socket, bytes: usize, force: bool, buffer: Buffer) -> io::Result<()> {
    if force {
        let forced = match buffer {
            Buffer::Send => options::force_send_buffer(socket, bytes),
            Buffer::Receive => options::force_receive_buffer(socket, bytes),
        };
        match forced {
            // Without CAP_NET_ADMIN the limit applies, which is reported afterwards.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            result => return result,
        }
    }
    match buffer {
        Buffer::Send => socket.set_send_buffer_size(bytes),
        Buffer::Receive => socket.set_recv_buffer_size(bytes),
    }
}
