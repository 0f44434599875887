//! `clearstream pair`

use std::{net::SocketAddr, path::PathBuf};

use clap::Subcommand;
use clearstream_control::pairing::{self, Pairing};
use clearstream_schema::JsonSchema;
use clearstream_schema::scope::Scope;
use clearstream_sys::lines;
use serde::Serialize;

use crate::{
    exit::{CommandError, cannot},
    output::{self, Output},
};

/// Controllers that are permitted.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Pairings<'a> {
    /// In the order in which they were made.
    pairings: Vec<Client<'a>>,
}

/// A permitted controller.
#[derive(Debug, Serialize, JsonSchema)]
struct Client<'a> {
    /// Its name.
    name: &'a str,
    /// What it may do.
    scope: Scope,
}

/// What became of a pairing.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct PairingChange<'a> {
    /// `created`, `accepted` or `revoked`.
    action: &'a str,
    /// Name of the controller; absent where the token does not name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// What it may do; of a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<Scope>,
    /// The secret that the controller has to accept; of a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    /// File that was written; of an accepted one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
}

fn list(clients: &[pairing::Client], out: &Output) -> Result<(), CommandError> {
    let pairings = clients.iter().map(|client| Client { name: &client.name, scope: client.scope }).collect();
    Ok(out.result(&Pairings { pairings }, || {
        if clients.is_empty() {
            return "nobody may connect: clearstream pair create NAME permits somebody".to_owned();
        }
        let rows = clients.iter().map(|client| vec![client.name.clone(), client.scope.to_string()]);
        output::table::table(&["name", "scope"], rows.collect())
    })?)
}

/// Create, list and revoke pairings for `serve`.
#[derive(Debug, Subcommand)]
pub enum PairVerb {
    /// On the serving host: permit another controller and print its token
    Create {
        /// Name of the controller, for `list` and `revoke`
        name: String,
        /// Address and port at which the controller reaches the daemon
        #[arg(long, value_name = "ADDRESS:PORT", default_value_t = super::serve::LISTEN)]
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
    /// On the serving host: list permitted controllers and their scopes
    List {
        /// Folder of the identity and the pairings
        #[arg(long, value_name = "FOLDER")]
        identity: Option<PathBuf>,
    },
    /// On the serving host: revoke a controller's permission
    Revoke {
        /// Name given at `create`
        name: String,
        /// Folder of the identity and the pairings
        #[arg(long, value_name = "FOLDER")]
        identity: Option<PathBuf>,
    },
}

impl PairVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let folder = |identity: Option<PathBuf>| identity.map_or_else(pairing::default_directory, Ok);
        match self {
            Self::Create { name, address, scope, identity } => {
                let token = pairing::create(&folder(identity)?, &name, address, scope)?;
                let change = PairingChange {
                    action: "created",
                    name: Some(&name),
                    scope: Some(scope),
                    token: Some(&token),
                    file: None,
                };
                out.result(&change, || token.clone())?;
                let rights = match scope {
                    Scope::Measure => "run tests here",
                    Scope::MeasureAndChange => "run tests and change network settings here",
                };
                output::log(&format!(
                    "Give this token to {name} over a secure channel: anyone who holds it may {rights}."
                ));
                output::log("There: clearstream pair accept FILE, then paste it.");
            }
            Self::Accept { file } => {
                Pairing::from_token(&lines::answer(std::io::stdin()).map_err(cannot("read the token"))?)?
                    .save(&file)?;
                let file = file.display().to_string();
                let change =
                    PairingChange { action: "accepted", file: Some(&file), ..PairingChange::default() };
                out.result(&change, || format!("wrote {file}; use it with --pairing {file}"))?;
            }
            Self::List { identity } => list(&pairing::clients(&folder(identity)?)?, out)?,
            Self::Revoke { name, identity } => {
                pairing::revoke(&folder(identity)?, &name)?;
                let change =
                    PairingChange { action: "revoked", name: Some(&name), ..PairingChange::default() };
                out.result(&change, || format!("{name} may no longer connect"))?;
            }
        }
        Ok(())
    }
}
