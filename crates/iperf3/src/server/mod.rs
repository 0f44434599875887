//! A server for iperf3 clients: one test at a time, like iperf3's own.

mod listener;
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

use crate::document::{Iperf3Interval, Iperf3Summary};
use clearstream_schema::control::{Failure, FailureKind};

use self::listener::{Arrival, Listener};
use crate::{error::Iperf3Error, parameters::Parameters};

/// Interval at which an idle server checks the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time without data after which a test is ended, as when the client is stopped or gone.
pub const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// Options of a server.
#[derive(Debug, Clone, Copy)]
pub struct ServerOptions {
    /// End after the first test.
    pub once: bool,
    /// Time without data after which a test is ended ([`IDLE_LIMIT`]).
    pub idle: Duration,
}

/// Events of a server.
#[derive(Debug)]
pub enum ServerEvent<'a> {
    /// All streams of a test are connected.
    Started {
        /// The client's control connection.
        peer: SocketAddr,
        /// Its request.
        parameters: &'a Parameters,
    },
    /// An interval of the test is over.
    Interval(&'a Iperf3Interval),
    /// A test is over.
    Finished(&'a Iperf3Summary),
    /// A test ended prematurely, or never began.
    Failed {
        /// The client.
        peer: SocketAddr,
        /// Reason, with the results so far.
        error: &'a Iperf3Error,
    },
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    options: ServerOptions,
}

impl Server {
    /// Listens.
    ///
    /// # Errors
    /// The address is in use, is not an address of this host, or is not permitted.
    pub fn bind(address: SocketAddr, options: ServerOptions) -> Result<Self, Failure> {
        let listener = Listener::open(address).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => Failure::new(
                FailureKind::InUse,
                format!(
                    "{address} is in use: does an `iperf3 -s` run here? Choose another --listen ADDRESS:PORT"
                ),
            ),
            ErrorKind::AddrNotAvailable => Failure::new(
                FailureKind::Invalid,
                format!("{} is no address of this host: `ip address` lists them", address.ip()),
            ),
            ErrorKind::PermissionDenied => Failure::new(
                FailureKind::Unsupported,
                format!("port {} is reserved for root: choose one above 1023", address.port()),
            ),
            _ => Failure::of_system(&format!("listen on {address}"), &error),
        })?;
        Ok(Self { listener, options })
    }

    /// Local address.
    pub fn local_address(&self) -> SocketAddr {
        self.listener.address
    }

    /// Serves clients sequentially until it is stopped, or with [`ServerOptions::once`] until the first test
    /// is over.
    ///
    /// # Errors
    /// The listening socket failed.
    pub fn run(&self, stop: &AtomicBool, events: &mut dyn FnMut(ServerEvent<'_>)) -> Result<(), Failure> {
        while !stop.load(Relaxed) {
            let client = match self.listener.client(POLL_INTERVAL) {
                Some(Arrival::Client(client)) => client,
                Some(Arrival::Refused(peer, failure)) => {
                    events(ServerEvent::Failed { peer, error: &failure.into() });
                    continue;
                }
                None => continue,
            };
            let Ok(peer) = client.stream.peer_addr() else {
                self.listener.admit_client();
                continue;
            };
            let ended = test::serve(client, &self.listener, self.options.idle, stop, events);
            self.listener.admit_client();
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

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
        thread,
    };

    use super::*;
    use crate::protocol::{COOKIE_BYTES, State, frame};

    fn connected(address: SocketAddr, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    fn state(stream: &mut TcpStream) -> Option<State> {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        State::of(byte[0])
    }

    /// A client that is stopped in its test: everything that is right comes, and then no data.
    #[test]
    fn a_silent_test_is_ended_and_the_next_client_is_served() {
        let options = ServerOptions { once: false, idle: Duration::from_millis(300) };
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let (address, stop) = (server.local_address(), AtomicBool::new(false));
        let mut failures = Vec::new();
        thread::scope(|scope| {
            let (stop, failures) = (&stop, &mut failures);
            let running = scope.spawn(move || {
                server.run(stop, &mut |event| {
                    if let ServerEvent::Failed { error, .. } = event {
                        failures.push(error.to_string());
                    }
                })
            });
            let cookie = [b's'; COOKIE_BYTES];
            let parameters = frame(&Parameters { streams: 1, ..Parameters::default() }.to_json());
            let mut silent = connected(address, &cookie);
            assert_eq!(state(&mut silent), Some(State::ParamExchange));
            silent.write_all(&parameters).unwrap();
            assert_eq!(state(&mut silent), Some(State::CreateStreams));
            let _stream = connected(address, &cookie);
            assert_eq!(state(&mut silent), Some(State::TestStart));
            assert_eq!(state(&mut silent), Some(State::TestRunning));
            assert_eq!(state(&mut silent), Some(State::ServerError));
            // From the same address: when others have had their turn.
            let until = std::time::Instant::now() + Duration::from_secs(20);
            while state(&mut connected(address, &cookie)) != Some(State::ParamExchange) {
                assert!(std::time::Instant::now() < until, "the place is free again");
            }
            stop.store(true, Relaxed);
            running.join().unwrap().unwrap();
        });
        assert!(failures[0].contains("no data moved"), "{failures:?}");
    }
}
