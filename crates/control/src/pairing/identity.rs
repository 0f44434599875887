//! A certificate with its key, made here and signed by itself.

use std::{
    fmt,
    path::Path,
    str::FromStr,
    time::{Duration, SystemTime},
};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, PKCS_ED25519, date_time_ymd};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{PairingError, file};
use crate::encoding;

/// Name in every certificate: peers are identified by pins, names mean nothing.
pub(crate) const CERTIFICATE_NAME: &str = "clearstream";
/// Validity period of a certificate.
const VALIDITY: Duration = Duration::from_secs(5 * 365 * 86_400);
/// Maximum lag of the other host's clock.
const CLOCK_SKEW: Duration = Duration::from_secs(86_400);

const IDENTITY_SCHEMA: &str = "clearstream.identity";

/// SHA-256 of a certificate in DER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pin(pub(crate) [u8; 32]);

/// Extended key usage of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    Server,
    Client,
}

/// A certificate and its private key, both DER (the key PKCS #8).
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    certificate: Vec<u8>,
    private_key: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct IdentityDocument {
    schema: String,
    version: u32,
    certificate: String,
    private_key: String,
}

impl Pin {
    /// The pin of a certificate in DER.
    pub(crate) fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoding::hex(&self.0))
    }
}

impl FromStr for Pin {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = encoding::from_hex(text).map_err(|error| format!("damaged pin: {error}"))?;
        let bytes = bytes.try_into().map_err(|_| "damaged pin: not 32 bytes".to_owned())?;
        Ok(Self(bytes))
    }
}

impl Identity {
    pub(crate) fn make(usage: Usage, common_name: &str) -> Result<Self, PairingError> {
        let now = SystemTime::now();
        Self::make_valid(usage, common_name, now - CLOCK_SKEW, now + VALIDITY)
    }

    pub(crate) fn make_valid(
        usage: Usage,
        common_name: &str,
        from: SystemTime,
        until: SystemTime,
    ) -> Result<Self, PairingError> {
        let fail = |error: rcgen::Error| PairingError::Certificate(error.to_string());
        let time = |time: SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            date_time_ymd(1970, 1, 1) + since
        };
        let mut params = CertificateParams::new(vec![CERTIFICATE_NAME.to_owned()]).map_err(fail)?;
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.not_before = time(from);
        params.not_after = time(until);
        params.extended_key_usages = vec![match usage {
            Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(fail)?;
        let certificate = params.self_signed(&key).map_err(fail)?;
        Ok(Self { certificate: certificate.der().to_vec(), private_key: key.serialize_der() })
    }

    pub(crate) fn from_parts(certificate: Vec<u8>, private_key: Vec<u8>) -> Self {
        Self { certificate, private_key }
    }

    pub(crate) fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    pub(crate) fn private_key(&self) -> &[u8] {
        &self.private_key
    }

    pub(crate) fn pin(&self) -> Pin {
        Pin::of(&self.certificate)
    }

    pub(super) fn save(&self, path: &Path) -> Result<(), PairingError> {
        let document = IdentityDocument {
            schema: IDENTITY_SCHEMA.to_owned(),
            version: 1,
            certificate: encoding::base64(&self.certificate),
            private_key: encoding::base64(&self.private_key),
        };
        file::create_private(path, &document)
    }

    pub(super) fn load(path: &Path) -> Result<Self, PairingError> {
        let document: IdentityDocument = file::read_private(path, IDENTITY_SCHEMA)?;
        let bytes = |text: &str| {
            encoding::from_base64(text).map_err(|error| PairingError::Unusable {
                path: path.to_owned(),
                reason: format!("damaged: {error}"),
            })
        };
        Ok(Self::from_parts(bytes(&document.certificate)?, bytes(&document.private_key)?))
    }
}
