//! Two state machines over streams that a random schedule splits and
//! interleaves, against the reference model.

use std::collections::VecDeque;

use clearstream_iwarp::mpa::Rtr;
use clearstream_iwarp::queue_pair::{Event, Limits, PostError, State};
use clearstream_iwarp::work::SendRequest;
use proptest::prelude::*;

use crate::queue_pair::end::{End, carry_to_the_end, negotiated};
use crate::queue_pair::plan::{Expected, Planner, REGION, Step, is_message, program, random};

/// Connection parameters.
#[derive(Clone, Debug)]
struct Setup {
    crc: bool,
    /// Markers in the incoming stream of the first and of the second side.
    markers: [bool; 2],
    mulpdu: [usize; 2],
    /// Reads outstanding of each side.
    ord: [u16; 2],
    depth: [usize; 2],
    shared: bool,
    rtr: Option<Rtr>,
    straight: bool,
    /// Receives get their memory piece by piece.
    extends: bool,
    /// Both sides take immediate data with Sends and Writes.
    immediate_data: bool,
    /// Seed of the schedule.
    seed: u64,
}

fn setup() -> impl Strategy<Value = Setup> {
    let mulpdu = || prop_oneof![128_usize..2000, 8000_usize..65_000, Just(65_530_usize)];
    let rtr = prop_oneof![Just(None), Just(Some(Rtr::Send)), Just(Some(Rtr::Write)), Just(Some(Rtr::Read))];
    (
        any::<[bool; 3]>(),
        (mulpdu(), mulpdu()),
        (1_u16..5, 1_u16..5),
        (1_usize..17, 1_usize..17),
        (any::<bool>(), rtr, any::<[bool; 3]>()),
        any::<u64>(),
    )
        .prop_map(
            |(
                [crc, one, other],
                mulpdu,
                ord,
                depth,
                (shared, rtr, [straight, extends, immediate_data]),
                seed,
            )| {
                Setup {
                    crc,
                    markers: [one, other],
                    mulpdu: mulpdu.into(),
                    ord: ord.into(),
                    depth: depth.into(),
                    shared,
                    rtr,
                    straight,
                    extends,
                    immediate_data,
                    seed,
                }
            },
        )
}

fn side(setup: &Setup, index: usize) -> End {
    let negotiated = clearstream_iwarp::mpa::Negotiated {
        crc: setup.crc,
        markers_in: setup.markers[index],
        markers_out: setup.markers[1 - index],
        ord: setup.ord[index],
        ird: setup.ord[1 - index],
        rtr: setup.rtr,
        immediate_data: setup.immediate_data,
        ..negotiated(index == 0)
    };
    let limits =
        Limits { send_queue: setup.depth[index], receives_extend: setup.extends, ..Limits::default() };
    End::with(&negotiated, setup.mulpdu[index], REGION, limits, setup.shared)
}

/// Posts the next request if there is room.
fn post(end: &mut End, requests: &mut VecDeque<SendRequest>) {
    if let Some(request) = requests.front() {
        match end.machine.post_send(request.clone()) {
            Ok(()) => drop(requests.pop_front()),
            Err(error) => assert_eq!(error, PostError::Full),
        }
    }
}

/// Runs both programs under a random schedule until all is done.
fn run(setup: &Setup, ends: &mut [End; 2], mut requests: [VecDeque<SendRequest>; 2]) {
    let mut state = setup.seed | 1;
    let mut streams = [VecDeque::new(), VecDeque::new()];
    // Pieces are mostly small, and sometimes everything at once.
    let size = |state: &mut u64| match random(state) % 4 {
        0 => 1 + random(state) % 7,
        1 => 1 + random(state) % 100,
        2 => 1 + random(state) % 10_000,
        _ => 1 << 21,
    };
    let mut idle = 0;
    while idle < 200 {
        let index = (random(&mut state) % 2) as usize;
        let most = usize::try_from(size(&mut state)).unwrap();
        let end = &mut ends[index];
        let moved = match random(&mut state) % 3 {
            0 => {
                let before = requests[index].len();
                post(end, &mut requests[index]);
                before - requests[index].len()
            }
            1 => end.transmit(&mut streams[index], most),
            _ => {
                let straight = setup.straight && !random(&mut state).is_multiple_of(8);
                end.arrive(&mut streams[1 - index], most, straight)
            }
        };
        idle = if moved > 0 { 0 } else { idle + 1 };
    }
    assert!(requests.iter().all(VecDeque::is_empty), "not everything was posted");
    assert!(streams.iter().all(VecDeque::is_empty), "not everything arrived");
}

fn check(end: &End, expected: &Expected, name: &str) {
    assert_eq!(end.sends, expected.sends, "completions of the send queue of {name}");
    assert_eq!(end.received, expected.received, "completions of the receive queue of {name}");
    let memory = end.all();
    let wrong = memory.iter().zip(&expected.memory).position(|(is, should)| is != should);
    assert_eq!(wrong, None, "first wrong byte of the memory of {name}");
    let is_valid = |stag: &clearstream_iwarp::stag::Stag| {
        end.table.registration(*stag).is_some_and(|registration| registration.valid)
    };
    assert!(!expected.invalid.iter().any(is_valid), "a tag of {name} should be invalid");
    assert!(expected.valid.iter().all(is_valid), "a window of {name} should be bound");
}

fn two_sides(setup: &Setup, programs: &[Vec<Step>; 2]) {
    let mut setup = setup.clone();
    if setup.rtr.is_none() && !programs[0].iter().any(is_message) {
        // Otherwise nothing would permit the responder to send.
        setup.rtr = Some(Rtr::Write);
    }
    let mut ends = [side(&setup, 0), side(&setup, 1)];
    let mut expected = [Expected::of(&ends[0], setup.seed), Expected::of(&ends[1], !setup.seed)];
    let requests = {
        let [mine, theirs] = &mut expected;
        let mut planner = Planner {
            end: &ends[0],
            peer: &ends[1],
            mine,
            theirs,
            reads_landing: false,
            immediate_data: setup.immediate_data,
        };
        let first = planner.plan(&programs[0]);
        let [theirs, mine] = &mut expected;
        let mut planner = Planner {
            end: &ends[1],
            peer: &ends[0],
            mine,
            theirs,
            reads_landing: false,
            immediate_data: setup.immediate_data,
        };
        [first.into(), planner.plan(&programs[1]).into()]
    };
    if setup.extends {
        let mut state = !setup.seed | 1;
        let mut bytes = || match random(&mut state) % 3 {
            0 => 1 + (random(&mut state) % 9) as u32,
            1 => 1 + (random(&mut state) % 5000) as u32,
            _ => u32::MAX,
        };
        ends.iter_mut().for_each(|end| end.split_receives(&mut bytes));
    }
    run(&setup, &mut ends, requests);
    check(&ends[0], &expected[0], "the initiator");
    check(&ends[1], &expected[1], "the responder");
    assert!(ends[0].events.is_empty());
    assert_eq!(ends[1].events, [Event::Established]);

    let [one, other] = &mut ends;
    one.machine.close();
    other.machine.close();
    carry_to_the_end(one, other);
    assert_eq!((one.machine.state(), other.machine.state()), (State::Idle, State::Idle));
    assert_eq!((one.events.len(), other.events.len()), (1, 2), "{:?} {:?}", one.events, other.events);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    /// Memory, completions and their order, values of atomics, invalidated
    /// STags: as in the model, however the streams are split.
    #[test]
    fn two_machines_do_what_the_model_does(setup in setup(), one in program(), other in program()) {
        two_sides(&setup, &[one, other]);
    }
}
