//! Small Writes that are held for the post that follows.
//!
//! Programs often post a Write of data and then a Send that announces it, in
//! two calls; rsockets do for each message on iWARP. Two system calls here and
//! two wake-ups at the peer become one if the Write is sent with the Send.
//!
//! Rule: a Write of at most [`HELD_BYTES`], posted alone, is held if the small
//! Writes before it were followed by a post before anything else happened to
//! the connection ([`Predictor`]). It is sent
//! - with the next post;
//! - by the next poll of its completion queue that polls the sockets, by arming
//!   the queue, by a change of the queue pair's state;
//! - by the helper of adaptive progress, at its second tick at the latest
//!   ([`Ticks`](crate::rnic::ticks::Ticks)): such a Write was held in vain, or
//!   another thread made a turn at that poll. Without a helper none is held.
//!
//! This is within the guarantees of RDMA: a Write is visible at the peer when a
//! later message has been received (RFC 5040, section 5.5).

/// Largest Write that is held, in bytes.
pub(super) const HELD_BYTES: usize = 16 << 10;

/// Score from which on Writes are held, at first.
const SCORE_MIN: u32 = 8;
/// Upper limit of that score.
const SCORE_LIMIT: u32 = 4096;

/// What to do with posted requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Send,
    Hold,
    /// Send, and start the helper's ticks, so that the next ones can be held.
    SendAndTick,
}

/// Whether a small Write will be followed by a post, from those before it.
#[derive(Debug)]
pub(super) struct Predictor {
    /// A small Write was posted alone, and nothing has happened since.
    last: bool,
    /// It is held.
    held: bool,
    /// It was held at a tick.
    ticked: bool,
    score: u32,
    /// Score from which on Writes are held.
    needed: u32,
}

impl Predictor {
    pub(super) fn new() -> Self {
        Self { last: false, held: false, ticked: false, score: 0, needed: SCORE_MIN }
    }

    /// Requests were posted: one small Write if `small`. `ticking` is whether
    /// the helper ticks, `None` without a helper.
    pub(super) fn posted(&mut self, small: bool, ticking: Option<bool>) -> Decision {
        if self.last {
            self.score = (self.score + 1).min(2 * self.needed);
        }
        // What follows a held Write is sent with it, even if it could be held
        // itself: bytes wait for one post only.
        self.last = small && !self.held;
        self.held = false;
        match ticking {
            Some(true) if self.last && self.score >= self.needed => {
                (self.held, self.ticked) = (true, false);
                Decision::Hold
            }
            // Where messages are so rare that the ticks end before the next
            // one, not each of them is to wake the helper.
            Some(false) if self.last && self.score >= self.needed => {
                self.score = self.needed / 2;
                Decision::SendAndTick
            }
            _ => Decision::Send,
        }
    }

    /// The connection is driven otherwise: by a poll, an event, a change of
    /// state.
    pub(super) fn driven(&mut self) {
        if std::mem::take(&mut self.last) {
            self.score /= 2;
        }
        self.held = false;
    }

    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// Helper, at a tick: whether a Write is held since the tick before. It is
    /// late, and is to be sent: more pairs are needed until the next is held.
    pub(super) fn is_late(&mut self) -> bool {
        if !self.held || !std::mem::replace(&mut self.ticked, true) {
            return false;
        }
        (self.last, self.held) = (false, false);
        self.needed = (2 * self.needed).min(SCORE_LIMIT);
        self.score = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKING: Option<bool> = Some(true);

    /// Posts `count` pairs of a small Write and a Send; returns the number of
    /// Writes that were held.
    fn pairs(predictor: &mut Predictor, count: u32) -> u32 {
        let mut held = 0;
        for _ in 0..count {
            held += u32::from(predictor.posted(true, TICKING) == Decision::Hold);
            assert_eq!(predictor.posted(false, TICKING), Decision::Send, "a Send is never held");
            assert!(!predictor.is_held());
        }
        held
    }

    #[test]
    fn writes_are_held_once_enough_were_followed_by_a_post() {
        let mut predictor = Predictor::new();
        assert_eq!(pairs(&mut predictor, SCORE_MIN), 0);
        assert_eq!(pairs(&mut predictor, 10), 10);
        assert_eq!(predictor.posted(true, None), Decision::Send, "no helper");
    }

    #[test]
    fn the_helper_is_woken_once_for_some_pairs() {
        let mut predictor = Predictor::new();
        pairs(&mut predictor, SCORE_MIN);
        let mut woken = 0;
        for _ in 0..SCORE_MIN * 2 {
            woken += u32::from(predictor.posted(true, Some(false)) == Decision::SendAndTick);
            predictor.posted(false, Some(false));
        }
        assert_eq!(woken, 4);
    }

    #[test]
    fn a_write_that_follows_a_held_one_is_sent_with_it() {
        let mut predictor = Predictor::new();
        pairs(&mut predictor, 100);
        for _ in 0..10 {
            assert_eq!(predictor.posted(true, TICKING), Decision::Hold);
            assert_eq!(predictor.posted(true, TICKING), Decision::Send);
        }
    }

    #[test]
    fn writes_followed_by_polls_are_not_held() {
        let mut predictor = Predictor::new();
        for _ in 0..100 {
            assert_eq!(predictor.posted(true, TICKING), Decision::Send);
            predictor.driven();
        }
        // The score is at its limit, twice what is needed: one in between does
        // not end it, the second does.
        pairs(&mut predictor, 100);
        for expected in [Decision::Hold, Decision::Hold, Decision::Send] {
            assert_eq!(predictor.posted(true, TICKING), expected);
            predictor.driven();
            assert!(!predictor.is_held());
        }
    }

    #[test]
    fn each_late_write_doubles_the_number_of_pairs_until_the_next_one_is_held() {
        let mut predictor = Predictor::new();
        for needed in [8, 16, 32, 64] {
            assert_eq!(pairs(&mut predictor, needed), 0);
            assert_eq!(predictor.posted(true, TICKING), Decision::Hold);
            assert!(!predictor.is_late(), "held since this tick");
            assert!(predictor.is_held());
            assert!(predictor.is_late());
            assert!(!predictor.is_held());
        }
        for _ in 0..20 {
            pairs(&mut predictor, 2 * SCORE_LIMIT);
            predictor.posted(true, TICKING);
            assert!(!predictor.is_late() && predictor.is_late());
        }
        assert_eq!(pairs(&mut predictor, SCORE_LIMIT + 1), 1, "it is not given up");
    }
}
