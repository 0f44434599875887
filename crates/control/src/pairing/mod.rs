//! Who may talk to a daemon. The daemon has an identity (a self-made
//! certificate and its key); `create` makes one more certificate with its key
//! for a controller, keeps only its SHA-256 (the *pin*) and gives the rest away
//! as a one-line token. Each side then accepts exactly the certificate whose
//! pin it holds. Nothing but the token is ever secret on the way, and the
//! daemon cannot be made to accept anybody by reading its folder of pins.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clearstream_schema::scope::Scope;
use serde::{Deserialize, Serialize};

use crate::encoding;
pub use identity::Pin;
use identity::{Identity, Usage};

mod file;
pub(crate) mod identity;
mod token;

/// Port of a daemon where none is named.
pub const DEFAULT_PORT: u16 = 5740;

const PAIRING_SCHEMA: &str = "clearstream.pairing";
const CLIENT_SCHEMA: &str = "clearstream.client";
const IDENTITY_FILE: &str = "identity.json";
const CLIENT_FOLDER: &str = "clients";

/// A pairing, identity or token that cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum PairingError {
    /// A file or folder.
    #[error("cannot {step} {}: {source}", path.display())]
    File {
        /// What was being done.
        step: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file that others can read or that has been damaged.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A token that is not whole.
    #[error(
        "this is no pairing token ({reason}): paste the whole line that `clearstream pair create` printed"
    )]
    Token {
        /// What is wrong.
        reason: String,
    },
    /// A name that cannot be used.
    #[error("pairing \"{name}\": {reason}")]
    Name {
        /// As typed.
        name: String,
        /// What is wrong and what to do.
        reason: &'static str,
    },
    /// A certificate could not be made or loaded.
    #[error("certificate: {0}")]
    Certificate(String),
    /// No folder was named and the environment names none.
    #[error("no folder for pairings: set HOME or XDG_CONFIG_HOME, or name a folder with --identity")]
    NoHome,
}

/// What a controller needs to talk to one daemon.
#[derive(Clone, PartialEq, Eq)]
pub struct Pairing {
    /// Where the daemon was said to listen.
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
    /// Pairings made before there were scopes have none: measuring only.
    #[serde(default)]
    scope: Scope,
}

/// A permitted controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Name given at [`create`].
    pub name: String,
    /// Its certificate.
    pub pin: Pin,
    /// What it may do.
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

    /// Port at which the daemon was said to listen.
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

/// Folder of the identity and the pairings where none is named:
/// `$XDG_CONFIG_HOME/clearstream` or `~/.config/clearstream`.
///
/// # Errors
/// When the environment names neither.
pub fn default_directory() -> Result<PathBuf, PairingError> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    base.map(|base| base.join("clearstream")).ok_or(PairingError::NoHome)
}

/// Permits one more controller, called `name`, what `scope` says, and returns
/// the token for it. The daemon's identity is made when there is none yet.
///
/// # Errors
/// When the name is taken or odd, or files cannot be written.
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

/// Takes a controller's permission back: its next connection is refused.
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

/// The daemon's identity, made at first use.
pub(crate) fn load_or_make_identity(directory: &Path) -> Result<Identity, PairingError> {
    file::make_private_folder(directory)?;
    let path = directory.join(IDENTITY_FILE);
    if !path.exists() {
        let made = Identity::make(Usage::Server, &clearstream_sys::process::host_name())?;
        match made.save(&path) {
            // Somebody else was faster: theirs counts.
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
