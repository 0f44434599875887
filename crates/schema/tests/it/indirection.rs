//! Tests of `indirection`.

use clearstream_schema::indirection::{Indirection, entry_counts, is_even};
use std::collections::BTreeMap;

/// As `ethtool -X equal 4`, `weight 3 2 1 1` and igb's own default fill a table of 128.
#[test]
fn tables_of_ethtool_have_short_texts() {
    let equal: Vec<u32> = (0..128).map(|entry| entry % 4).collect();
    assert_eq!(Indirection::of(&equal).to_string(), "equal 4");
    assert_eq!("equal 4".parse::<Indirection>().unwrap().entries(128), Some(equal.clone()));
    let weights = "0*54,1*37,2*18,3*19".parse::<Indirection>().unwrap().entries(128).unwrap();
    assert_eq!(Indirection::of(&weights).to_string(), "0*54,1*37,2*18,3*19");
    assert!(!is_even(&weights, 4) && is_even(&equal, 4) && !is_even(&equal, 8) && !is_even(&equal, 2));
    let blocks: Vec<u32> = (0..128).map(|entry| entry * 6 / 128).collect();
    assert!(is_even(&blocks, 6));
    // A queue in the middle that gets nothing; a size that is no power of two.
    assert!(!is_even(&[0, 2, 0, 2], 3) && is_even(&[0, 1, 2, 0, 1, 2, 0], 3));
    assert_eq!(Indirection::of(&[0, 1, 2, 0, 1, 2, 0]).to_string(), "equal 3");
    assert_eq!(entry_counts(&[5, 5, 0]), BTreeMap::from([(0, 1), (5, 2)]));
}

#[test]
fn other_texts_are_rejected() {
    for text in ["", "equal", "equal 0", "equal x", "0*0", "0,,1", "0*99999999", "-1", "default"] {
        assert!(text.parse::<Indirection>().is_err(), "{text}");
    }
}

#[test]
fn texts_come_back() {
    // A linear congruential generator (Numerical Recipes): the same tables in every run.
    let mut state = 1u32;
    let mut next = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % below
    };
    for _ in 0..200 {
        let entries: Vec<u32> = (0..=next(300)).map(|_| next(9)).collect();
        let parsed: Indirection = Indirection::of(&entries).to_string().parse().unwrap();
        assert_eq!(parsed.entries(entries.len()), Some(entries));
    }
}
