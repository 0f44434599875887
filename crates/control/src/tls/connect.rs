//! The controller's side of a paired daemon.

use std::{
    net::{SocketAddr, TcpStream},
    ops::ControlFlow,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

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
    peer::{OnWait, Peer},
    session::HELLO_TIMEOUT,
};

/// For the TCP connection and for the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to the daemon at `address`, which must be the one that `pairing`
/// was made with, and waits its turn when the daemon lets others wait.
///
/// # Errors
/// [`PeerError::Start`] when nobody answers, [`PeerError::Pairing`] when one
/// side does not know the other, [`PeerError::Refused`] when it is busy.
pub fn connect(address: SocketAddr, pairing: &Pairing) -> Result<Peer, PeerError> {
    connect_waiting(address, pairing, &mut |_| ControlFlow::Continue(()))
}

/// As [`connect`]; `on_wait` is told what is being waited for and may give up.
///
/// # Errors
/// As [`connect`], and [`PeerError::Stopped`].
pub fn connect_waiting(
    address: SocketAddr,
    pairing: &Pairing,
    on_wait: OnWait<'_>,
) -> Result<Peer, PeerError> {
    let name = address.to_string();
    let start = |cause, message| PeerError::Start { name: name.clone(), cause, message };
    let socket = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(|error| {
        let message = format!("{error}: is `clearstream serve` running there and listening on this address?");
        start(StartCause::Connection, message)
    })?;
    let server_name = ServerName::try_from(CERTIFICATE_NAME)
        .map_err(|error| start(StartCause::Other, error.to_string()))?;
    let mut connection = client_config(pairing)
        .and_then(|config| ClientConnection::new(Arc::new(config), server_name))
        .map(Connection::from)
        .map_err(|error| start(StartCause::Other, format!("this pairing cannot be used: {error}")))?;
    stream::handshake(&mut connection, &socket, Instant::now() + CONNECT_TIMEOUT)
        .map_err(|error| explain(&name, error))?;
    let (transport, fault) =
        stream::split(connection, socket).map_err(|error| start(StartCause::Other, error.to_string()))?;
    // With TLS 1.3 the client is done before the server has looked at its
    // certificate: a refusal arrives as the answer to our `Hello`.
    Peer::open(name.clone(), String::new(), transport, None, HELLO_TIMEOUT, on_wait).map_err(|error| {
        let fault = fault.lock().unwrap_or_else(PoisonError::into_inner).take();
        fault.map_or(error, |fault| explain(&name, HandshakeError::Tls(fault)))
    })
}

fn explain(name: &str, error: HandshakeError) -> PeerError {
    let start =
        |message: String| PeerError::Start { name: name.to_owned(), cause: StartCause::Connection, message };
    match error {
        HandshakeError::Timeout => start(format!(
            "somebody answers but not as a clearstream daemon does, within {} s",
            CONNECT_TIMEOUT.as_secs()
        )),
        HandshakeError::Ended => start("the other end hung up: it may be overrun by connections".to_owned()),
        HandshakeError::Io(error) => start(io_reason(&error)),
        HandshakeError::Tls(error) => match refusal(&error) {
            Some(message) => PeerError::Pairing { name: name.to_owned(), message: message.to_owned() },
            None => PeerError::Start {
                name: name.to_owned(),
                cause: StartCause::NotAnAgent,
                message: format!("what answers is not a clearstream daemon: {error}"),
            },
        },
    }
}

/// What a failed check means to a person.
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
