//! Hostile bytes, as a property test; the fuzz target `iwarp_queue_pair` runs
//! the same code.

use proptest::prelude::*;

use crate::queue_pair::hostile_peer::run;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_bytes_stay_outside(data in prop::collection::vec(any::<u8>(), 0..1500)) {
        run(&data);
    }
}
