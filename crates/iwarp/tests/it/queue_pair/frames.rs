//! FPDUs encoded by hand, from the figures of the RFCs.

/// CRC32C bit by bit (RFC 3720, appendix B.4: reflected polynomial 0x82f63b78).
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

/// RFC 5044, figure 3: length, ULPDU, pad, CRC.
pub(crate) fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut bytes = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(ulpdu);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Bits of the DDP control byte: version 1, and the flags.
pub(crate) const TAGGED: u8 = 0x81;
pub(crate) const UNTAGGED: u8 = 0x01;
pub(crate) const LAST: u8 = 0x40;
/// The RDMAP control byte of an opcode: version 1.
pub(crate) const RDMAP: u8 = 0x40;

/// RFC 5041, figure 3 followed by RFC 5040, figure 3.
pub(crate) fn tagged(ddp: u8, rdmap: u8, stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![ddp, rdmap];
    ulpdu.extend_from_slice(&stag.to_be_bytes());
    ulpdu.extend_from_slice(&offset.to_be_bytes());
    ulpdu.extend_from_slice(payload);
    ulpdu
}

/// RFC 5041, figure 4, with RDMAP's four bytes of a tag to invalidate.
pub(crate) fn untagged(ddp: u8, rdmap: u8, invalidate: u32, numbers: [u32; 3], payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![ddp, rdmap];
    ulpdu.extend_from_slice(&invalidate.to_be_bytes());
    for number in numbers {
        ulpdu.extend_from_slice(&number.to_be_bytes());
    }
    ulpdu.extend_from_slice(payload);
    ulpdu
}

/// A whole Write.
pub(crate) fn write(stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    tagged(TAGGED | LAST, RDMAP, stag, offset, payload)
}

/// A whole Send.
pub(crate) fn send(msn: u32, payload: &[u8]) -> Vec<u8> {
    untagged(UNTAGGED | LAST, RDMAP | 3, 0, [0, msn, 0], payload)
}

/// RFC 5040, figure 6.
pub(crate) fn read_body(sink: (u32, u64), length: u32, source: (u32, u64)) -> Vec<u8> {
    let mut body = sink.0.to_be_bytes().to_vec();
    body.extend_from_slice(&sink.1.to_be_bytes());
    body.extend_from_slice(&length.to_be_bytes());
    body.extend_from_slice(&source.0.to_be_bytes());
    body.extend_from_slice(&source.1.to_be_bytes());
    body
}

/// A whole Read Request.
pub(crate) fn read(msn: u32, body: &[u8]) -> Vec<u8> {
    untagged(UNTAGGED | LAST, RDMAP | 1, 0, [1, msn, 0], body)
}

/// RFC 7306, figure 5: a fetch and add of one.
pub(crate) fn fetch_add_body(identifier: u32, stag: u32, offset: u64) -> Vec<u8> {
    let mut body = 0_u32.to_be_bytes().to_vec();
    body.extend_from_slice(&identifier.to_be_bytes());
    body.extend_from_slice(&stag.to_be_bytes());
    body.extend_from_slice(&offset.to_be_bytes());
    body.extend_from_slice(&1_u64.to_be_bytes());
    body.resize(52, 0);
    body
}

/// A whole atomic request.
pub(crate) fn atomic(msn: u32, body: &[u8]) -> Vec<u8> {
    untagged(UNTAGGED | LAST, RDMAP | 10, 0, [1, msn, 0], body)
}

/// Returns the ULPDUs of a stream and checks their CRCs.
pub(crate) fn ulpdus(mut stream: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while !stream.is_empty() {
        let length = usize::from(u16::from_be_bytes([stream[0], stream[1]]));
        let padded = (2 + length).next_multiple_of(4);
        let crc = u32::from_le_bytes(stream[padded..padded + 4].try_into().unwrap());
        assert_eq!(crc, crc32c(&stream[..padded]), "CRC of an FPDU that was sent");
        all.push(stream[2..2 + length].to_vec());
        stream = &stream[padded + 4..];
    }
    all
}

/// Returns layer, type, code and what follows the Terminate control field (RFC
/// 5040, figure 9); the ULPDU must be the only one of its queue.
pub(crate) fn terminate(ulpdu: &[u8]) -> ([u8; 3], u8, Vec<u8>) {
    assert_eq!(ulpdu[..2], [UNTAGGED | LAST, RDMAP | 7], "a Terminate");
    assert_eq!(ulpdu[6..18], [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0], "queue 2, number 1, offset 0");
    let body = &ulpdu[18..];
    ([body[0] >> 4, body[0] & 0x0f, body[1]], body[2], body[4..].to_vec())
}
