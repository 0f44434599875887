//! `clearstream pair`

use std::{
    io::{BufRead as _, Read as _},
    net::SocketAddr,
    path::PathBuf,
};

use clap::Subcommand;
use clearstream_control::pairing::{self, Pairing};

use crate::{exit::CommandError, output};

/// More than a token has.
const TOKEN_BYTES: u64 = 64 << 10;

/// Make, list and revoke pairings for `serve`.
#[derive(Debug, Subcommand)]
pub enum PairVerb {
    /// On the host that serves: allow one more controller and print its token
    Create {
        /// Name of the controller, for `list` and `revoke`
        name: String,
        /// Address and port at which the controller will find the daemon
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5740")]
        address: SocketAddr,
        /// Folder of the identity and the pairings
        #[arg(long, value_name = "FOLDER")]
        identity: Option<PathBuf>,
    },
    /// On the controller: store a token (read from standard input) as a pairing file
    Accept {
        /// File to write, readable by you alone
        file: PathBuf,
    },
    /// On the host that serves: show who may connect
    List {
        /// Folder of the identity and the pairings
        #[arg(long, value_name = "FOLDER")]
        identity: Option<PathBuf>,
    },
    /// On the host that serves: take a controller's permission back
    Revoke {
        /// Name given at `create`
        name: String,
        /// Folder of the identity and the pairings
        #[arg(long, value_name = "FOLDER")]
        identity: Option<PathBuf>,
    },
}

impl PairVerb {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        let folder = |identity: Option<PathBuf>| identity.map_or_else(pairing::default_directory, Ok);
        match self {
            Self::Create { name, address, identity } => {
                let token = pairing::create(&folder(identity)?, &name, address)?;
                output::line(&token)?;
                output::log(&format!(
                    "Give this token to {name} over a safe channel: whoever holds it may run tests here."
                ));
                output::log("There: clearstream pair accept FILE, then paste it.");
            }
            Self::Accept { file } => {
                let mut token = String::new();
                // Longer than any token: standard input may have no end.
                std::io::stdin().lock().take(TOKEN_BYTES).read_line(&mut token)?;
                Pairing::from_token(token.trim())?.save(&file)?;
                output::line(&format!("wrote {}; use it with --pairing {0}", file.display()))?;
            }
            Self::List { identity } => {
                for name in pairing::list(&folder(identity)?)? {
                    output::line(&name)?;
                }
            }
            Self::Revoke { name, identity } => {
                pairing::revoke(&folder(identity)?, &name)?;
                output::line(&format!("{name} may no longer connect"))?;
            }
        }
        Ok(())
    }
}
