//! Which controllers may connect to a daemon. The daemon has an identity (a self-signed certificate and its
//! key); `create` makes one more certificate with its key for a controller, keeps only its SHA-256 (the
//! *pin*) and gives the rest away as a one-line token. Each side then accepts exactly the certificate whose
//! pin it holds. Only the token is secret in transit, and reading the daemon's directory of pins does not let
//! anyone pass as a controller.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clearstream_schema::{control::FailureKind, failure::Classified, scope::Scope};
use serde::{Deserialize, Serialize};

use crate::encoding;
pub(crate) use identity::Pin;
use identity::{Identity, Usage};

mod file;
pub(crate) mod identity;
mod token;

const PAIRING_SCHEMA: &str = "clearstream.pairing";
const CLIENT_SCHEMA: &str = "clearstream.client";
const IDENTITY_FILE: &str = "identity.json";
const CLIENT_FOLDER: &str = "clients";

/// A pairing, identity or token that cannot be created or used.
#[derive(Debug, thiserror::Error)]
pub enum PairingError {
    /// A file or folder.
    #[error("cannot {step} {}: {source}", path.display())]
    File {
        /// The failed operation.
        step: &'static str,
        /// Path.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A file that others can read or that is damaged.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// Path.
        path: PathBuf,
        /// What is wrong and how to fix it.
        reason: String,
    },
    /// An incomplete or changed token.
    #[error(
        "this is not a pairing token ({reason}): paste the whole line that `clearstream pair create` printed"
    )]
    Token {
        /// What is wrong.
        reason: String,
    },
    /// A name that cannot be used.
    #[error("pairing \"{name}\": {reason}")]
    Name {
        /// As entered.
        name: String,
        /// What is wrong and how to fix it.
        reason: &'static str,
    },
    /// A certificate could not be created or loaded.
    #[error("certificate: {0}")]
    Certificate(String),
    /// No folder was named and the environment specifies none.
    #[error("no folder for pairings: set HOME or XDG_CONFIG_HOME, or specify a folder with --identity")]
    NoHome,
}

impl Classified for PairingError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::File { .. } | Self::Unusable { .. } => FailureKind::File,
            Self::Token { .. } | Self::NoHome => FailureKind::Invalid,
            Self::Name { .. } => FailureKind::Name,
            Self::Certificate(_) => FailureKind::Internal,
        }
    }
}

/// What a controller needs to connect to one daemon.
#[derive(Clone, PartialEq, Eq)]
pub struct Pairing {
    /// Address of the daemon as given at [`create`].
    pub address: SocketAddr,
    /// Its certificate.
    pub(crate) server: Pin,
    /// Our own certificate and key.
    pub(crate) identity: Identity,
}

/// Never shows the key.
impl fmt::Debug for Pairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pairing")
            .field("address", &self.address)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// A pairing on disk.
#[derive(Serialize, Deserialize)]
struct PairingDocument {
    schema: String,
    version: u32,
    address: SocketAddr,
    server_pin: String,
    certificate: String,
    private_key: String,
}

/// A permitted controller on disk.
#[derive(Serialize, Deserialize)]
struct ClientDocument {
    schema: String,
    version: u32,
    name: String,
    pin: String,
    scope: Scope,
}

/// A permitted controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Name given at [`create`].
    pub name: String,
    /// Its certificate.
    pub(crate) pin: Pin,
    /// Rights of the controller.
    pub scope: Scope,
}

impl Pairing {
    /// Reads a token as [`create`] printed it.
    ///
    /// # Errors
    /// [`PairingError::Token`] when it is not whole.
    pub fn from_token(token: &str) -> Result<Self, PairingError> {
        token::read(token)
    }

    /// Reads a pairing file.
    ///
    /// # Errors
    /// When it cannot be read, is open to others, or is damaged.
    pub fn load(path: &Path) -> Result<Self, PairingError> {
        let document: PairingDocument = file::read_private(path, PAIRING_SCHEMA)?;
        let unusable = |reason: String| PairingError::Unusable { path: path.to_owned(), reason };
        let bytes = |text: &str| encoding::from_base64(text).map_err(|error| unusable(error.to_string()));
        Ok(Self {
            address: document.address,
            server: document.server_pin.parse().map_err(unusable)?,
            identity: Identity::from_parts(bytes(&document.certificate)?, bytes(&document.private_key)?),
        })
    }

    /// Writes a pairing file that only its owner can read.
    ///
    /// # Errors
    /// Also when the file is already there: it may be another daemon's.
    pub fn save(&self, path: &Path) -> Result<(), PairingError> {
        let document = PairingDocument {
            schema: PAIRING_SCHEMA.to_owned(),
            version: 1,
            address: self.address,
            server_pin: self.server.to_string(),
            certificate: encoding::base64(self.identity.certificate()),
            private_key: encoding::base64(self.identity.private_key()),
        };
        file::create_private(path, &document)
    }

    /// Port of the daemon as given at [`create`].
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

/// Default directory of the identity and the pairings: `$XDG_CONFIG_HOME/clearstream` or
/// `~/.config/clearstream`.
///
/// # Errors
/// When neither variable is set.
pub fn default_directory() -> Result<PathBuf, PairingError> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    base.map(|base| base.join("clearstream")).ok_or(PairingError::NoHome)
}

/// Permits one more controller, called `name`, the rights of `scope`, and returns its token. Creates the
/// daemon's identity when there is none yet.
///
/// # Errors
/// When the name is in use or invalid, or files cannot be written.
pub fn create(
    directory: &Path,
    name: &str,
    address: SocketAddr,
    scope: Scope,
) -> Result<String, PairingError> {
    check_name(name)?;
    let server = load_or_make_identity(directory)?;
    let identity = Identity::make(Usage::Client, name)?;
    let document = ClientDocument {
        schema: CLIENT_SCHEMA.to_owned(),
        version: 1,
        name: name.to_owned(),
        pin: identity.pin().to_string(),
        scope,
    };
    file::make_private_folder(&directory.join(CLIENT_FOLDER))?;
    file::create_private(&client_file(directory, name), &document).map_err(|error| match error {
        PairingError::File { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists => {
            let reason = "it exists already: choose another name or revoke that one first";
            PairingError::Name { name: name.to_owned(), reason }
        }
        other => other,
    })?;
    Ok(token::write(&Pairing { address, server: server.pin(), identity }))
}

/// Revokes a controller's pairing: its next connection is rejected.
///
/// # Errors
/// When there is no such name.
pub fn revoke(directory: &Path, name: &str) -> Result<(), PairingError> {
    check_name(name)?;
    let path = client_file(directory, name);
    std::fs::remove_file(&path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => PairingError::Name {
            name: name.to_owned(),
            reason: "there is no such pairing: `clearstream pair list` shows them",
        },
        _ => PairingError::File { step: "remove", path, source },
    })
}

/// The permitted controllers, sorted by name.
///
/// # Errors
/// When the folder or a file in it cannot be read.
pub fn clients(directory: &Path) -> Result<Vec<Client>, PairingError> {
    let mut clients = Vec::new();
    for path in file::documents(&directory.join(CLIENT_FOLDER))? {
        let ClientDocument { name, pin, scope, .. } = file::read_private(&path, CLIENT_SCHEMA)?;
        let pin = pin.parse().map_err(|reason| PairingError::Unusable { path, reason })?;
        clients.push(Client { name, pin, scope });
    }
    clients.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(clients)
}

/// Loads the daemon's identity, creating it at first use.
pub(crate) fn load_or_make_identity(directory: &Path) -> Result<Identity, PairingError> {
    file::make_private_folder(directory)?;
    let path = directory.join(IDENTITY_FILE);
    if !path.exists() {
        let made = Identity::make(Usage::Server, &clearstream_sys::process::host_name())?;
        match made.save(&path) {
            // Another process created it first: use that one.
            Err(PairingError::File { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {}
            result => return result.map(|()| made),
        }
    }
    Identity::load(&path)
}

fn client_file(directory: &Path, name: &str) -> PathBuf {
    directory.join(CLIENT_FOLDER).join(format!("{name}.json"))
}

/// A name becomes a file name and part of messages.
fn check_name(name: &str) -> Result<(), PairingError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if (1..=64).contains(&name.len()) && name.chars().all(plain) && !name.starts_with(['.', '-']) {
        return Ok(());
    }
    let reason = "write letters, digits, dots, dashes and underscores, at most 64, a letter or digit first";
    Err(PairingError::Name { name: name.to_owned(), reason })
}

#[cfg(test)]
mod tests;
