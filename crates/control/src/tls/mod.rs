//! Sessions over TLS 1.3 between paired hosts: [`connect`] for a controller,
//! [`Server`] for a daemon. There are no certificate authorities: each side
//! accepts the certificates whose pins it holds (see [`crate::pairing`]).

use std::{io, sync::Arc};

use rustls::{
    ClientConfig, ServerConfig,
    client::Resumption,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::NoServerSessionStorage,
    version::TLS13,
};

use crate::pairing::{Pairing, PairingError, identity::Identity};

mod admission;
mod connect;
mod log;
mod serve;
mod stream;
mod verify;

pub use connect::{connect, connect_waiting};
pub use log::ServeEvent;
pub use serve::{Busy, ServeConfig, ServeError, Server};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

type Credentials = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn credentials(identity: &Identity) -> Credentials {
    let certificate = CertificateDer::from(identity.certificate().to_vec());
    let key = PrivatePkcs8KeyDer::from(identity.private_key().to_vec());
    (vec![certificate], PrivateKeyDer::Pkcs8(key))
}

/// No resumption on either side: every connection presents its certificate, so
/// that a revoked one is rejected.
fn client_config(pairing: &Pairing) -> Result<ClientConfig, rustls::Error> {
    let provider = provider();
    let verifier = verify::PinnedServer { pin: pairing.server, provider: Arc::clone(&provider) };
    let (chain, key) = credentials(&pairing.identity);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(chain, key)?;
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn server_config(identity: &Identity, directory: &std::path::Path) -> Result<ServerConfig, PairingError> {
    let fail = |error: rustls::Error| PairingError::Certificate(error.to_string());
    let provider = provider();
    let verifier = verify::PinnedClients { directory: directory.to_owned(), provider: Arc::clone(&provider) };
    let (chain, key) = credentials(identity);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(fail)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(chain, key)
        .map_err(fail)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Why the peer rejected the connection, as far as known.
fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "the connection was reset".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
