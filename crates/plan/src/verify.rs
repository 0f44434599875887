//! Verification of whether a plan is effective: every setting read back, and what a
//! new socket and an interrupt really get.

use clearstream_schema::plan::{Check, Effect, Plan, Setting, Step, Verification};

use crate::{Fault, Options, PlanError, apply::ABSENT, effective, meaning::same_or_absent};

/// Compares a plan with the effective settings of this host, which need not have
/// been changed by it. Nothing is written; if the plan sets what a new connection
/// gets, one is opened over loopback and inspected.
pub fn verify(plan: &Plan, options: &Options) -> Result<Verification, PlanError> {
    for step in &plan.steps {
        options.check_touched(&step.setting)?;
    }
    let mut checks: Vec<Check> = plan.steps.iter().map(|step| read_back(step, options)).collect();
    for step in &plan.steps {
        checks.extend(interrupt(step, options));
    }
    if options.target.is_live() {
        checks.extend(effective::checks(plan, options));
    }
    Ok(Verification { checks })
}

fn read_back(step: &Step, options: &Options) -> Check {
    let subject = step.setting.to_string();
    let wanted = step.desired.as_deref();
    let may_be_absent = step.setting.may_be_absent();
    let (found, problem, holds) = match options.target.read(&step.setting) {
        Ok(None) if may_be_absent => (Some(ABSENT.to_owned()), None, wanted.is_none()),
        Ok(None) => (None, Some(Fault::Absent.of(&step.setting).to_string()), false),
        Ok(found) => {
            let holds = same_or_absent(&step.setting, wanted, found.as_deref());
            (found, None, holds)
        }
        Err(error) => (None, Some(error.to_string()), false),
    };
    let expected = wanted.unwrap_or(if may_be_absent { ABSENT } else { "" }).to_owned();
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

/// The processor that an interrupt is really delivered to, which the kernel
/// chooses among those allowed (Documentation/core-api/irq/irq-affinity.rst).
fn interrupt(step: &Step, options: &Options) -> Option<Check> {
    let Setting::File(path) = &step.setting else { return None };
    let name = path.rsplit('/').next()?;
    let effective = match name {
        "smp_affinity" => "effective_affinity",
        "smp_affinity_list" => "effective_affinity_list",
        _ => return None,
    };
    if !path.starts_with("proc/irq/") {
        return None;
    }
    let setting = Setting::File(format!("{}{effective}", path.strip_suffix(name)?));
    let found = options.target.read(&setting).ok()??;
    let expected = step.desired.clone().unwrap_or_default();
    let holds = crate::meaning::is_within(&found, &expected, name.ends_with("_list"));
    let note = (!holds).then(|| "an interrupt moves when it next fires".to_owned());
    Some(Check {
        subject: setting.to_string(),
        expected: format!("within {expected}"),
        found: Some(found),
        holds,
        note,
    })
}
