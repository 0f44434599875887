//! Runs one flow test over loopback in this process, for trying settings quickly:
//!
//! ```text
//! cargo run --release -p clearstream-flow --example loopback -- flows=2 transfer=1MiB sender-cores=0
//! ```
//!
//! Each argument is a key of the flow configuration with its value. Prints goodput, CPU seconds per GB and
//! the cores of the threads.
#![allow(clippy::print_stdout, reason = "it is a program")]

use std::{error::Error, net::Ipv4Addr, sync::atomic::AtomicBool};

use clearstream_control::{Peer, PeerError, Services, memory_pair};
use clearstream_flow::{FlowAgent, Open, run};
use clearstream_schema::flow::FlowConfig;

fn agent() -> Result<Peer, PeerError> {
    memory_pair(Services::new().with(FlowAgent::new()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = FlowConfig::default();
    for argument in std::env::args().skip(1) {
        let (key, value) = argument.split_once('=').ok_or("write key=value, as in flows=2")?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        config = config.with(key, value)?;
    }
    let (mut client, mut server) = (agent()?, agent()?);
    let address = Ipv4Addr::LOCALHOST.into();
    let stop = AtomicBool::new(false);
    let summary = run(&mut client, &mut server, address, &config, Open::default(), &stop, &mut |_| {})?;
    let cost = summary.client_cpu_seconds_per_gb + summary.server_cpu_seconds_per_gb;
    println!("{:.1} Gb/s, {cost:.3} CPU s/GB, cores {:?}", summary.goodput_bps / 1e9, summary.seen_cores);
    for notice in &summary.notices {
        println!("note: {}", notice.message);
    }
    Ok(())
}
