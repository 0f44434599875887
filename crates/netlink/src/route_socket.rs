//! A blocking rtnetlink socket: one request, its replies, the acknowledgement.

use std::{fmt, io};

use clearstream_schema::{control::FailureKind, failure::Classified};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable, Parseable,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::{
    names::Names,
    refusal::{Refusal, request_explanations},
};

/// Maximum attempts at a dump that changed while the kernel wrote it.
const DUMP_COUNT: usize = 20;

/// A failed rtnetlink request.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The socket itself failed.
    #[error("rtnetlink: cannot {step}: {source}")]
    Socket {
        /// The failed operation.
        step: &'static str,
        /// System error.
        source: io::Error,
    },
    /// The socket for state of sockets failed.
    #[error("sock_diag: cannot {step}: {source}")]
    Diagnostics {
        /// The failed operation.
        step: &'static str,
        /// System error.
        source: io::Error,
    },
    /// The kernel rejected a request.
    #[error("cannot {action}: {source}")]
    Refused {
        /// The requested action, with the names in it.
        action: String,
        /// The kernel's error number and explanation.
        source: Refusal,
    },
    /// There is no interface of this name in the namespace.
    #[error("there is no interface \"{name}\"")]
    NoInterface {
        /// Name.
        name: String,
    },
    /// Something that this crate does not set.
    #[error("{subject} cannot be set: {reason}")]
    Unfit {
        /// Subject, for messages.
        subject: String,
        /// Cause.
        reason: String,
    },
    /// A reply that is not in the documented format.
    #[error("rtnetlink: a reply of the kernel could not be parsed: {0}")]
    Garbled(String),
}

impl Classified for NetlinkError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::NoInterface { .. } => FailureKind::Name,
            // A kernel that replies otherwise than documented.
            Self::Garbled(_)
            | Self::Socket { .. }
            | Self::Diagnostics { .. }
            | Self::Refused { .. }
            | Self::Unfit { .. } => FailureKind::Unsupported,
        }
    }
}

impl NetlinkError {
    /// The error number of a rejection.
    pub fn refused_with(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// An rtnetlink socket in the network namespace of the thread that opened it; it stays in that namespace in
/// any thread.
#[derive(Debug)]
pub struct RouteSocket {
    socket: Socket,
    sequence: u32,
    /// Kept between requests by a user that reads them again and again.
    pub(crate) names: Option<Names>,
}

impl RouteSocket {
    /// Opens the socket.
    pub fn open() -> Result<Self, NetlinkError> {
        let fail = |step| move |source| NetlinkError::Socket { step, source };
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(fail("open a socket"))?;
        socket.bind_auto().map_err(fail("bind"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(fail("connect to the kernel"))?;
        request_explanations(&mut socket);
        Ok(Self { socket, sequence: 0, names: None })
    }

    /// Sends a change and waits for its acknowledgement. `flags` are `NLM_F_CREATE` and the like; `action`
    /// describes it in errors.
    pub(crate) fn change<M: Message>(
        &mut self,
        message: M,
        flags: u16,
        action: impl FnOnce() -> String,
    ) -> Result<(), NetlinkError> {
        self.query(message, flags, action).map(|_| ())
    }

    /// Sends a request for one object.
    pub(crate) fn query<M: Message>(
        &mut self,
        message: M,
        flags: u16,
        action: impl FnOnce() -> String,
    ) -> Result<Vec<M>, NetlinkError> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags)
            .map(|replies| replies.messages)
            .map_err(|error| name_rejection(error, action))
    }

    /// Requests a dump, and repeats it when it changed meanwhile (`NLM_F_DUMP_INTR`): such a dump may miss
    /// entries.
    pub(crate) fn dump<M: Message>(
        &mut self,
        message: M,
        action: impl FnOnce() -> String,
    ) -> Result<Vec<M>, NetlinkError> {
        for _ in 0..DUMP_COUNT {
            match self.exchange(message.clone(), NLM_F_REQUEST | NLM_F_DUMP) {
                Ok(replies) if replies.is_torn => {}
                Ok(replies) => return Ok(replies.messages),
                Err(error) => return Err(name_rejection(error, action)),
            }
        }
        Err(NetlinkError::Refused { action: action(), source: Refusal::of(rustix::io::Errno::INTR) })
    }

    /// A dump of which the kernel leaves out what does not match the header of the request (`NETLINK_GET_STRICT_CHK`,
    /// Linux 4.20).
    pub(crate) fn dump_matching<M: Message>(
        &mut self,
        message: M,
        action: impl FnOnce() -> String,
    ) -> Result<Vec<M>, NetlinkError> {
        let fail = |source| NetlinkError::Socket { step: "have dumps filtered", source };
        self.socket.set_netlink_get_strict_chk(true).map_err(fail)?;
        let replies = self.dump(message, action);
        self.socket.set_netlink_get_strict_chk(false).map_err(fail)?;
        replies
    }

    fn exchange<M: Message>(&mut self, message: M, flags: u16) -> Result<Replies<M>, NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map_err(|source| NetlinkError::Socket { step: "send", source })?;
        let mut replies = Replies { messages: Vec::new(), is_torn: false };
        loop {
            let (datagram, _) = self
                .socket
                .recv_from_full()
                .map_err(|source| NetlinkError::Socket { step: "receive", source })?;
            if self.parse(&datagram, &bytes, &mut replies)? {
                return Ok(replies);
            }
        }
    }

    /// Parses the messages of a datagram, replies to `request`; true when the exchange is complete.
    fn parse<M: Message>(
        &self,
        datagram: &[u8],
        request: &[u8],
        replies: &mut Replies<M>,
    ) -> Result<bool, NetlinkError> {
        let mut rest = datagram;
        while !rest.is_empty() {
            let garbled = |error: &dyn fmt::Display| NetlinkError::Garbled(error.to_string());
            let header = NetlinkHeader::parse(&NetlinkBuffer::new_checked(&rest).map_err(|e| garbled(&e))?)
                .map_err(|error| garbled(&error))?;
            let message = &rest[..header.length as usize];
            // Messages are aligned to four bytes (netlink(7), NLMSG_ALIGN).
            rest = rest.get(message.len().next_multiple_of(4)..).unwrap_or(&[]);
            if header.sequence_number != self.sequence {
                continue;
            }
            replies.is_torn |= header.flags & NLM_F_DUMP_INTR != 0;
            match Refusal::read(message, request) {
                Some(Ok(())) => return Ok(true),
                Some(Err(source)) => return Err(NetlinkError::Refused { action: String::new(), source }),
                None => {}
            }
            let parsed = NetlinkMessage::<M>::deserialize(message).map_err(|error| garbled(&error))?;
            if let NetlinkPayload::InnerMessage(inner) = parsed.payload {
                replies.messages.push(inner);
            }
        }
        Ok(false)
    }
}

/// Messages of rtnetlink, in both directions.
pub(crate) trait Message: NetlinkSerializable + NetlinkDeserializable + Clone {}

impl<M: NetlinkSerializable + NetlinkDeserializable + Clone> Message for M {}

struct Replies<M> {
    messages: Vec<M>,
    is_torn: bool,
}

fn name_rejection(error: NetlinkError, action: impl FnOnce() -> String) -> NetlinkError {
    match error {
        NetlinkError::Refused { source, .. } => NetlinkError::Refused { action: action(), source },
        other => other,
    }
}
