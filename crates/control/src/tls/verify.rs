//! Certificates are accepted by their pin alone, never by an authority. What a pin does not cover (validity
//! dates, usage, proof of possession of the key) is checked by rustls' own verifiers, with the pinned
//! certificate as the only root.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use crate::pairing::{self, Pin};

/// Verifier of a controller: exactly one daemon.
#[derive(Debug)]
pub(super) struct PinnedServer {
    pub(super) pin: Pin,
    pub(super) provider: Arc<CryptoProvider>,
}

/// Verifier of a daemon: the controllers in its directory, reread for each connection, so that a revoked one
/// is rejected from the next connection on.
#[derive(Debug)]
pub(super) struct PinnedClients {
    pub(super) directory: PathBuf,
    pub(super) provider: Arc<CryptoProvider>,
}

fn only_root(certificate: &CertificateDer<'_>) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone().into_owned())?;
    Ok(Arc::new(roots))
}

/// TLS 1.2 is disabled in both configurations, so this is unreachable.
fn only_tls13() -> Error {
    Error::General("only TLS 1.3 is supported".to_owned())
}

const NOT_PAIRED: Error = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if Pin::of(end_entity) != self.pin {
            return Err(NOT_PAIRED);
        }
        WebPkiServerVerifier::builder_with_provider(only_root(end_entity)?, Arc::clone(&self.provider))
            .build()
            .map_err(|error| Error::General(error.to_string()))?
            .verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for PinnedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let clients = pairing::clients(&self.directory).map_err(|error| Error::General(error.to_string()))?;
        let pin = Pin::of(end_entity);
        if !clients.iter().any(|client| client.pin == pin) {
            return Err(NOT_PAIRED);
        }
        WebPkiClientVerifier::builder_with_provider(only_root(end_entity)?, Arc::clone(&self.provider))
            .build()
            .map_err(|error| Error::General(error.to_string()))?
            .verify_client_cert(end_entity, &[], now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
