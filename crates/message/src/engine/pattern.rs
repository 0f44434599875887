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

/// Returns a byte of a message. Differs by side, message and position, so that
/// a message of the wrong side, order or offset is detected.
fn byte(side: u8, message: u64, position: usize) -> u8 {
    let mixed = (position as u64 ^ message.rotate_left(32) ^ u64::from(side) << 63)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

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
            for (position, place) in message.iter_mut().enumerate() {
                *place = byte(side, self.sent, position);
            }
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
        let expected = |position| byte(side ^ 1, number, position);
        match message.iter().enumerate().find(|(position, found)| **found != expected(*position)) {
            None => Ok(()),
            Some((position, found)) => Err(Damage {
                message: number,
                size: message.len(),
                position,
                found: *found,
                expected: expected(position),
            }),
        }
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
        fn a_changed_byte_is_named(size in 1usize..2000, at in any::<prop::sample::Index>(), by in 1u8..) {
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
