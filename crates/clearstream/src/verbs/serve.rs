//! `clearstream serve`

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use clearstream_control::{
    pairing,
    tls::{self, Busy, ServeConfig},
};
use clearstream_route::watch::{ServiceManager, command_line};

use super::compat::{self, Compat};
use crate::{
    agent,
    endpoints::own_program,
    exit::CommandError,
    interrupt,
    output::{self, Output},
};

/// Wait for paired controllers.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Address and port to listen on; loopback unless an address is given (default: 127.0.0.1:5740,
    /// with --compat iperf3 127.0.0.1:5201)
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Queue a second controller instead of refusing it
    #[arg(long)]
    queue: bool,
    /// Folder of the identity and the pairings
    #[arg(long, value_name = "FOLDER")]
    identity: Option<PathBuf>,
    /// Serve clients of this program instead, without pairings: whoever reaches the port can start a test
    #[arg(long, value_enum, value_name = "PROGRAM", conflicts_with_all = ["queue", "identity", "unit"])]
    compat: Option<Compat>,
    /// End after the first test
    #[arg(long, requires = "compat")]
    once: bool,
    /// Print a systemd unit that runs this command, and do nothing
    #[arg(long)]
    unit: bool,
}

/// Where paired controllers are waited for.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5740);
/// Folder of the identity of a daemon that systemd runs: that of `StateDirectory=`
/// (systemd.exec(5)).
const UNIT_IDENTITY: &str = "/var/lib/clearstream";

impl ServeArgs {
    /// Does it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        if self.compat == Some(Compat::Iperf3) {
            return compat::serve(self.listen, self.once, out);
        }
        out.without_document("a daemon")?;
        if self.unit {
            return Ok(output::line(self.unit_text()?.trim_end())?);
        }
        let stop = interrupt::stop_flag()?;
        let identity = self.identity.map_or_else(pairing::default_directory, Ok)?;
        let mut config = ServeConfig::new(self.listen.unwrap_or(LISTEN), identity);
        config.busy = if self.queue { Busy::Queue } else { Busy::Refuse };
        config.on_event = Box::new(|event| output::log(&event.to_string()));
        let server = tls::Server::bind(config)?;
        let listening = format!("listening on {}", server.local_address());
        output::line(&format!("{listening}; stop with Ctrl-C"))?;
        // sd_notify(3).
        let socket = std::env::var("NOTIFY_SOCKET").ok();
        let manager = ServiceManager::new(socket.as_deref(), None, None);
        if let Some(manager) = &manager {
            manager.ready(&listening);
        }
        output::in_background();
        let ended = server.run(&stop, |_| agent::services());
        if let Some(manager) = &manager {
            manager.stopping();
        }
        Ok(ended?)
    }

    /// The unit of this command line without `--unit`.
    fn unit_text(&self) -> Result<String, CommandError> {
        let listen = self.listen.unwrap_or(LISTEN);
        let identity = match &self.identity {
            // A unit has no folder of its own to start from.
            Some(folder) => std::path::absolute(folder)?,
            None => PathBuf::from(UNIT_IDENTITY),
        };
        let mut arguments = vec!["serve".to_owned(), "--listen".to_owned(), listen.to_string()];
        if self.queue {
            arguments.push("--queue".to_owned());
        }
        arguments.extend(["--identity".to_owned(), identity.display().to_string()]);
        Ok(unit(&command_line(&own_program()?.to_string_lossy(), &arguments), &listen, &identity))
    }
}

/// The text of the unit. Without change rights nobody needs root, but the identity and the
/// pairings are files of whoever runs `pair create`, which a unit of the system has to read.
fn unit(command: &str, listen: &SocketAddr, identity: &Path) -> String {
    let identity = identity.display();
    format!(
        "\
[Unit]
Description=ClearStream agent for paired controllers at {listen}
Documentation=man:clearstream-serve(1)
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
ExecStart={command}
# Controllers are permitted with: clearstream pair create NAME --identity {identity}
StateDirectory=clearstream
StateDirectoryMode=0700
# Only a fault ends it otherwise.
Restart=on-failure
RestartSec=1
# What measuring and the scope measure,change need.
CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_NICE CAP_IPC_LOCK
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths=-{identity}
ProtectHome=read-only
PrivateTmp=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_PACKET AF_UNIX

[Install]
WantedBy=multi-user.target
"
    )
}
