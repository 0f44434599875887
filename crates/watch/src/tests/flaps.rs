//! Flapping gateways: each return waits twice as long as the previous one.

use super::*;

/// Gateway 1 of 6 alternates for a minute: down first, each state so long.
fn flapping(state: Duration) -> impl Fn(usize, usize, Duration) -> Option<ReplyKind> {
    move |gateway, _, at| {
        let is_flapping = gateway == 1 && (BEGIN..END).contains(&at);
        let states = at.saturating_sub(BEGIN).as_millis() / state.as_millis();
        if is_flapping && states.is_multiple_of(2) { None } else { WATCH }
    }
}

const BEGIN: Duration = ms(1000);
const END: Duration = ms(61_000);
/// 100 replies, at 20 ms.
const FIRST_WAIT: Duration = ms(2000);

#[test]
fn flapping_gateway_waits_twice_as_long_each_time_and_returns_when_it_is_steady() {
    // Seconds in each state, and how often it may be withdrawn within the minute: with
    // 1 s it never responds for 2 s; with 5 s it returns after 2 s and after 4 s, and 8 s
    // in a row never pass.
    for (seconds, most_outs) in [(1, 1), (2, 2), (5, 3)] {
        let replies = flapping(Duration::from_secs(seconds));
        let mut world = World::new(&[true; 6], 4, ms(20), &replies);
        world.run(END);
        let (outs, ins) = (world.outs(), world.ins());
        assert!(!outs.is_empty() && outs.len() <= most_outs, "{seconds} s: {outs:?}");
        assert!(outs.iter().all(|(_, gateway, _)| *gateway == 1), "{seconds} s: {outs:?}");
        for (place, ((out, ..), (back, _))) in outs.iter().zip(&ins).enumerate() {
            let least = FIRST_WAIT * (1 << place);
            assert!(*back - *out >= least, "{seconds} s: out at {out:?}, back at {back:?}");
        }
        // Steady again: the last wait, and a round with its timeout.
        let wait = FIRST_WAIT * (1 << (outs.len() - 1));
        world.run(END + wait + ms(100));
        assert_eq!(world.path.members(), [true; 6], "{seconds} s: {:?}", world.ins());
        let changes = world.outs().len() + world.ins().len();
        assert!(changes <= 2 * most_outs, "{seconds} s: {changes} changes of the next hops");
    }
}
