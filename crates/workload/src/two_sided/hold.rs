//! Stops the thread of a measurement from outside: by a flag, and by the end of its connections.

use std::{
    net::Shutdown,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use clearstream_control::EventSender;
use clearstream_schema::control::Failure;
use clearstream_sys::tcp_info;
use socket2::Socket;

/// Flag and connections of a running measurement.
#[derive(Debug, Default)]
pub struct Hold {
    flag: AtomicBool,
    /// Connections are ended, and not only asked to.
    ends: AtomicBool,
    sockets: Mutex<Vec<Socket>>,
}

impl Hold {
    /// Whether the measurement was stopped.
    pub fn is_stopped(&self) -> bool {
        self.flag.load(Relaxed)
    }

    /// The flag itself, for loops that look at it often.
    pub fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    /// Keeps a connection, so that a stop ends its transfers: now, where connections are ended already. One that is only asked
    /// for its end has its time for it.
    ///
    /// # Errors
    /// No further descriptor.
    pub fn hold(&self, socket: &Socket) -> Result<(), Failure> {
        let held = socket.try_clone().map_err(|error| Failure::of_system("hold the socket", &error))?;
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(held);
        if self.ends.load(Relaxed) {
            self.stop();
        }
        Ok(())
    }

    /// Asks for the end.
    pub(super) fn ask(&self) {
        self.flag.store(true, Relaxed);
    }

    /// Ends work, and every transfer of the held connections.
    pub(super) fn stop(&self) {
        self.ask();
        self.ends.store(true, Relaxed);
        for socket in &*self.sockets.lock().unwrap_or_else(PoisonError::into_inner) {
            // Fails when the connection has ended already.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Counts the bytes of the held connections, by the kernel's own counters, and closes them with their last
    /// descriptor.
    pub(super) fn release(&self, workload: &'static str, events: &EventSender) {
        for socket in self.sockets.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if let Ok(info) = tcp_info::read(&socket) {
                let [sent, received] = [info.acked_bytes, info.received_bytes].map(Option::unwrap_or_default);
                events.transferred(workload, sent, received);
            }
        }
    }
}
