//! Whatever the numbers are: an answer, and one that can be written down.

use clearstream_diagnose::explain;
use clearstream_schema::{
    ByteCount,
    diagnosis::Diagnosis,
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
    let times = (any::<u32>(), any::<u32>(), 0.0..1e13f64, share());
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
    fn there_is_always_an_answer(shown in shown(), cut in 0..40usize) {
        let mut evidence = shown.evidence();
        evidence.flows[0].intervals.truncate(cut);
        let diagnosis = explain(&evidence);
        for stage in &diagnosis.stages {
            prop_assert!(stage.ceiling_bps.is_none_or(|ceiling| ceiling.is_finite() && ceiling > 0.0));
        }
        prop_assert!(diagnosis.stages.iter().filter(|stage| stage.limiting).count() <= 1);
        let text = serde_json::to_string(&diagnosis).unwrap();
        prop_assert!(serde_json::from_str::<Diagnosis>(&text).is_ok());
    }
}
