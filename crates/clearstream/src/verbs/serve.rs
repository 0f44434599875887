//! `clearstream serve`

use std::{net::SocketAddr, path::PathBuf};

use clearstream_control::{
    pairing,
    tls::{self, Busy, ServeConfig},
};

use crate::{
    agent,
    exit::CommandError,
    interrupt,
    output::{self, Output},
};

/// Wait for paired controllers.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Address and port to listen on. Listens on loopback unless an address is given
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5740")]
    listen: SocketAddr,
    /// Queue a second controller instead of refusing it
    #[arg(long)]
    queue: bool,
    /// Folder of the identity and the pairings
    #[arg(long, value_name = "FOLDER")]
    identity: Option<PathBuf>,
}

impl ServeArgs {
    /// Does it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        out.without_document("a daemon")?;
        let stop = interrupt::stop_flag()?;
        let identity = self.identity.map_or_else(pairing::default_directory, Ok)?;
        let mut config = ServeConfig::new(self.listen, identity);
        config.busy = if self.queue { Busy::Queue } else { Busy::Refuse };
        config.on_event = Box::new(|event| output::log(&event.to_string()));
        let server = tls::Server::bind(config)?;
        output::line(&format!("listening on {}; stop with Ctrl-C", server.local_address()))?;
        Ok(server.run(&stop, |_| agent::services())?)
    }
}
