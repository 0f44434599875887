//! Terminate errors: every layer, type and code defined by the RFCs.

/// Error of a Terminate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// RDMAP: local catastrophic error.
    RdmapCatastrophic,
    /// RDMAP, remote protection: invalid STag.
    ProtectionStag,
    /// RDMAP, remote protection: base or bounds violation.
    ProtectionBounds,
    /// RDMAP, remote protection: access rights violation.
    ProtectionAccess,
    /// RDMAP, remote protection: STag not associated with the stream.
    ProtectionNotAssociated,
    /// RDMAP, remote protection: tagged offset wraps.
    ProtectionWrap,
    /// RDMAP, remote protection: STag cannot be invalidated.
    ProtectionInvalidate,
    /// RDMAP, remote protection: unspecified.
    ProtectionUnspecified,
    /// RDMAP, remote operation: invalid version.
    RdmapVersion,
    /// RDMAP, remote operation: unexpected opcode.
    UnexpectedOpcode,
    /// RDMAP, remote operation: catastrophic error of this stream.
    OperationStream,
    /// RDMAP, remote operation: catastrophic error of all streams.
    OperationGlobal,
    /// RDMAP, remote operation: STag cannot be invalidated.
    OperationInvalidate,
    /// RDMAP, remote operation: unspecified.
    OperationUnspecified,
    /// DDP: local catastrophic error.
    DdpCatastrophic,
    /// DDP, tagged: invalid STag.
    TaggedStag,
    /// DDP, tagged: base or bounds violation.
    TaggedBounds,
    /// DDP, tagged: STag not associated with the stream.
    TaggedNotAssociated,
    /// DDP, tagged: tagged offset wraps.
    TaggedWrap,
    /// DDP, tagged: invalid version.
    TaggedVersion,
    /// DDP, untagged: invalid queue number.
    UntaggedQueue,
    /// DDP, untagged: invalid MSN, no buffer available.
    UntaggedNoBuffer,
    /// DDP, untagged: invalid MSN, out of range.
    UntaggedMsn,
    /// DDP, untagged: invalid message offset.
    UntaggedOffset,
    /// DDP, untagged: message too long for the buffer.
    UntaggedTooLong,
    /// DDP, untagged: invalid version.
    UntaggedVersion,
    /// MPA: TCP connection closed, terminated or lost.
    MpaConnectionLost,
    /// MPA: CRC does not match.
    MpaCrc,
    /// MPA: markers and lengths disagree on the beginning of an FPDU.
    MpaMarker,
    /// MPA: invalid Request or Reply.
    MpaInvalidSetup,
    /// MPA: local catastrophic error.
    MpaCatastrophic,
    /// MPA: too few outstanding Reads.
    MpaInsufficientIrd,
    /// MPA: no matching RTR option.
    MpaNoMatchingRtr,
    /// Error that is not defined in the RFCs.
    Unknown {
        /// Layer.
        layer: u8,
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
    },
}

/// Layer, type and code of each: RDMAP's from RFC 5040, section 4.8; DDP's from
/// RFC 5041, section 7.2; MPA's from RFC 5044, section 8 and RFC 6581, section
/// 8.
const TABLE: [(ErrorCode, [u8; 3]); 33] = [
    (ErrorCode::RdmapCatastrophic, [0, 0, 0x00]),
    (ErrorCode::ProtectionStag, [0, 1, 0x00]),
    (ErrorCode::ProtectionBounds, [0, 1, 0x01]),
    (ErrorCode::ProtectionAccess, [0, 1, 0x02]),
    (ErrorCode::ProtectionNotAssociated, [0, 1, 0x03]),
    (ErrorCode::ProtectionWrap, [0, 1, 0x04]),
    (ErrorCode::ProtectionInvalidate, [0, 1, 0x09]),
    (ErrorCode::ProtectionUnspecified, [0, 1, 0xff]),
    (ErrorCode::RdmapVersion, [0, 2, 0x05]),
    (ErrorCode::UnexpectedOpcode, [0, 2, 0x06]),
    (ErrorCode::OperationStream, [0, 2, 0x07]),
    (ErrorCode::OperationGlobal, [0, 2, 0x08]),
    (ErrorCode::OperationInvalidate, [0, 2, 0x09]),
    (ErrorCode::OperationUnspecified, [0, 2, 0xff]),
    (ErrorCode::DdpCatastrophic, [1, 0, 0x00]),
    (ErrorCode::TaggedStag, [1, 1, 0x00]),
    (ErrorCode::TaggedBounds, [1, 1, 0x01]),
    (ErrorCode::TaggedNotAssociated, [1, 1, 0x02]),
    (ErrorCode::TaggedWrap, [1, 1, 0x03]),
    (ErrorCode::TaggedVersion, [1, 1, 0x04]),
    (ErrorCode::UntaggedQueue, [1, 2, 0x01]),
    (ErrorCode::UntaggedNoBuffer, [1, 2, 0x02]),
    (ErrorCode::UntaggedMsn, [1, 2, 0x03]),
    (ErrorCode::UntaggedOffset, [1, 2, 0x04]),
    (ErrorCode::UntaggedTooLong, [1, 2, 0x05]),
    (ErrorCode::UntaggedVersion, [1, 2, 0x06]),
    (ErrorCode::MpaConnectionLost, [2, 0, 0x01]),
    (ErrorCode::MpaCrc, [2, 0, 0x02]),
    (ErrorCode::MpaMarker, [2, 0, 0x03]),
    (ErrorCode::MpaInvalidSetup, [2, 0, 0x04]),
    (ErrorCode::MpaCatastrophic, [2, 0, 0x05]),
    (ErrorCode::MpaInsufficientIrd, [2, 0, 0x06]),
    (ErrorCode::MpaNoMatchingRtr, [2, 0, 0x07]),
];

impl ErrorCode {
    /// Returns layer, type and code.
    #[must_use]
    pub fn numbers(self) -> [u8; 3] {
        if let Self::Unknown { layer, kind, code } = self {
            return [layer, kind, code];
        }
        // All other variants are in the table, as a test verifies.
        TABLE.iter().find(|(error, _)| *error == self).map_or([0, 0, 0], |(_, numbers)| *numbers)
    }

    /// Returns the error with these numbers.
    #[must_use]
    pub fn from_numbers(numbers: [u8; 3]) -> Self {
        let [layer, kind, code] = numbers;
        // RFC 5040, section 4.8: a local catastrophic error has no code.
        let key = if layer < 2 && kind == 0 { [layer, 0, 0] } else { numbers };
        TABLE
            .iter()
            .find(|(_, numbers)| *numbers == key)
            .map_or(Self::Unknown { layer, kind, code }, |(error, _)| *error)
    }

    /// Iterates over every error that the RFCs define.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(error, _)| *error)
    }
}
