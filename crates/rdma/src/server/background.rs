//! A server in a thread, for the measurements of one peer: what an agent opens.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use super::{ExpectedPeer, Server, ServerOptions};
use crate::{error::RdmaError, rping::server::PingOptions};

/// A server in a thread, until it is dropped.
#[derive(Debug)]
pub struct BackgroundServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundServer {
    /// Listens on the address, at a free port where it says 0, for one peer.
    ///
    /// # Errors
    /// An address that is not this host's, or a port that is taken.
    pub fn open(address: SocketAddr, expected: ExpectedPeer) -> Result<Self, RdmaError> {
        let options = ServerOptions { ping: PingOptions::default(), measurements: true, once: false };
        let server = Server::bind(address, options)?.expecting(expected);
        let stop = Arc::new(AtomicBool::new(false));
        let (address, is_stopped) = (server.local_address(), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("rdma-server".to_owned())
            // The client reports what fails.
            .spawn(move || drop(server.run(&is_stopped, &|_| {})))
            .map_err(RdmaError::Thread)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Address that it listens on.
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
