//! `clearstream serve`

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use clearstream_control::{
    pairing,
    tls::{self, Busy, ServeConfig},
};

use super::compat::{self, Compat};
use crate::{
    agent,
    exit::CommandError,
    interrupt,
    output::{self, Output},
};

/// Wait for paired controllers.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Address and port to listen on; another than loopback only when asked [default: 127.0.0.1:5740,
    /// with --compat iperf3 127.0.0.1:5201]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Queue a second controller instead of refusing it
    #[arg(long)]
    queue: bool,
    /// Folder of the identity and the pairings
    #[arg(long, value_name = "FOLDER")]
    identity: Option<PathBuf>,
    /// Serve clients of this program instead, without pairings: whoever reaches the port can start a test
    #[arg(long, value_enum, value_name = "PROGRAM", conflicts_with_all = ["queue", "identity"])]
    compat: Option<Compat>,
    /// End after the first test
    #[arg(long, requires = "compat")]
    once: bool,
}

/// Where paired controllers are waited for.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5740);

impl ServeArgs {
    /// Does it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        if self.compat == Some(Compat::Iperf3) {
            return compat::serve(self.listen, self.once, out);
        }
        out.without_document("a daemon")?;
        let stop = interrupt::stop_flag()?;
        let identity = self.identity.map_or_else(pairing::default_directory, Ok)?;
        let mut config = ServeConfig::new(self.listen.unwrap_or(LISTEN), identity);
        config.busy = if self.queue { Busy::Queue } else { Busy::Refuse };
        config.on_event = Box::new(|event| output::log(&event.to_string()));
        let server = tls::Server::bind(config)?;
        output::line(&format!("listening on {}; stop with Ctrl-C", server.local_address()))?;
        output::in_background();
        Ok(server.run(&stop, |_| agent::services())?)
    }
}
