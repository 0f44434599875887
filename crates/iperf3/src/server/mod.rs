//! A server for iperf3 clients: one test at a time, as iperf3's own.

mod door;
pub(crate) mod machine;
mod output;
mod streams;
mod test;

use std::{
    io::ErrorKind,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use clearstream_schema::{
    control::{Failure, FailureKind},
    iperf3::{Iperf3Interval, Iperf3Summary},
};

use self::door::Door;
use crate::{
    error::{Iperf3Error, failure},
    parameters::Parameters,
};

/// How often an idle server looks whether it was stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How a server behaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerOptions {
    /// End after the first test.
    pub once: bool,
}

/// What happens at a server.
#[derive(Debug)]
pub enum ServerEvent<'a> {
    /// All streams of a test are connected.
    Started {
        /// The client's control connection.
        peer: SocketAddr,
        /// What it asked for.
        parameters: &'a Parameters,
    },
    /// An interval of the test is over.
    Interval(&'a Iperf3Interval),
    /// A test is over.
    Finished(&'a Iperf3Summary),
    /// A test ended before its time, or never began.
    Failed {
        /// The client.
        peer: SocketAddr,
        /// Why, and what was measured until then.
        error: &'a Iperf3Error,
    },
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    door: Door,
    options: ServerOptions,
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    /// The address is in use, is none of this host's, or may not be used.
    pub fn bind(address: SocketAddr, options: ServerOptions) -> Result<Self, Failure> {
        let door = Door::open(address).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => failure(
                FailureKind::InUse,
                format!(
                    "{address} is in use: does an `iperf3 -s` run here? Choose another --listen ADDRESS:PORT"
                ),
            ),
            ErrorKind::AddrNotAvailable => failure(
                FailureKind::Invalid,
                format!("{} is no address of this host: `ip address` lists them", address.ip()),
            ),
            ErrorKind::PermissionDenied => failure(
                FailureKind::Unsupported,
                format!("port {} is reserved for root: choose one above 1023", address.port()),
            ),
            _ => Failure::of_system(&format!("listen on {address}"), &error),
        })?;
        Ok(Self { door, options })
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.door.address
    }

    /// Serves one client after the other until it is stopped, or with
    /// [`ServerOptions::once`] until the first test is over.
    ///
    /// # Errors
    /// The port cannot be listened on any more.
    pub fn run(&self, stop: &AtomicBool, events: &mut dyn FnMut(ServerEvent<'_>)) -> Result<(), Failure> {
        while !stop.load(Relaxed) {
            let Some(client) = self.door.client(POLL_INTERVAL) else { continue };
            let Ok(peer) = client.stream.peer_addr() else {
                self.door.admit_client();
                continue;
            };
            let ended = test::serve(client, &self.door, stop, events);
            self.door.admit_client();
            match &ended {
                Ok(summary) => events(ServerEvent::Finished(summary)),
                Err(error) => events(ServerEvent::Failed { peer, error }),
            }
            if self.options.once {
                break;
            }
        }
        Ok(())
    }
}
