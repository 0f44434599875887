//! Decisions from readings that are made up: what each candidate moves is known.

use clearstream_schema::flow::{Direction, ThreadPlacement};

use super::*;
use crate::adapt::Wakes;

const ALL: Open = Open { transfer: true, receive_low_water: true, placement: true };

/// Plays a whole warm-up: `gbps` and CPU seconds per gigabyte of each candidate, in turns of `noise` (a factor by turn number).
fn play(
    config: &FlowConfig,
    own_low_water: u64,
    machine: impl Fn(Candidate) -> (f64, f64),
    noise: impl Fn(usize) -> Option<f64>,
) -> (Vec<(AdaptationStage, usize)>, FlowAdaptation) {
    let mut adaptation = Adaptation::new(config, ALL, None);
    let socket = SocketSettings { receive_low_water_bytes: own_low_water, ..SocketSettings::default() };
    let settings = FlowSettings { flows: vec![socket], boot_id: None };
    adaptation.starts(Side::Client, &FlowSettings::default());
    adaptation.starts(Side::Server, &settings);
    let (mut adopted, mut number) = (Vec::new(), 0);
    let all = turns(config, ALL);
    for stage in [
        AdaptationStage::Transfer,
        AdaptationStage::LowWater,
        AdaptationStage::Placement,
        AdaptationStage::Confirmation,
    ] {
        let first = adaptation.first;
        let as_first = Candidate { placement: adaptation.current.placement, ..first };
        if stage == AdaptationStage::Confirmation && as_first == adaptation.current {
            continue;
        }
        let candidates = candidates(stage, adaptation.current, first);
        let mut sides = [Vec::new(), Vec::new()];
        for turn in all.iter().filter(|turn| turn.stage == stage) {
            let (gbps, cost) = machine(candidates[turn.candidate]);
            let time = (turn.end - turn.counts).as_secs_f64();
            let bytes = gbps * 1e9 / 8.0 * time * noise(number).unwrap_or(1.0);
            let reading = Reading {
                duration_ns: (time * 1e9) as u64,
                received_bytes: 0,
                cpu_ns: (cost * bytes / 2.0) as u64,
            };
            let missed = noise(number).is_none();
            number += 1;
            sides[0].push(if missed { Reading::default() } else { reading });
            sides[1].push(Reading { received_bytes: bytes as u64, ..reading });
        }
        let [client, server] = sides;
        let tried = |readings| Tried { test: 1, stage: Some(stage), readings, reason: None };
        assert_eq!(adaptation.tried(Side::Server, 1, tried(server)), None, "both have to report");
        let adopt = adaptation.tried(Side::Client, 1, tried(client)).unwrap();
        assert_eq!((adopt.test, adopt.stage), (1, stage));
        adopted.push((stage, adopt.candidate));
    }
    (adopted, adaptation.result())
}

fn quiet(_: usize) -> Option<f64> {
    Some(1.0)
}

/// The Xeon of the measurements that led here: 1 MiB is a third faster than 512 KiB, and woken for the first byte faster still.
fn large_and_at_once(candidate: Candidate) -> (f64, f64) {
    let size = if candidate.transfer == 1 << 20 { 80.0 } else { 60.0 };
    (size * if candidate.wakes == Wakes::Otherwise { 1.15 } else { 1.0 }, 0.2)
}

#[test]
fn the_best_size_and_mark_are_found_from_either_default() {
    for (own, chosen) in [(256 << 10, 1), (1, 512 << 10)] {
        let (_, found) = play(&FlowConfig::default(), own, large_and_at_once, quiet);
        let settings = found.chosen.unwrap();
        assert_eq!(settings.transfer, ByteCount(1 << 20));
        assert_eq!(settings.receive_low_water, Some(ByteCount(chosen)));
        assert_eq!(settings.placement, ThreadPlacement::Scheduler);
        assert!(found.reason.starts_with("1.53 times the defaults"), "{}", found.reason);
    }
}

#[test]
fn where_nothing_differs_the_defaults_stay_in_any_noise_and_nothing_is_confirmed() {
    let same = |_| (60.0, 0.2);
    let (adopted, found) = play(&FlowConfig::default(), 1, same, quiet);
    assert!(found.chosen.is_none() && adopted.len() == 3, "{adopted:?}");
    assert!(found.reason.contains("clearly better"), "{}", found.reason);
    // A period of half the speed, in any place.
    for start in 0..30 {
        let slow = |turn: usize| Some(if (start..start + 5).contains(&turn) { 0.5 } else { 1.0 });
        let (_, found) = play(&FlowConfig::default(), 1, same, slow);
        assert!(found.chosen.is_none(), "slow from turn {start}: {found:?}");
    }
}

#[test]
fn a_pin_wins_only_where_it_is_much_faster_in_every_round() {
    let together = |gain: f64| {
        move |candidate: Candidate| {
            (if candidate.placement == ThreadPlacement::Together { 50.0 * gain } else { 50.0 }, 0.2)
        }
    };
    let placement = |gain, noise: fn(usize) -> Option<f64>| {
        let (_, found) = play(&FlowConfig::default(), 1, together(gain), noise);
        found.chosen.map_or(ThreadPlacement::Scheduler, |chosen| chosen.placement)
    };
    assert_eq!(placement(2.6, quiet), ThreadPlacement::Together);
    assert_eq!(placement(1.1, quiet), ThreadPlacement::Scheduler);
    // The second round of pins, of turns 24 to 32, was slow: 27 and on are pins.
    assert_eq!(placement(1.3, |turn| Some(if turn == 30 { 0.7 } else { 1.0 })), ThreadPlacement::Scheduler);
}

#[test]
fn what_moves_as_much_with_less_cpu_time_is_taken() {
    let cheaper = |candidate: Candidate| (10.0, if candidate.transfer == 1 << 20 { 0.15 } else { 0.2 });
    let (_, found) = play(&FlowConfig::default(), 1, cheaper, quiet);
    assert_eq!(found.chosen.unwrap().transfer, ByteCount(1 << 20));
    assert_eq!(found.reason, "as much with less CPU time", "no gain in goodput is claimed");
}

#[test]
fn turns_missed_in_one_stage_are_no_reason_for_what_the_others_chose() {
    // Those of the low-water mark, after 16 of the size.
    let missed = |turn: usize| (!(16..24).contains(&turn)).then_some(1.0);
    let (_, found) = play(&FlowConfig::default(), 1, large_and_at_once, missed);
    assert_eq!(found.chosen.unwrap().transfer, ByteCount(1 << 20));
    assert_eq!(found.reason, "1.33 times the defaults");
}

#[test]
fn a_slow_path_and_missed_turns_leave_the_defaults_and_say_so() {
    let slow = |candidate: Candidate| (if candidate.transfer == 1 << 20 { 0.2 } else { 0.1 }, 0.2);
    let (_, found) = play(&FlowConfig::default(), 1, slow, quiet);
    assert!(found.chosen.is_none() && found.reason.contains("path is too slow"), "{found:?}");
    let (adopted, found) = play(&FlowConfig::default(), 1, large_and_at_once, |_| None);
    assert!(found.chosen.is_none() && found.reason.contains("stood still"), "{found:?}");
    assert!(adopted.iter().all(|(_, candidate)| *candidate == 0));
    // One missed turn in four does not matter.
    let (_, found) = play(&FlowConfig::default(), 1, large_and_at_once, |turn| (turn != 3).then_some(1.0));
    assert_eq!(found.chosen.unwrap().transfer, ByteCount(1 << 20));
}

#[test]
fn what_is_not_confirmed_is_taken_back() {
    let last = turns(&FlowConfig::default(), ALL).len() - 8;
    let fades = move |turn: usize| {
        Some(if turn >= last && [1, 2].contains(&((turn - last) % 4)) { 0.6 } else { 1.0 })
    };
    let (adopted, found) = play(&FlowConfig::default(), 1, large_and_at_once, fades);
    assert_eq!(adopted.last(), Some(&(AdaptationStage::Confirmation, 0)));
    assert!(found.chosen.is_none(), "{found:?}");
}

#[test]
fn an_end_that_takes_no_turns_says_why_and_nothing_is_adopted() {
    let config = FlowConfig { direction: Direction::Reverse, ..FlowConfig::default() };
    let mut adaptation = Adaptation::new(&config, ALL, None);
    let none = Tried { test: 1, stage: None, readings: Vec::new(), reason: Some("far away".to_owned()) };
    assert_eq!(adaptation.tried(Side::Client, 1, none), None);
    let readings = vec![Reading::default()];
    let other = Tried { test: 1, stage: Some(AdaptationStage::Transfer), readings, reason: None };
    assert_eq!(adaptation.tried(Side::Server, 1, other), None);
    let found = adaptation.result();
    assert_eq!((found.reason.as_str(), found.chosen), ("far away", None));
}
