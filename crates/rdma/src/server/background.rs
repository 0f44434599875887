//! Server in a background thread, for the measurements of one peer: opened by
//! an agent.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use super::{ExpectedPeer, Server, ServerOptions};
use crate::{error::RdmaError, rping::server::PingOptions, silence::SILENCE_LIMIT};

/// A server in a thread; dropping it stops and joins the thread.
#[derive(Debug)]
pub struct BackgroundServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundServer {
    /// Listens on the address, on a free port if the port is 0, for one peer.
    ///
    /// # Errors
    /// An address that is not local, or a port in use.
    pub fn open(address: SocketAddr, expected: ExpectedPeer) -> Result<Self, RdmaError> {
        let options = ServerOptions {
            ping: PingOptions::default(),
            measurements: true,
            once: false,
            silence: SILENCE_LIMIT,
        };
        let server = Server::bind(address, options)?.expecting(expected);
        let stop = Arc::new(AtomicBool::new(false));
        let (address, is_stopped) = (server.local_address(), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("rdma-server".to_owned())
            // The client reports errors.
            .spawn(move || drop(server.run(&is_stopped, &|_| {})))
            .map_err(RdmaError::Thread)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Returns the address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for BackgroundServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
