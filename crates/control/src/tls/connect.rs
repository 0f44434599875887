//! Connects a controller to a paired daemon.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher as _,
    io,
    net::SocketAddr,
    ops::ControlFlow,
    sync::{Arc, PoisonError},
    thread,
    time::{Duration, Instant},
};

use clearstream_sys::{connect::tcp_stream, interruption};
use rustls::{
    AlertDescription, CertificateError, ClientConnection, Connection, Error, pki_types::ServerName,
};

use super::{
    client_config, io_reason,
    stream::{self, HandshakeError},
};
use crate::{
    error::{PeerError, StartCause},
    pairing::{Pairing, identity::CERTIFICATE_NAME},
    peer::{OnWait, Opening, Peer},
    session::HELLO_TIMEOUT,
};

/// Timeout of one TCP connection, and of one handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of all attempts of a [`connect`], backoff included.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum attempts of a [`connect`]. A daemon under a flood drops one in five: eight in a row have a
/// probability of 2.6e-6.
const ATTEMPTS: u32 = 8;
/// Mean backoff before the second attempt; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// Maximum mean backoff.
const LONGEST_BACKOFF: Duration = Duration::from_millis(800);

/// Connects to the daemon at `address`, which must be the one that `pairing` was created with, and waits for
/// admission when the daemon queues controllers. A connection dropped before the daemon has admitted it, as
/// under a flood of connections, is retried; a refusal never is.
///
/// # Errors
/// [`PeerError::Start`] when nothing responds, [`PeerError::Pairing`] when one
/// side does not accept the other, [`PeerError::Refused`] when it is busy.
pub fn connect(address: SocketAddr, pairing: &Pairing) -> Result<Peer, PeerError> {
    connect_waiting(address, pairing, &mut |_| ControlFlow::Continue(()))
}

/// As [`connect`]; `on_wait` receives the reason for waiting and may cancel.
///
/// # Errors
/// As [`connect`], and [`PeerError::Stopped`].
pub fn connect_waiting(
    address: SocketAddr,
    pairing: &Pairing,
    on_wait: OnWait<'_>,
) -> Result<Peer, PeerError> {
    let deadline = Instant::now() + TOTAL_TIMEOUT;
    let mut attempt = 1;
    loop {
        let result = attempt_once(address, pairing, deadline, on_wait);
        let Err(PeerError::Start { name, cause: StartCause::Dropped, message }) = result else {
            return result;
        };
        let pause = backoff(attempt);
        if interruption::is_requested() {
            return Err(stopped(&name));
        }
        if attempt == ATTEMPTS || Instant::now() + pause >= deadline {
            let message =
                format!("{message}, at each of {attempt} attempts: it may be overrun by connections");
            return Err(PeerError::Start { name, cause: StartCause::Dropped, message });
        }
        thread::sleep(pause);
        attempt += 1;
    }
}

/// Backoff after the given attempt: exponential, with jitter between half and one and a half times the mean,
/// so that controllers dropped together do not return together.
fn backoff(attempt: u32) -> Duration {
    let mean = FIRST_BACKOFF.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(LONGEST_BACKOFF);
    // Keys of a `RandomState` are random (std::collections::hash_map).
    let random = RandomState::new().hash_one(attempt) % 1024;
    mean / 2 + mean.mul_f64(random as f64 / 1024.0)
}

/// Makes one connection, up to admission by the daemon.
fn attempt_once(
    address: SocketAddr,
    pairing: &Pairing,
    deadline: Instant,
    on_wait: OnWait<'_>,
) -> Result<Peer, PeerError> {
    let name = address.to_string();
    let start = |cause, message| PeerError::Start { name: name.clone(), cause, message };
    // Zero would be refused as a timeout; a millisecond fails as it should.
    let left = || {
        let left = deadline.saturating_duration_since(Instant::now());
        left.clamp(Duration::from_millis(1), CONNECT_TIMEOUT)
    };
    let socket = tcp_stream(address, left()).map_err(|error| {
        if interruption::is_requested() {
            return stopped(&name);
        }
        let message = format!("{error}: is `clearstream serve` running there and listening on this address?");
        start(StartCause::Connection, message)
    })?;
    let server_name = ServerName::try_from(CERTIFICATE_NAME)
        .map_err(|error| start(StartCause::Other, error.to_string()))?;
    let mut connection = client_config(pairing)
        .and_then(|config| ClientConnection::new(Arc::new(config), server_name))
        .map(Connection::from)
        .map_err(|error| start(StartCause::Other, format!("this pairing cannot be used: {error}")))?;
    stream::handshake(&mut connection, &socket, Instant::now() + left())
        .map_err(|error| if interruption::is_requested() { stopped(&name) } else { explain(&name, error) })?;
    let (transport, fault) =
        stream::split(connection, socket).map_err(|error| start(StartCause::Other, error.to_string()))?;
    // With TLS 1.3 the client is done before the server has verified its certificate: a rejection arrives as
    // the response to our `Hello`, and so does the end of a connection that was displaced at that moment.
    Peer::open(name.clone(), transport, HELLO_TIMEOUT, Opening::default(), on_wait).map_err(|error| {
        let fault = fault.lock().unwrap_or_else(PoisonError::into_inner).take();
        fault.map_or(error, |fault| explain(&name, HandshakeError::Tls(fault)))
    })
}

fn stopped(name: &str) -> PeerError {
    PeerError::Stopped { name: name.to_owned(), reason: "connecting was interrupted".to_owned() }
}

fn explain(name: &str, error: HandshakeError) -> PeerError {
    let start = |cause, message: String| PeerError::Start { name: name.to_owned(), cause, message };
    match error {
        HandshakeError::Timeout => start(
            StartCause::Connection,
            format!(
                "the TLS handshake was not completed within {} s: is it a clearstream daemon?",
                CONNECT_TIMEOUT.as_secs()
            ),
        ),
        HandshakeError::Ended => {
            start(StartCause::Dropped, "it closed the connection during the handshake".to_owned())
        }
        HandshakeError::Io(error) => {
            let dropped = matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::NotConnected
            );
            let cause = if dropped { StartCause::Dropped } else { StartCause::Connection };
            start(cause, io_reason(&error))
        }
        HandshakeError::Tls(error) => match refusal(&error) {
            Some(message) => PeerError::Pairing { name: name.to_owned(), message: message.to_owned() },
            None => start(
                StartCause::NotAnAgent,
                format!("the remote program is not a clearstream daemon: {error}"),
            ),
        },
    }
}

/// User message for a failed certificate check.
fn refusal(error: &Error) -> Option<&'static str> {
    match error {
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => Some(
            "this is not the daemon that the pairing was made with (another host, or its identity is new): \
             make a new pairing there with `clearstream pair create`",
        ),
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => Some(
            "the daemon's certificate is not valid at this time: check both clocks, or remove its identity \
             and make new pairings there",
        ),
        Error::AlertReceived(AlertDescription::CertificateExpired) => Some(
            "this pairing is not valid at this time: check both clocks, or make a new one there with \
             `clearstream pair create`",
        ),
        Error::AlertReceived(
            AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::DecryptError,
        ) => Some(
            "the daemon does not accept this pairing (revoked, or made by another daemon): make a new one \
             there with `clearstream pair create`",
        ),
        Error::AlertReceived(AlertDescription::InternalError) => {
            Some("the daemon could not check this pairing: its operator sees the reason where it runs")
        }
        _ => None,
    }
}
