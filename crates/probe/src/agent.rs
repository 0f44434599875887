//! The agent's side: holds the responder, runs the prober.

use clearstream_control::{CallContext, Done, Registration, Service};
use clearstream_schema::control::Failure;

use crate::{
    calls::{Close, Listen, Listening, Run},
    measure::{measure, round_trips},
    responder::Responder,
};

/// Reflects and sends probes on one host. Dropping it closes its sockets.
#[derive(Debug, Default)]
pub struct ProbeAgent {
    responder: Option<Responder>,
}

impl Service for ProbeAgent {
    fn register(calls: &mut Registration<Self>) {
        calls
            .on(Self::listen)
            .on(|_, Run { config, udp, tcp, cookie, udp_only }, _| match udp_only {
                true => round_trips(&config, udp, &cookie),
                false => measure(&config, udp, tcp, &cookie),
            })
            .on(|agent, Close {}, _| {
                agent.responder = None;
                Ok(Done {})
            });
    }
}

impl ProbeAgent {
    fn listen(&mut self, call: Listen, _: &CallContext<'_>) -> Result<Listening, Failure> {
        // A responder that was not closed may hold the port.
        self.responder = None;
        let responder = self.responder.insert(Responder::open(call.address, call.port, &call.cookie)?);
        Ok(Listening { udp: responder.udp(), tcp: responder.tcp() })
    }
}
