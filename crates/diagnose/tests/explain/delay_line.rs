//! A lab's delay line that could not keep up is no property of the path.

use clearstream_diagnose::{Evidence, explain};
use clearstream_schema::{
    diagnosis::{Cause, Diagnosis, ExperimentKind, Verdict},
    lab::{DELAY_LINE_LIMIT_NOTICE, DelayLineStats},
    notice::Notice,
};

use super::{
    made::Shown,
    signatures::{found, full_queue},
};

/// The notice as `flow` and studies put it into a summary.
fn notice() -> Notice {
    let line = DelayLineStats {
        from: "alpha".to_owned(),
        to: "beta".to_owned(),
        relay_dropped_count: 12,
        relay_limited: true,
        ..DelayLineStats::default()
    };
    clearstream_lab::limit::notice(&[line]).unwrap()
}

fn limited(shown: &Shown) -> Evidence {
    let mut evidence = shown.evidence();
    evidence.flows[0].summary.as_mut().unwrap().notices.push(notice());
    evidence
}

fn first_notice(diagnosis: &Diagnosis) -> &Notice {
    diagnosis.notices.first().expect("a notice")
}

#[test]
fn what_the_delay_line_did_is_not_called_the_path() {
    let healthy = explain(&full_queue().evidence());
    assert!(matches!(found(&healthy).cause, Cause::PathCapacity { .. }));
    assert!(healthy.notices.is_empty());
    let diagnosis = explain(&limited(&full_queue()));
    let Verdict::Unknown { because, experiment } = &diagnosis.primary else {
        panic!("{:?}", diagnosis.primary)
    };
    assert!(because.contains("the delay line, not the path, was the limit"), "{because}");
    assert!(because.contains("alpha to beta dropped 12 packets"), "{because}");
    assert!(experiment.question.contains("a rate that the lab's machine can carry"), "{experiment:?}");
    assert_eq!(first_notice(&diagnosis).id, DELAY_LINE_LIMIT_NOTICE);
    assert!(diagnosis.sentence().starts_with("not known: the delay line"), "{}", diagnosis.sentence());
}

#[test]
fn what_a_host_shows_stands_behind_the_notice() {
    let window = Shown::small_receive_buffer();
    let mut evidence = limited(&window);
    evidence.notices.push(Notice { id: "probe-failed".to_owned(), message: "no probe".to_owned() });
    let diagnosis = explain(&evidence);
    assert!(matches!(found(&diagnosis).cause, Cause::ReceiverWindow { .. }));
    assert_eq!(first_notice(&diagnosis).id, DELAY_LINE_LIMIT_NOTICE, "{:?}", diagnosis.notices);
    assert_eq!(diagnosis.notices.len(), 2);
}

#[test]
fn limited_experiment_is_named() {
    let mut evidence = full_queue().evidence();
    let mut several = full_queue().flow();
    several.kind = ExperimentKind::SeveralFlows;
    several.summary.as_mut().unwrap().notices.push(notice());
    evidence.flows.push(several);
    let diagnosis = explain(&evidence);
    assert!(matches!(found(&diagnosis).cause, Cause::PathCapacity { .. }), "{:?}", diagnosis.primary);
    let notice = first_notice(&diagnosis);
    assert!(
        notice.message.starts_with("experiment \"another number of flows\": the delay line"),
        "{notice:?}"
    );
}
