//! Message contents: generation and verification.

/// A received message that differs from what was sent.
#[derive(Debug, thiserror::Error)]
#[error("message {message} of {size} bytes: byte {position} is {found:#04x} instead of {expected:#04x}")]
pub struct Damage {
    /// Number of the message within its size.
    pub message: u64,
    /// Message size.
    pub size: usize,
    /// Position of the first byte that differs.
    pub position: usize,
    /// Received value.
    pub found: u8,
    /// Expected value.
    pub expected: u8,
}

/// Messages of one size in both directions of one side.
#[derive(Debug)]
pub struct Traffic {
    /// Side whose pattern is sent; `None` without verification.
    side: Option<u8>,
    sent: u64,
    received: u64,
}

/// Writes the bytes of a message from a position on. They differ by side, message and position, so that a message of
/// the wrong side, order or offset is detected.
fn write(side: u8, message: u64, from: usize, places: &mut [u8]) {
    let of_message = message.rotate_left(32) ^ u64::from(side) << 63;
    // No iterators: without optimisation, as in tests, each byte would cost several calls.
    let (mut at, count) = (0, places.len());
    while at < count {
        let position = (from + at) as u64;
        places[at] = ((position ^ of_message).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        at += 1;
    }
}

/// Bytes that are compared at once.
const BLOCK: usize = 4096;

impl Traffic {
    /// Without verification of contents.
    pub fn plain() -> Self {
        Self { side: None, sent: 0, received: 0 }
    }

    /// Sends the pattern of this side (0 or 1), and expects that of the other.
    pub fn verified(side: u8) -> Self {
        Self { side: Some(side), ..Self::plain() }
    }

    /// Returns the number of messages received.
    pub fn received_count(&self) -> u64 {
        self.received
    }

    /// Generates the next message to send.
    #[inline]
    pub fn fill(&mut self, message: &mut [u8]) {
        if let Some(side) = self.side {
            write(side, self.sent, 0, message);
        }
        self.sent += 1;
    }

    /// Counts a received message, and compares its contents with verification.
    ///
    /// # Errors
    /// [`Damage`] with the first byte that differs.
    #[inline]
    pub fn check(&mut self, message: &[u8]) -> Result<(), Damage> {
        let number = self.received;
        self.received += 1;
        let Some(side) = self.side else { return Ok(()) };
        let mut expected = [0; BLOCK];
        for (number_of_block, found) in message.chunks(BLOCK).enumerate() {
            let from = number_of_block * BLOCK;
            let expected = &mut expected[..found.len()];
            write(side ^ 1, number, from, expected);
            if found != expected {
                let differs = |(found, expected): (&u8, &u8)| found != expected;
                let at = found.iter().zip(expected.iter()).position(differs).unwrap_or_default();
                return Err(Damage {
                    message: number,
                    size: message.len(),
                    position: from + at,
                    found: found[at],
                    expected: expected[at],
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn another_side_order_or_offset_is_found() {
        let (mut one, mut message) = (Traffic::verified(0), vec![0; 64]);
        one.fill(&mut message);
        Traffic::verified(1).check(&message).unwrap();
        assert!(Traffic::verified(0).check(&message).is_err(), "its own message");
        assert!(Traffic::verified(1).check(&message[1..]).is_err(), "a byte late");
        one.fill(&mut message);
        assert!(Traffic::verified(1).check(&message).is_err(), "the second one first");
    }

    proptest! {
        #[test]
        fn a_changed_byte_is_named(size in 1usize..3 * BLOCK, at in any::<prop::sample::Index>(), by in 1u8..) {
            let mut message = vec![0; size];
            Traffic::verified(1).fill(&mut message);
            let place = at.index(size);
            message[place] ^= by;
            let error = Traffic::verified(0).check(&message).unwrap_err();
            let found_there = error.position == place && error.message == 0;
            prop_assert!(found_there, "{error}");
            Traffic::plain().check(&message).unwrap();
        }
    }
}
