//! Verification of whether a plan is effective: every setting read back, and what a
//! new socket and an interrupt really get.

use clearstream_schema::plan::{Check, Effect, Plan, Setting, Step, Value, Verification};

use crate::{
    Fault, Options, PlanError,
    error::ABSENT,
    families::{self, connection, same_or_absent},
};

/// Compares a plan with the effective settings of this host, which need not have
/// been changed by it. Nothing is written; if the plan sets what a new connection
/// gets, one is opened over loopback and inspected.
pub fn verify(plan: &Plan, options: &Options) -> Result<Verification, PlanError> {
    for step in &plan.steps {
        options.check_touched(&step.setting)?;
    }
    let mut checks: Vec<Check> = plan.steps.iter().map(|step| read_back(step, options)).collect();
    let read = |setting: &Setting| options.target.read(setting).ok().flatten();
    let in_effect = |step: &Step| families::of(&step.setting).in_effect(&read, step.desired.as_ref());
    checks.extend(plan.steps.iter().filter_map(in_effect));
    if options.target.is_live() {
        checks.extend(connection::checks(plan, options));
    }
    Ok(Verification { checks })
}

fn read_back(step: &Step, options: &Options) -> Check {
    let subject = step.setting.to_string();
    let wanted = step.desired.as_ref();
    let may_be_absent = step.setting.may_be_absent();
    let (found, problem, holds) = match options.target.read(&step.setting) {
        Ok(None) if may_be_absent => (Some(ABSENT.to_owned()), None, wanted.is_none()),
        Ok(None) => (None, Some(Fault::Absent.of(&step.setting).to_string()), false),
        Ok(found) => {
            let holds = same_or_absent(&step.setting, wanted, found.as_ref());
            (found.as_ref().map(Value::to_string), None, holds)
        }
        Err(error) => (None, Some(error.to_string()), false),
    };
    let absent = if may_be_absent { ABSENT } else { "" };
    let expected = wanted.map_or_else(|| absent.to_owned(), Value::to_string);
    let note = problem.or_else(|| who_sees(step.effect).map(str::to_owned));
    Check { subject, expected, found, holds, note }
}

/// What does not use an effective value yet.
fn who_sees(effect: Effect) -> Option<&'static str> {
    match effect {
        Effect::Now | Effect::LinkFlap => None,
        Effect::NewSockets => Some("sockets made before keep the old value: restart what holds them"),
        Effect::Handshake => Some("connections made before keep what they negotiated"),
        Effect::NewQdiscs => Some("existing qdiscs stay: an interface gets it when its qdisc is recreated"),
        Effect::Boot => Some("takes effect at the next boot only"),
    }
}
