//! `clearstream rdma serve`

use std::net::{IpAddr, SocketAddr};

use crate::{
    exit::CommandError,
    interrupt, output,
    rdma::{
        ping_server::PingService,
        rping,
        server::{Server, Service, Told},
    },
};

/// Be the far end of pings and measurements.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Address to listen on; another than loopback only when asked
    #[arg(long, short = 'a', value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: IpAddr,
    /// Port to listen on
    #[arg(long, short = 'p', value_name = "PORT", default_value_t = rping::PORT)]
    port: u16,
    /// End when the first peer was served
    #[arg(long)]
    once: bool,
}

impl ServeArgs {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        let service = Service { ping: PingService::default(), tests: true, once: self.once };
        serve(SocketAddr::new(self.listen, self.port), service, false)
    }
}

/// Listens, and tells what happens; `texts` also what clients' pings say.
pub(super) fn serve(address: SocketAddr, service: Service, texts: bool) -> Result<(), CommandError> {
    let stop = interrupt::stop_flag()?;
    let server = Server::bind(address, service)?;
    output::line(&format!("listening on {}; stop with Ctrl-C", server.local_address()))?;
    server.run(&stop, &|told| {
        if let Told::Text { text, .. } = &told {
            if texts {
                let _ = output::line(&output::rdma::ping_text(text));
            }
            return;
        }
        eprintln!("{}", output::rdma::told(&told));
    })?;
    Ok(())
}
