//! `clearstream pair`

use std::{
    io::{BufRead as _, Read as _},
    net::SocketAddr,
    path::PathBuf,
};

use clap::Subcommand;
use clearstream_control::pairing::{self, Client, Pairing};
use clearstream_schema::scope::Scope;
use serde::Serialize;

use crate::{exit::CommandError, output};

/// More than a token has.
const TOKEN_BYTES: u64 = 64 << 10;

/// A permitted controller, as `--json` shows it.
#[derive(Debug, Serialize)]
struct ClientDocument<'a> {
    name: &'a str,
    scope: Scope,
}

fn list(clients: &[Client], json: bool) -> Result<(), CommandError> {
    if json {
        let documents: Vec<ClientDocument<'_>> =
            clients.iter().map(|client| ClientDocument { name: &client.name, scope: client.scope }).collect();
        return Ok(output::json(&documents, true)?);
    }
    if clients.is_empty() {
        return Ok(output::line("nobody may connect: clearstream pair create NAME permits somebody")?);
    }
    let rows = clients.iter().map(|client| vec![client.name.clone(), client.scope.to_string()]);
    Ok(output::line(&output::table::table(&["name", "scope"], rows.collect()))?)
}

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
        /// What it may do here: `measure`, or `measure,change` to apply and revert plans too
        #[arg(long, value_name = "SCOPE", default_value_t = Scope::Measure)]
        scope: Scope,
        /// Folder of the identity and the pairings
        #[arg(long, value_name = "FOLDER")]
        identity: Option<PathBuf>,
    },
    /// On the controller: store a token (read from standard input) as a pairing file
    Accept {
        /// File to write, readable by you alone
        file: PathBuf,
    },
    /// On the host that serves: show who may connect, and what they may do
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
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
            Self::Create { name, address, scope, identity } => {
                let token = pairing::create(&folder(identity)?, &name, address, scope)?;
                output::line(&token)?;
                let rights = match scope {
                    Scope::Measure => "run tests here",
                    Scope::MeasureAndChange => "run tests and change network settings here",
                };
                output::log(&format!(
                    "Give this token to {name} over a safe channel: whoever holds it may {rights}."
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
            Self::List { json, identity } => list(&pairing::clients(&folder(identity)?)?, json)?,
            Self::Revoke { name, identity } => {
                pairing::revoke(&folder(identity)?, &name)?;
                output::line(&format!("{name} may no longer connect"))?;
            }
        }
        Ok(())
    }
}
