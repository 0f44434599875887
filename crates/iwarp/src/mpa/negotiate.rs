//! Negotiation of connection parameters, as functions of Request and Reply.

use super::MpaError;
use super::setup::{Enhanced, Kind, NOT_NEGOTIATED, SetupFrame};

/// Ready-to-receive (RTR) messages that a side supports (RFC 6581, section
/// 9.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtrKinds {
    /// A zero-length Send.
    pub send: bool,
    /// A zero-length Write.
    pub write: bool,
    /// A zero-length Read.
    pub read: bool,
}

/// RTR message by which the initiator permits the responder to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// A zero-length Send.
    Send,
    /// A zero-length Write.
    Write,
    /// A zero-length Read.
    Read,
}

/// Parameters that one side offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Whether it requests markers in its incoming stream.
    pub markers: bool,
    /// Whether it requests CRCs.
    pub crc: bool,
    /// Whether it accepts FPDUs larger than a TCP segment, signalled in the
    /// reserved bit that Linux' siw uses; other peers ignore it.
    pub large_fpdus: bool,
    /// Whether it takes immediate data with Sends and Writes, signalled in a reserved bit; other peers ignore it.
    pub immediate_data: bool,
    /// Highest revision to use, 1 or 2.
    pub revision: u8,
    /// Maximum number of the peer's outstanding Reads (IRD).
    pub ird: u16,
    /// Maximum number of own outstanding Reads (ORD).
    pub ord: u16,
    /// Peer-to-peer setup with these RTR messages; revision 2 only.
    pub peer_to_peer: Option<RtrKinds>,
    /// Private data of the consumer.
    pub private_data: Vec<u8>,
}

/// Negotiated parameters, effective from the first FPDU on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Whether CRCs are sent and checked.
    pub crc: bool,
    /// Markers in the outgoing stream.
    pub markers_out: bool,
    /// Markers in the incoming stream.
    pub markers_in: bool,
    /// Whether the peer accepts FPDUs larger than a TCP segment.
    pub large_fpdus: bool,
    /// Whether both sides take immediate data with Sends and Writes.
    pub immediate_data: bool,
    /// Revision of the setup frames.
    pub revision: u8,
    /// Maximum number of the peer's outstanding Reads (IRD).
    pub ird: u16,
    /// Maximum number of own outstanding Reads (ORD).
    pub ord: u16,
    /// The initiator's RTR message, if the setup is peer-to-peer.
    pub rtr: Option<Rtr>,
    /// Whether this side sent the Request.
    pub initiator: bool,
}

impl RtrKinds {
    /// All three messages.
    pub const ALL: Self = Self { send: true, write: true, read: true };

    fn and(self, other: Self) -> Self {
        Self {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }

    /// Prefers a Write, which is cheapest and has no effect at the responder,
    /// then a Read, which takes a round trip, then a Send, which consumes a
    /// receive of the responder's consumer.
    fn best(self) -> Option<Rtr> {
        if self.write {
            Some(Rtr::Write)
        } else if self.read {
            Some(Rtr::Read)
        } else if self.send {
            Some(Rtr::Send)
        } else {
            None
        }
    }
}

impl Enhanced {
    fn kinds(&self) -> RtrKinds {
        RtrKinds { send: self.rtr_send, write: self.rtr_write, read: self.rtr_read }
    }

    fn new(ird: u16, ord: u16, peer_to_peer: Option<RtrKinds>) -> Self {
        let kinds = peer_to_peer.unwrap_or_default();
        Self {
            ird: ird.min(NOT_NEGOTIATED),
            ord: ord.min(NOT_NEGOTIATED),
            peer_to_peer: peer_to_peer.is_some(),
            rtr_send: kinds.send,
            rtr_write: kinds.write,
            rtr_read: kinds.read,
        }
    }
}

/// Returns the Request for an offer.
#[must_use]
pub fn initiate(offer: &Offer) -> SetupFrame {
    SetupFrame {
        kind: Kind::Request,
        markers: offer.markers,
        crc: offer.crc,
        reject: false,
        large_fpdus: offer.large_fpdus,
        ready: false,
        immediate_data: offer.immediate_data,
        revision: offer.revision,
        enhanced: (offer.revision >= 2).then(|| Enhanced::new(offer.ird, offer.ord, offer.peer_to_peer)),
        private_data: offer.private_data.clone(),
    }
}

/// Returns the responder's Reply and its negotiated parameters.
///
/// # Errors
///
/// The Request cannot be accepted; with the Reply to send, or none where the
/// standard requires the connection to be closed.
pub fn respond(
    offer: &Offer,
    request: &SetupFrame,
) -> Result<(SetupFrame, Negotiated), (Option<SetupFrame>, MpaError)> {
    if request.reject {
        return Err((None, MpaError::RejectInRequest));
    }
    // RFC 5044, section 7.1.1 (Rev): a receiver that cannot interoperate with
    // the revision closes the connection. Revision 0 is that of the RDMA
    // Consortium, whose DDP and RDMAP versions differ too (appendix C).
    if request.revision == 0 || request.revision > offer.revision.min(2) {
        return Err((None, MpaError::Revision { revision: request.revision }));
    }
    let mut negotiated = Negotiated {
        // Section 7.1.1 (C): CRCs are used if either side requests them.
        crc: offer.crc || request.crc,
        // Section 7.1.1 (M): each side requests markers for its incoming
        // stream.
        markers_out: request.markers,
        markers_in: offer.markers,
        large_fpdus: offer.large_fpdus && request.large_fpdus,
        immediate_data: offer.immediate_data && request.immediate_data,
        revision: request.revision,
        ird: offer.ird,
        ord: offer.ord,
        rtr: None,
        initiator: false,
    };
    let enhanced = request.enhanced.map(|requested| respond_enhanced(offer, &requested, &mut negotiated));
    let reply = SetupFrame {
        kind: Kind::Reply,
        markers: offer.markers,
        // Linux' siw evaluates only the Reply, so the Reply carries the result.
        crc: negotiated.crc,
        reject: false,
        large_fpdus: negotiated.large_fpdus,
        // Only to initiators that use a reserved bit themselves: to others it stays zero (RFC 5044, section 7.1.1, Res).
        ready: request.large_fpdus || request.immediate_data,
        immediate_data: negotiated.immediate_data,
        revision: request.revision,
        enhanced,
        private_data: offer.private_data.clone(),
    };
    Ok((reply, negotiated))
}

/// The responder's half of the enhanced negotiation (RFC 6581, sections 9.1
/// and 9.2).
fn respond_enhanced(offer: &Offer, requested: &Enhanced, negotiated: &mut Negotiated) -> Enhanced {
    // Each side's ORD is limited by the other's IRD. A value that the initiator
    // does not negotiate is not negotiated in the Reply either.
    negotiated.ird = lower(offer.ird, requested.ord);
    negotiated.ord = lower(offer.ord, requested.ird);
    let confirmed = |requested: u16, negotiated: u16| {
        if requested == NOT_NEGOTIATED { NOT_NEGOTIATED } else { negotiated }
    };
    let kinds = offer.peer_to_peer.filter(|_| requested.peer_to_peer).map(|ours| {
        // Without a common kind the Reply proposes one that this side supports;
        // the initiator then terminates with "no matching RTR option".
        negotiated.rtr = ours.and(requested.kinds()).best().or(ours.best());
        RtrKinds {
            send: negotiated.rtr == Some(Rtr::Send),
            write: negotiated.rtr == Some(Rtr::Write),
            read: negotiated.rtr == Some(Rtr::Read),
        }
    });
    Enhanced::new(confirmed(requested.ord, negotiated.ird), confirmed(requested.ird, negotiated.ord), kinds)
}

/// Limits a local value by the peer's; 0x3fff does not limit it.
fn lower(can: u16, requested: u16) -> u16 {
    if requested == NOT_NEGOTIATED { can } else { can.min(requested) }
}

/// Returns the initiator's negotiated parameters from the Reply to its Request.
///
/// # Errors
///
/// The responder rejected the connection, or its Reply is invalid. After
/// [`MpaError::InsufficientIrd`] and [`MpaError::NoMatchingRtr`] a Terminate
/// reports the error to the responder, which considers the connection
/// established (RFC 6581, sections 9.1 and 9.2).
pub fn conclude(offer: &Offer, reply: &SetupFrame) -> Result<Negotiated, MpaError> {
    if reply.revision != offer.revision {
        return Err(MpaError::OtherRevision { request: offer.revision, reply: reply.revision });
    }
    if reply.reject {
        return Err(MpaError::Rejected { private_data: reply.private_data.clone() });
    }
    // RFC 6581, section 6: an enhanced Request has an enhanced Reply.
    if reply.enhanced.is_some() != (offer.revision >= 2) {
        return Err(MpaError::Enhanced);
    }
    let mut negotiated = Negotiated {
        crc: offer.crc || reply.crc,
        markers_out: reply.markers,
        markers_in: offer.markers,
        large_fpdus: offer.large_fpdus && reply.large_fpdus,
        immediate_data: offer.immediate_data && reply.immediate_data && reply.ready,
        revision: reply.revision,
        ird: offer.ird,
        ord: offer.ord,
        rtr: None,
        initiator: true,
    };
    if let Some(confirmed) = &reply.enhanced {
        if confirmed.ord != NOT_NEGOTIATED && confirmed.ord > offer.ird {
            return Err(MpaError::InsufficientIrd { requested: confirmed.ord, available: offer.ird });
        }
        negotiated.ird = lower(offer.ird, confirmed.ord);
        negotiated.ord = lower(offer.ord, confirmed.ird);
        // Without bit A in the Reply the setup is client/server.
        if let Some(ours) = offer.peer_to_peer.filter(|_| confirmed.peer_to_peer) {
            negotiated.rtr = Some(ours.and(confirmed.kinds()).best().ok_or(MpaError::NoMatchingRtr)?);
        }
    }
    Ok(negotiated)
}

/// Returns the Reply that rejects a Request, with the consumer's private data.
#[must_use]
pub fn reject(request: &SetupFrame, private_data: Vec<u8>) -> SetupFrame {
    SetupFrame {
        kind: Kind::Reply,
        markers: false,
        crc: request.crc,
        reject: true,
        large_fpdus: false,
        ready: false,
        immediate_data: false,
        revision: request.revision,
        enhanced: request.enhanced.map(|_| Enhanced::default()),
        private_data,
    }
}
