//! Path properties seen by single packets: delay, jitter, loss, path MTU, hops.
//!
//! Two sides: [`Responder`] replies on one host, [`measure`] sends from the other ([`ProbeAgent`] serves both
//! as [`calls`]), and [`run`] is the controller that has both directions measured through two
//! [`clearstream_control::Peer`]s.
//!
//! Method:
//! - a delay is the time between the kernel's software timestamps of probe and
//!   reply (`SO_TIMESTAMPING`), less the time the responder held the probe,
//!   which it counts from its kernel's arrival timestamp to just before it
//!   sends and reports in the reply. Included: the two network stacks below
//!   the timestamps, and the responder's own `send` down to its driver, its
//!   queueing discipline included. Excluded: waking up either program, and the
//!   queueing discipline of the sending host, whose delay is reported separately
//!   (timestamped before the discipline and at the driver). Where the kernel
//!   has no timestamps, the program's clock is used, wake-ups are included, and
//!   [`ClockSource`](clearstream_schema::probe::ClockSource) reports it.
//! - timestamps that contradict each other are not used: no delay is 0.
//! - both programs sleep in `poll`; nothing spins.
//! - probes are sent at absolute times, independent of replies.
//! - a probe carries the test's cookie. Any other is dropped without a
//!   reply, and no reply is larger than its probe.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod agent;
pub mod calls;
mod channel;
mod connection;
mod controller;
mod delay;
mod exchange;
mod measure;
mod order;
mod path_mtu;
mod responder;
mod table;
pub mod wire;
mod workload;

use std::{io, net::SocketAddr, time::Duration};

use clearstream_schema::control::{Cookie, Failure, FailureKind};

pub use agent::ProbeAgent;
pub use controller::{round_trips, run};
pub use measure::measure;
pub use path_mtu::Found as PathMtuFound;
pub use responder::Responder;
pub use workload::{Probe, round_trips_on, run_on};

/// Path MTU to a [`Responder`]'s UDP address from a local address and port, so that one of several paths can
/// be selected; `timeout` is the maximum wait for the reply to one packet. `None` when nothing is received.
///
/// # Errors
/// `InUse` for a port in use, `Invalid` for a malformed cookie or an
/// address that is not this host's, `Connection` for errors of the kernel.
pub fn path_mtu_from(
    from: SocketAddr,
    to: SocketAddr,
    cookie: &Cookie,
    timeout: Duration,
) -> Result<Option<PathMtuFound>, Failure> {
    let secret = secret(cookie)?;
    let fail = |error: io::Error| {
        let kind = match error.kind() {
            io::ErrorKind::AddrInUse => FailureKind::InUse,
            io::ErrorKind::AddrNotAvailable => FailureKind::Invalid,
            _ => FailureKind::Connection,
        };
        Failure { kind, message: format!("path MTU from {from} to {to}: {error}") }
    };
    let socket = channel::udp_socket_from(from, to).map_err(fail)?;
    path_mtu::find_over(socket, to, secret, timeout).map_err(fail)
}

fn secret(cookie: &Cookie) -> Result<wire::Secret, Failure> {
    wire::Secret::parse(cookie).ok_or_else(|| Failure {
        kind: FailureKind::Invalid,
        message: "the cookie of a probe must be 32 hexadecimal digits".to_owned(),
    })
}
