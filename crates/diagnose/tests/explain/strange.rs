//! Any numbers lead to a conclusion that can be written down.

use clearstream_diagnose::explain;
use clearstream_schema::{
    ByteCount,
    diagnosis::{Diagnosis, StageName},
    flow::{Direction, FlowConfig},
};
use proptest::prelude::*;

use super::made::Shown;

fn share() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(1.0), 0.0..1.0f64]
}

fn shown() -> impl Strategy<Value = Shown> {
    let shares = (share(), share(), share(), share(), share());
    let threads = ((share(), share(), share()), (share(), share(), share()));
    let sizes = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    // Paths of microseconds and long ones; rates as they are and impossible ones.
    let shortest = prop_oneof![any::<u32>(), 1..1_000_000u32];
    let rates = prop_oneof![0.0..1e13f64, 1e6..1e11f64];
    let times = (any::<u32>(), shortest, rates, share());
    let options = (any::<u32>(), any::<Option<u32>>(), any::<Option<u64>>(), 0..3u8, any::<u8>());
    (shares, threads, sizes, times, options).prop_map(|(shares, threads, sizes, times, options)| Shown {
        busy: shares.0,
        window_limited: shares.1,
        buffer_limited: shares.2,
        buffer_fill: shares.3,
        receive_fill: shares.4,
        writer: threads.0,
        reader: threads.1,
        unacked: sizes.0,
        window: sizes.1,
        mss: sizes.2,
        not_sent: sizes.3,
        buffer: sizes.4,
        offered: sizes.5,
        rtt_ns: times.0.into(),
        min_rtt_ns: times.1.into(),
        goodput_bps: times.2,
        loss: times.3,
        max_pacing: options.2,
        incoming_core: options.4.into(),
        config: FlowConfig {
            flows: options.0,
            window: options.1.map(|bytes| ByteCount(bytes.into())),
            direction: [Direction::Forward, Direction::Reverse, Direction::Both][usize::from(options.3)],
            ..FlowConfig::default()
        },
        ..Shown::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn there_is_always_a_conclusion(shown in shown(), cut in 0..40usize) {
        let mut evidence = shown.evidence();
        evidence.flows[0].intervals.truncate(cut);
        let diagnosis = explain(&evidence);
        for stage in &diagnosis.stages {
            prop_assert!(stage.ceiling_bps.is_none_or(|ceiling| ceiling.is_finite() && ceiling > 0.0));
        }
        prop_assert!(diagnosis.stages.iter().filter(|stage| stage.limiting).count() <= 1);
        // The marked stage is the lowest step of the staircase.
        let ceilings = |limiting| {
            let chosen = diagnosis.stages.iter().filter(move |stage| stage.limiting == limiting);
            chosen.filter(|stage| !stage.at_least).filter_map(|stage| stage.ceiling_bps)
        };
        if let Some(limit) = ceilings(true).next() {
            prop_assert!(ceilings(false).all(|other| other >= limit), "{:#?}", diagnosis.stages);
        }
        // Nothing is divided by a round trip of microseconds.
        if (1..1_000_000).contains(&shown.min_rtt_ns) {
            let by_round_trip = [StageName::SendBuffer, StageName::CongestionWindow, StageName::ReceiverWindow];
            for stage in diagnosis.stages.iter().filter(|stage| by_round_trip.contains(&stage.name)) {
                let known = stage.ceiling_bps.unwrap_or(shown.goodput_bps);
                prop_assert!(known <= shown.goodput_bps, "{stage:?}");
            }
        }
        let text = serde_json::to_string(&diagnosis).unwrap();
        prop_assert!(serde_json::from_str::<Diagnosis>(&text).is_ok());
    }
}
