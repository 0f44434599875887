//! What an agent does on its host: answers a controller's requests with the
//! engines.

use std::net::{IpAddr, SocketAddr};

use clearstream_control::{EventSender, Handler, agent::CAPTURE_CHUNK_BYTES, encoding};
use clearstream_flow::FlowAgent;
use clearstream_host::{HostRoot, capture};
use clearstream_probe::Responder;
use clearstream_rdma::{BackgroundServer, ExpectedPeer};
use clearstream_route::wire::WireAgent;
use clearstream_schema::control::{AgentEvent, Cookie, Failure, FailureKind, Reply, Request};

use crate::guarded::controller::Plans;

/// An agent's state: what is open for tests.
#[derive(Debug, Default)]
pub struct Agent {
    flow: FlowAgent,
    responder: Option<Responder>,
    wire: WireAgent,
    rdma: Option<BackgroundServer>,
    plans: Plans,
    /// Where the controller is, when it came over TLS.
    controller: Option<IpAddr>,
}

impl Handler for Agent {
    fn handle(&mut self, request: Request, events: &EventSender) -> Result<Reply, Failure> {
        match request {
            Request::Inspect => Ok(Reply::Host(clearstream_host::inspect(&HostRoot::live()))),
            Request::Capture => self.capture(events),
            Request::FlowPrepare(prepare) => {
                self.refuse_to_load(prepare.config.congestion_control.as_deref())?;
                self.flow.prepare(prepare, events)
            }
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
            Request::Plan(request) => self.plans.handle(request).map(Reply::Plan),
            Request::Route(request) => self.wire.handle(request).map(Reply::Route),
            Request::RdmaServe { address, cookie, peer } => self.rdma_serve(address, cookie, peer),
            Request::Shutdown => Ok(Reply::Empty),
        }
    }
}

impl Agent {
    /// An agent whose controller has come over TLS from this address.
    pub fn of_controller(address: IpAddr) -> Self {
        Self { controller: Some(address), ..Self::default() }
    }

    /// A congestion control that is not there makes the kernel load its module
    /// (tcp_set_congestion_control, for root), which is no measuring: not for a
    /// controller over TLS.
    fn refuse_to_load(&self, congestion_control: Option<&str>) -> Result<(), Failure> {
        let (Some(name), Some(_)) = (congestion_control, self.controller) else { return Ok(()) };
        let available = HostRoot::live().read("proc/sys/net/ipv4/tcp_available_congestion_control");
        let available = available.unwrap_or_default();
        if available.split_whitespace().any(|other| other == name) {
            return Ok(());
        }
        let message = format!(
            "congestion control {name} is not loaded on that host, and over TLS none is loaded by name: there are {}; \
             `modprobe tcp_{name}` there may add it",
            available.split_whitespace().collect::<Vec<_>>().join(", ")
        );
        Err(Failure { kind: FailureKind::Invalid, message })
    }

    /// Opens a server of RDMA measurements, for connections that carry the cookie
    /// and come from the controller.
    fn rdma_serve(
        &mut self,
        address: IpAddr,
        cookie: Option<Cookie>,
        peer: Option<IpAddr>,
    ) -> Result<Reply, Failure> {
        let invalid = |message: &str| Failure { kind: FailureKind::Invalid, message: message.to_owned() };
        let cookie = cookie.ok_or_else(|| {
            invalid("`rdma-serve` came without a cookie: install the version of this host on the controller")
        })?;
        let cookie = clearstream_control::encoding::from_hex(&cookie.0)
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| invalid("the cookie of `rdma-serve` is not 16 bytes in hexadecimal"))?;
        let peer = match (self.controller, peer) {
            (Some(own), Some(other)) if own.to_canonical() != other.to_canonical() => {
                let message =
                    format!("`rdma-serve` for {other}: the tests of a paired controller come from it, {own}");
                return Err(Failure { kind: FailureKind::Forbidden, message });
            }
            (Some(own), _) => own,
            (None, Some(peer)) => peer,
            (None, None) => return Err(invalid("`rdma-serve` names no address that its tests come from")),
        };
        let server = BackgroundServer::open(address, ExpectedPeer { cookie, address: peer })
            .map_err(|error| Failure { kind: FailureKind::InUse, message: error.to_string() })?;
        let address = server.address();
        self.rdma = Some(server);
        Ok(Reply::RdmaListening { address })
    }

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
