use super::*;

const MS: u64 = 1_000_000;

fn model() -> LinkModel {
    LinkModel {
        delay_ns: 0,
        jitter_ns: 0,
        loss_ratio: 0.0,
        rate_bps: None,
        queue_ns: u64::MAX,
        longest_bytes: None,
    }
}

fn leaves(at_ns: u64) -> Verdict {
    Verdict::Leaves { at_ns }
}

/// Link, packets as (arrival, bytes), and their departure times, computed by
/// hand.
#[test]
fn table_of_links() {
    let wan = LinkModel { delay_ns: 8_500_000, ..model() };
    let limited = |rate_bps, queue_ns| LinkModel { rate_bps: Some(rate_bps), queue_ns, ..wan };
    type Row<'a> = (&'a str, LinkModel, &'a [(u64, u64)], &'a [Verdict]);
    let table: &[Row<'_>] = &[
        ("ideal", model(), &[(5, 1500), (5, 9000)], &[leaves(5), leaves(5)]),
        ("delay", wan, &[(0, 1500), (7, 64)], &[leaves(8_500_000), leaves(8_500_007)]),
        // 1250 bytes are 10 000 bits: 10 us at 1 Gb/s. The second waits for the first.
        (
            "rate",
            limited(1_000_000_000, u64::MAX),
            &[(0, 1250), (0, 1250), (100_000, 1250)],
            &[leaves(8_510_000), leaves(8_520_000), leaves(8_610_000)],
        ),
        // 8 bits at 3 Gb/s are 2 2/3 ns: three bytes take 8 ns, not 6 and not
        // 9.
        (
            "thirds of a nanosecond",
            LinkModel { rate_bps: Some(3_000_000_000), ..model() },
            &[(0, 1), (0, 1), (0, 1)],
            &[leaves(2), leaves(5), leaves(8)],
        ),
        // Queue of 15 us: the first starts at once, the second after 10 us, the
        // third would start after 20 us; at 6 us it has 14 us to wait and may.
        (
            "queue",
            limited(1_000_000_000, 15_000),
            &[(0, 1250), (0, 1250), (0, 1250), (6_000, 1250)],
            &[leaves(8_510_000), leaves(8_520_000), Verdict::Overflow, leaves(8_530_000)],
        ),
        (
            "no queue",
            limited(1_000_000_000, 0),
            &[(0, 1250), (0, 1250)],
            &[leaves(8_510_000), Verdict::Overflow],
        ),
        // The paper's path: 62 000 bytes at 19 Gb/s are 26 105.26 ns.
        (
            "1650 km",
            limited(19_000_000_000, u64::MAX),
            &[(0, 62_000), (0, 62_000)],
            &[leaves(8_526_105), leaves(8_552_210)],
        ),
    ];
    for (name, model, arrivals, expected) in table {
        let mut direction = Direction::new(*model, 1);
        let seen: Vec<Verdict> = arrivals.iter().map(|&(now, bytes)| direction.accept(now, bytes)).collect();
        assert_eq!(seen, *expected, "{name}");
    }
}

#[test]
fn rate_is_exact_over_a_second() {
    for rate_bps in [10_000_000, 7_777_777_777, 19_000_000_000, 100_000_000_000] {
        let mut direction = Direction::new(LinkModel { rate_bps: Some(rate_bps), ..model() }, 1);
        let packets = rate_bps / 8 / 9000;
        let mut last = 0;
        for _ in 0..packets {
            if let Verdict::Leaves { at_ns } = direction.accept(0, 9000) {
                last = at_ns;
            }
        }
        let exact = u128::from(packets) * 9000 * 8 * 1_000_000_000 / u128::from(rate_bps);
        let exact = u64::try_from(exact).unwrap();
        assert!(last.abs_diff(exact) <= 1, "{rate_bps}: {last} and {exact}");
    }
}

#[test]
fn jitter_stays_within_bounds_and_in_order() {
    let wan = LinkModel { delay_ns: 8_500_000, jitter_ns: 200_000, ..model() };
    let mut direction = Direction::new(wan, 7);
    let (mut low, mut high, mut last, mut sum) = (u64::MAX, 0, 0, 0);
    let count = 20_000;
    // Packets 1 ms apart: further than the jitter, so none is held back by another.
    for packet in 0..count {
        let now = packet * MS;
        let Verdict::Leaves { at_ns } = direction.accept(now, 1500) else { panic!("no queue") };
        assert!(at_ns >= last);
        last = at_ns;
        let delay = at_ns - now;
        (low, high, sum) = (low.min(delay), high.max(delay), sum + delay);
    }
    assert!(low >= 8_300_000 && high <= 8_700_000, "{low} {high}");
    assert!(low < 8_302_000 && high > 8_698_000, "the range is used: {low} {high}");
    // Uniform over 400 us: standard error of the mean 115.5 us / sqrt(20 000) = 0.82 us.
    assert!((sum / count).abs_diff(8_500_000) < 5_000, "{}", sum / count);
    // Packets close together keep their order.
    let mut last = 0;
    for packet in 0..1000 {
        let Verdict::Leaves { at_ns } = direction.accept(count * MS + packet, 1500) else {
            panic!("no queue")
        };
        assert!(at_ns >= last);
        last = at_ns;
    }
}

#[test]
fn losses_have_the_requested_ratio_and_repeat_with_the_seed() {
    for loss_ratio in [0.0001, 0.01, 0.3, 0.9] {
        let lossy = LinkModel { loss_ratio, ..model() };
        let count = 400_000;
        let draw = |seed| {
            let mut direction = Direction::new(lossy, seed);
            (0..count).map(|_| direction.loses_next()).collect::<Vec<bool>>()
        };
        let lost = draw(3).iter().filter(|&&lost| lost).count() as f64;
        // Five standard deviations of the binomial distribution.
        let (mean, deviation) =
            (f64::from(count) * loss_ratio, (f64::from(count) * loss_ratio * (1.0 - loss_ratio)).sqrt());
        assert!((lost - mean).abs() <= 5.0 * deviation, "{loss_ratio}: {lost} of {mean}");
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }
}

#[test]
fn certain_and_impossible_loss() {
    let mut direction = Direction::new(LinkModel { loss_ratio: 1.0, ..model() }, 1);
    assert!((0..100).all(|_| direction.loses_next()));
    let mut direction = Direction::new(model(), 1);
    assert!((0..100).all(|_| !direction.loses_next()));
    assert!(direction.passes(u32::MAX));
}

/// Checking many packets at once gives the same losses as one by one.
#[test]
fn joined_packets_lose_what_single_ones_would() {
    let lossy = LinkModel { loss_ratio: 0.05, ..model() };
    let (mut joined, mut single) = (Direction::new(lossy, 11), Direction::new(lossy, 11));
    for _ in 0..5000 {
        let expected: Vec<bool> = (0..7).map(|_| single.loses_next()).collect();
        if joined.passes(7) {
            joined.pass(7);
            assert!(expected.iter().all(|lost| !lost));
        } else {
            let seen: Vec<bool> = (0..7).map(|_| joined.loses_next()).collect();
            assert_eq!(seen, expected);
            assert!(seen.contains(&true));
        }
    }
}

/// The reference sequence of SplitMix64 for seed 1234567 (Vigna's splitmix64.c,
/// as printed by Rosetta Code "Pseudo-random numbers/Splitmix64").
#[test]
fn random_numbers_are_splitmix64() {
    let mut random = Random::new(1_234_567);
    let seen: Vec<u64> = (0..5).map(|_| random.next()).collect();
    assert_eq!(
        seen,
        [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821
        ]
    );
}

#[test]
fn a_line_that_is_behind_drops_what_would_wait_longer_than_the_queue() {
    // 8 kb/s: a packet of 1000 bytes takes a second of the wire.
    let slow = LinkModel { rate_bps: Some(8_000), queue_ns: 3_000_000_000, ..model() };
    let mut direction = Direction::new(slow, 1);
    assert!(matches!(direction.accept_behind(0, 2_900_000_000, 1000), Verdict::Leaves { .. }));
    // One second of transmission and 2.1 of lateness are more than three.
    assert_eq!(direction.accept_behind(0, 2_100_000_000, 1000), Verdict::Behind);
    assert!(direction.takes_nothing(0, 2_100_000_000) && !direction.takes_nothing(0, 1_900_000_000));
    assert!(matches!(direction.accept_behind(0, 1_900_000_000, 1000), Verdict::Leaves { .. }));
    // The modelled queue comes first.
    for _ in 0..2 {
        direction.accept(0, 1000);
    }
    assert_eq!(direction.accept_behind(0, 9_000_000_000, 1000), Verdict::Overflow);
    // Without a rate the queue bounds the line's lateness alone, and the
    // lateness of a loaded machine is no reason to drop.
    let mut unlimited = Direction::new(LinkModel { rate_bps: None, queue_ns: 0, ..model() }, 1);
    assert!(matches!(unlimited.accept_behind(5, BEHIND_TOLERANCE_NS, 1000), Verdict::Leaves { .. }));
    assert_eq!(unlimited.accept_behind(5, BEHIND_TOLERANCE_NS + 1, 1000), Verdict::Behind);
}
