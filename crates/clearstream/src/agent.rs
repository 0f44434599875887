//! What an agent does on its host: answers a controller's requests with the
//! engines.

use std::net::SocketAddr;

use clearstream_control::{EventSender, Handler, agent::CAPTURE_CHUNK_BYTES, encoding};
use clearstream_flow::FlowAgent;
use clearstream_host::{HostRoot, capture};
use clearstream_probe::Responder;
use clearstream_route::wire::WireAgent;
use clearstream_schema::control::{AgentEvent, Failure, FailureKind, Reply, Request};

use crate::{guarded::controller, rdma::server::FarEnd};

/// An agent's state: what is open for tests.
#[derive(Debug, Default)]
pub struct Agent {
    flow: FlowAgent,
    responder: Option<Responder>,
    wire: WireAgent,
    rdma: Option<FarEnd>,
}

impl Handler for Agent {
    fn handle(&mut self, request: Request, events: &EventSender) -> Result<Reply, Failure> {
        match request {
            Request::Inspect => Ok(Reply::Host(clearstream_host::inspect(&HostRoot::live()))),
            Request::Capture => self.capture(events),
            Request::FlowPrepare(prepare) => self.flow.prepare(prepare, events),
            Request::FlowStart { test } => self.flow.start(test).map(|()| Reply::Empty),
            Request::FlowStop { test } => self.flow.stop(test).map(|()| Reply::Empty),
            Request::ProbeListen { address, port, cookie } => {
                // One that nobody closed may hold the port.
                self.responder = None;
                let responder = Responder::open(address, port, &cookie)?;
                let (udp, tcp): (SocketAddr, SocketAddr) = (responder.udp(), responder.tcp());
                self.responder = Some(responder);
                Ok(Reply::ProbeListening { udp, tcp })
            }
            Request::ProbeRun { config, udp, tcp, cookie } => {
                clearstream_probe::measure(&config, udp, tcp, &cookie).map(Reply::Probed)
            }
            Request::ProbeClose => {
                self.responder = None;
                Ok(Reply::Empty)
            }
            Request::Plan(request) => controller::handle(request).map(Reply::Plan),
            Request::Route(request) => self.wire.handle(request).map(Reply::Route),
            Request::RdmaServe { address } => {
                let far = FarEnd::open(address)
                    .map_err(|error| Failure { kind: FailureKind::InUse, message: error.to_string() })?;
                let address = far.address();
                self.rdma = Some(far);
                Ok(Reply::RdmaListening { address })
            }
            Request::Shutdown => Ok(Reply::Empty),
        }
    }
}

impl Agent {
    fn capture(&self, events: &EventSender) -> Result<Reply, Failure> {
        let mut bundle = Vec::new();
        capture::write(&HostRoot::live(), &mut bundle).map_err(|error| Failure {
            kind: FailureKind::Internal,
            message: format!("capture of the host: {error}"),
        })?;
        for part in bundle.chunks(CAPTURE_CHUNK_BYTES) {
            events.send(AgentEvent::CaptureChunk { base64: encoding::base64(part) });
        }
        Ok(Reply::Empty)
    }
}
