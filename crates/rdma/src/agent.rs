//! The server of RDMA measurements inside an agent: it opens for one controller,
//! whose connections carry a cookie.

use std::net::{IpAddr, SocketAddr};

use clearstream_control::{Call, CallContext, Registration, Service, encoding};
use clearstream_schema::{
    control::{Cookie, Failure, FailureKind},
    scope::Right,
};
use serde::{Deserialize, Serialize};

use crate::{BackgroundServer, ExpectedPeer};

/// Opens a server of RDMA measurements, until the session ends. Only connections from
/// `peer` whose private data carries the cookie are served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serve {
    /// Address to listen on.
    pub address: IpAddr,
    /// Cookie of the tests; without one nothing is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<Cookie>,
    /// Address that the tests come from: over TLS the controller's own, which
    /// it is when absent; required on standard streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
}

impl Call for Serve {
    const NAME: &'static str = "rdma-serve";
    const NEEDS: Right = Right::Measure;
    type Reply = Listening;
}

/// Where RDMA tests may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Address and port.
    pub address: SocketAddr,
}

/// Keeps what is open for a session's tests.
#[derive(Debug, Default)]
pub struct RdmaAgent {
    server: Option<BackgroundServer>,
}

impl Service for RdmaAgent {
    fn register(calls: &mut Registration<Self>) {
        calls.on(Self::serve);
    }
}

impl RdmaAgent {
    fn serve(&mut self, call: Serve, context: &CallContext<'_>) -> Result<Listening, Failure> {
        let invalid = |message: &str| Failure { kind: FailureKind::Invalid, message: message.to_owned() };
        let cookie = call.cookie.ok_or_else(|| {
            invalid("`rdma-serve` came without a cookie: install the version of this host on the controller")
        })?;
        let cookie = encoding::from_hex(&cookie.0)
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| invalid("the cookie of `rdma-serve` is not 16 bytes in hexadecimal"))?;
        let controller = context.controller().map(|controller| controller.address.ip());
        let peer = match (controller, call.peer) {
            (Some(own), Some(other)) if own.to_canonical() != other.to_canonical() => {
                let message =
                    format!("`rdma-serve` for {other}: the tests of a paired controller come from it, {own}");
                return Err(Failure { kind: FailureKind::Forbidden, message });
            }
            (Some(own), _) => own,
            (None, Some(peer)) => peer,
            (None, None) => return Err(invalid("`rdma-serve` names no address that its tests come from")),
        };
        let server = BackgroundServer::open(call.address, ExpectedPeer { cookie, address: peer })
            .map_err(|error| Failure { kind: FailureKind::InUse, message: error.to_string() })?;
        let address = server.address();
        self.server = Some(server);
        Ok(Listening { address })
    }
}
