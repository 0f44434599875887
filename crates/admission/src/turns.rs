//! A place that only one may have at a time: an address that wasted it comes after others. No I/O and no clock.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use crate::Source;

/// Sources that are remembered at most; then the one that waits least is forgotten.
const REMEMBERED: usize = 1024;

/// Who has to let others come first.
#[derive(Debug, Default)]
pub struct Turns(HashMap<Source, Instant>);

impl Turns {
    /// The client at this address had the place for so long and was ended for its silence: for as long again the
    /// place is others'. However often it returns, half of the time is left for them.
    pub fn wasted(&mut self, address: IpAddr, held: Duration, now: Instant) {
        self.0.retain(|_, until| now < *until);
        if self.0.len() >= REMEMBERED
            && let Some(first) = self.0.iter().min_by_key(|(_, until)| **until).map(|(source, _)| *source)
        {
            self.0.remove(&first);
        }
        self.0.insert(address.into(), now + held);
    }

    /// Whether the place may be this address's.
    pub fn may_have(&self, address: IpAddr, now: Instant) -> bool {
        self.0.get(&address.into()).is_none_or(|until| *until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wasted_the_place_waits_as_long_and_others_do_not() {
        let (mut turns, start) = (Turns::default(), Instant::now());
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let held = Duration::from_secs(10);
        assert!(turns.may_have(one, start));
        turns.wasted(one, held, start);
        assert!(!turns.may_have(one, start + held / 2) && turns.may_have(other, start));
        assert!(turns.may_have(one, start + held));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut turns, start) = (Turns::default(), Instant::now());
        for number in 0..3 * REMEMBERED as u32 {
            turns.wasted(
                IpAddr::from(number.to_be_bytes()),
                Duration::from_secs(u64::from(number) + 1),
                start,
            );
        }
        assert_eq!(turns.0.len(), REMEMBERED);
        assert!(!turns.may_have(IpAddr::from((3 * REMEMBERED as u32 - 1).to_be_bytes()), start));
        turns.wasted(IpAddr::from([1, 2, 3, 4]), Duration::ZERO, start + Duration::from_secs(100_000));
        assert_eq!(turns.0.len(), 1, "what is over is forgotten");
    }
}
