//! What a Request and a Reply agree on, as functions of both.

use super::MpaError;
use super::setup::{Enhanced, Kind, NOT_NEGOTIATED, SetupFrame};

/// The ready-to-receive messages that a side is willing to use (RFC 6581,
/// section 9.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtrKinds {
    /// A zero-length Send.
    pub send: bool,
    /// A zero-length Write.
    pub write: bool,
    /// A zero-length Read.
    pub read: bool,
}

/// The message with which the initiator makes the responder ready to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// A zero-length Send.
    Send,
    /// A zero-length Write.
    Write,
    /// A zero-length Read.
    Read,
}

/// What one side wants and can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Wants markers in what it receives.
    pub markers: bool,
    /// Wants CRCs.
    pub crc: bool,
    /// Offers to take FPDUs larger than a TCP segment, in the bit that Linux'
    /// siw uses for it; other peers ignore it.
    pub large_fpdus: bool,
    /// The highest revision to speak, 1 or 2.
    pub revision: u8,
    /// Reads of the peer's served at once.
    pub ird: u16,
    /// Reads outstanding at most.
    pub ord: u16,
    /// Set up peer-to-peer, with these messages; revision 2 only.
    pub peer_to_peer: Option<RtrKinds>,
    /// The consumer's.
    pub private_data: Vec<u8>,
}

/// What both sides keep to from the first FPDU on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// CRCs are sent and checked.
    pub crc: bool,
    /// Markers in what this side sends.
    pub markers_out: bool,
    /// Markers in what it receives.
    pub markers_in: bool,
    /// The peer takes FPDUs larger than a TCP segment.
    pub large_fpdus: bool,
    /// Of the set-up.
    pub revision: u8,
    /// Reads of the peer's that this side must serve at once.
    pub ird: u16,
    /// Reads that it may have outstanding.
    pub ord: u16,
    /// The initiator's first message, if the set-up was peer-to-peer.
    pub rtr: Option<Rtr>,
    /// This side sent the Request.
    pub initiator: bool,
}

impl RtrKinds {
    /// All three.
    pub const ALL: Self = Self { send: true, write: true, read: true };

    fn and(self, other: Self) -> Self {
        Self {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }

    /// A Write costs least and changes nothing at the responder; a Read takes a
    /// round trip; a Send takes a receive away from the responder's consumer.
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

/// The Request that makes an offer.
#[must_use]
pub fn initiate(offer: &Offer) -> SetupFrame {
    SetupFrame {
        kind: Kind::Request,
        markers: offer.markers,
        crc: offer.crc,
        reject: false,
        large_fpdus: offer.large_fpdus,
        revision: offer.revision,
        enhanced: (offer.revision >= 2).then(|| Enhanced::new(offer.ird, offer.ord, offer.peer_to_peer)),
        private_data: offer.private_data.clone(),
    }
}

/// What the responder answers, and what then holds for it.
///
/// # Errors
///
/// The request can not be accepted; with the Reply that says so, or nothing
/// where the standard wants the connection closed.
pub fn respond(
    offer: &Offer,
    request: &SetupFrame,
) -> Result<(SetupFrame, Agreed), (Option<SetupFrame>, MpaError)> {
    if request.reject {
        return Err((None, MpaError::RejectInRequest));
    }
    // RFC 5044, section 7.1.1 (Rev): a receiver that can not interoperate with
    // the revision closes the connection. Revision 0 is that of the RDMA
    // Consortium, whose DDP and RDMAP have other versions too (appendix C).
    if request.revision == 0 || request.revision > offer.revision.min(2) {
        return Err((None, MpaError::Revision { revision: request.revision }));
    }
    let mut agreed = Agreed {
        // Section 7.1.1 (C): CRCs are used if either side wants them.
        crc: offer.crc || request.crc,
        // Section 7.1.1 (M): each side says what it wants to receive.
        markers_out: request.markers,
        markers_in: offer.markers,
        large_fpdus: offer.large_fpdus && request.large_fpdus,
        revision: request.revision,
        ird: offer.ird,
        ord: offer.ord,
        rtr: None,
        initiator: false,
    };
    let enhanced = request.enhanced.map(|asked| answer(offer, &asked, &mut agreed));
    let reply = SetupFrame {
        kind: Kind::Reply,
        markers: offer.markers,
        // Linux' siw goes by the Reply alone, so the Reply tells the result.
        crc: agreed.crc,
        reject: false,
        large_fpdus: agreed.large_fpdus,
        revision: request.revision,
        enhanced,
        private_data: offer.private_data.clone(),
    };
    Ok((reply, agreed))
}

/// The responder's half of the enhanced negotiation (RFC 6581, sections 9.1
/// and 9.2).
fn answer(offer: &Offer, asked: &Enhanced, agreed: &mut Agreed) -> Enhanced {
    // Each side's ORD ends no higher than the other's IRD. What the initiator
    // does not negotiate is not answered with a number either.
    agreed.ird = lower(offer.ird, asked.ord);
    agreed.ord = lower(offer.ord, asked.ird);
    let told = |asked: u16, agreed: u16| if asked == NOT_NEGOTIATED { NOT_NEGOTIATED } else { agreed };
    let kinds = offer.peer_to_peer.filter(|_| asked.peer_to_peer).map(|ours| {
        // With no kind in common the reply proposes what would do here; the
        // initiator then ends with "no matching RTR option".
        agreed.rtr = ours.and(asked.kinds()).best().or(ours.best());
        RtrKinds {
            send: agreed.rtr == Some(Rtr::Send),
            write: agreed.rtr == Some(Rtr::Write),
            read: agreed.rtr == Some(Rtr::Read),
        }
    });
    Enhanced::new(told(asked.ord, agreed.ird), told(asked.ird, agreed.ord), kinds)
}

/// What one side can do and the other asks for; 0x3fff asks for nothing.
fn lower(can: u16, asked: u16) -> u16 {
    if asked == NOT_NEGOTIATED { can } else { can.min(asked) }
}

/// What holds for the initiator once it has the Reply to its Request.
///
/// # Errors
///
/// The responder rejected, or answers what was not asked. After
/// [`MpaError::InsufficientIrd`] and [`MpaError::NoMatchingRtr`] a Terminate
/// says so to the responder, who believes in the connection (RFC 6581,
/// sections 9.1 and 9.2).
pub fn conclude(offer: &Offer, reply: &SetupFrame) -> Result<Agreed, MpaError> {
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
    let mut agreed = Agreed {
        crc: offer.crc || reply.crc,
        markers_out: reply.markers,
        markers_in: offer.markers,
        large_fpdus: offer.large_fpdus && reply.large_fpdus,
        revision: reply.revision,
        ird: offer.ird,
        ord: offer.ord,
        rtr: None,
        initiator: true,
    };
    if let Some(told) = &reply.enhanced {
        if told.ord != NOT_NEGOTIATED && told.ord > offer.ird {
            return Err(MpaError::InsufficientIrd { wanted: told.ord, have: offer.ird });
        }
        agreed.ird = lower(offer.ird, told.ord);
        agreed.ord = lower(offer.ord, told.ird);
        // Without bit A in the Reply the set-up is client and server after all.
        if let Some(ours) = offer.peer_to_peer.filter(|_| told.peer_to_peer) {
            agreed.rtr = Some(ours.and(told.kinds()).best().ok_or(MpaError::NoMatchingRtr)?);
        }
    }
    Ok(agreed)
}

/// The Reply that rejects a Request, with the consumer's private data.
#[must_use]
pub fn refuse(request: &SetupFrame, private_data: Vec<u8>) -> SetupFrame {
    SetupFrame {
        kind: Kind::Reply,
        markers: false,
        crc: request.crc,
        reject: true,
        large_fpdus: false,
        revision: request.revision,
        enhanced: request.enhanced.map(|_| Enhanced::default()),
        private_data,
    }
}
