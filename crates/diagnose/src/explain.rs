//! From evidence to a diagnosis: pure.

use clearstream_schema::diagnosis::{
    Cause, DIAGNOSIS_SCHEMA, Diagnosis, End, Experiment, ExperimentKind, Finding, Verdict,
};
use clearstream_schema::flow::FlowConfig;

use crate::{Evidence, causes, delay_line, facts::Facts, gain, stages, suggestions};

/// Explains what limits the requested flow.
pub fn explain(evidence: &Evidence) -> Diagnosis {
    let Some(facts) = Facts::of(evidence) else { return without_flow(evidence) };
    let (verdict, secondary) = judge(&facts);
    let verdict = delay_line::judge(&facts, verdict);
    let stages = stages::all(&facts, &verdict);
    let gain = gain::range(&facts, &verdict);
    let experiments = evidence
        .flows
        .iter()
        .filter(|flow| flow.kind != ExperimentKind::AsRequested && flow.summary.is_some())
        .map(|flow| suggestions::result(&facts, flow))
        .collect();
    Diagnosis {
        schema: DIAGNOSIS_SCHEMA.to_owned(),
        version: 1,
        sender_name: facts.sender.name().to_owned(),
        receiver_name: facts.receiver.name().to_owned(),
        sender: facts.sender.end,
        flow: facts.config.clone(),
        observed_bps: facts.goodput_bps,
        min_rtt_ns: facts.min_rtt_ns,
        gain_bound_bps: gain.as_ref().and_then(|gain| Some(gain.at_most.as_ref()?.rate_bps)),
        gain,
        suggestions: suggestions::suggest(&facts, &verdict, &secondary),
        primary: verdict,
        secondary,
        stages,
        experiments,
        notices: delay_line::notices(evidence).chain(evidence.notices.iter().cloned()).collect(),
    }
}

fn judge(facts: &Facts<'_>) -> (Verdict, Vec<Finding>) {
    let unknown = |because: String| Verdict::Unknown {
        because,
        experiment: Box::new(suggestions::most_informative(facts)),
    };
    let causes::Found { limit, others, refuted } = causes::find(facts);
    match limit {
        // A packet size that does not pass is detected without any sample.
        Some(finding) if matches!(finding.cause, Cause::PathMtu { .. }) => (Verdict::Found(finding), others),
        Some(finding) if facts.is_long_enough() && !facts.stalled() => (Verdict::Found(finding), others),
        _ if facts.stalled() => {
            let flow = facts.evidence.flows.first();
            let why = flow.and_then(|flow| flow.failure.clone());
            (
                unknown(
                    why.unwrap_or_else(|| {
                        "no data arrived, and the probe does not show the cause".to_owned()
                    }),
                ),
                others,
            )
        }
        _ if !facts.is_long_enough() => (
            unknown(format!(
                "the flow was too short: {} samples in {:.1} s; at least 3 and ten round trips are needed",
                facts.sample_count, facts.seconds
            )),
            others,
        ),
        _ if !refuted.is_empty() => (unknown(refuted.join("; ")), others),
        _ => {
            let because = format!(
                "{} of the congestion window in flight, window waited for {} of the time, no thread saturated, \
                 no significant loss: no signature fits",
                crate::format::percent(facts.medians.window_fill),
                crate::format::percent(facts.medians.window_limited)
            );
            (unknown(because), others)
        }
    }
}

fn without_flow(evidence: &Evidence) -> Diagnosis {
    let flow = FlowConfig::default();
    Diagnosis {
        schema: DIAGNOSIS_SCHEMA.to_owned(),
        version: 1,
        sender_name: evidence.client.name.clone(),
        receiver_name: evidence.server.name.clone(),
        sender: End::Client,
        observed_bps: 0.0,
        min_rtt_ns: None,
        primary: Verdict::Unknown {
            because: "no flow was run".to_owned(),
            experiment: Box::new(Experiment {
                kind: ExperimentKind::AsRequested,
                question: "measure a flow between the two hosts".to_owned(),
                flow: flow.clone(),
            }),
        },
        flow,
        secondary: Vec::new(),
        stages: Vec::new(),
        gain_bound_bps: None,
        gain: None,
        suggestions: Vec::new(),
        experiments: Vec::new(),
        notices: delay_line::notices(evidence).chain(evidence.notices.iter().cloned()).collect(),
    }
}
