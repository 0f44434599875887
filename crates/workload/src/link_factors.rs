//! The factors `link-delay` and `link-rate` of labs: one-way delay and rate of all links that are delay
//! lines, so that a study can show how sensitive a workload is to the path.

use std::fmt;

use clearstream_lab::{LabError, RunningLab};
use clearstream_schema::{
    BitRate, TimeSpan,
    control::{Failure, FailureKind},
    lab::{LabLink, LinkBackend},
};
use serde_json::Value;

use crate::{EnvironmentFactor, Guard, TrialError};

/// One-way delay of the links.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkDelay;

/// Rate of each direction of the links.
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkRate;

/// Level of [`LinkRate`] for no limit.
const UNLIMITED: &str = "unlimited";

impl EnvironmentFactor for LinkDelay {
    fn name(&self) -> &'static str {
        "link-delay"
    }

    fn check(&self, level: &Value) -> Result<(), String> {
        delay(level).map(drop)
    }

    fn set<'lab>(&self, lab: &'lab RunningLab, level: &Value) -> Result<Box<dyn Guard + 'lab>, TrialError> {
        let delay = delay(level).map_err(TrialError::internal)?;
        Restored::all(lab, "a delay", move |lab, number, link| {
            lab.set_delay(number, link.map_or(delay, |link| link.delay))
        })
    }
}

impl EnvironmentFactor for LinkRate {
    fn name(&self) -> &'static str {
        "link-rate"
    }

    fn check(&self, level: &Value) -> Result<(), String> {
        rate(level).map(drop)
    }

    fn set<'lab>(&self, lab: &'lab RunningLab, level: &Value) -> Result<Box<dyn Guard + 'lab>, TrialError> {
        let rate = rate(level).map_err(TrialError::internal)?;
        Restored::all(lab, "a rate", move |lab, number, link| {
            lab.set_rate(number, link.map_or(rate, |link| link.rate))
        })
    }
}

fn delay(level: &Value) -> Result<TimeSpan, String> {
    let parsed = level.as_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("{level} is no delay: write a time, as in \"2ms\""))
}

fn rate(level: &Value) -> Result<Option<BitRate>, String> {
    if level == UNLIMITED {
        return Ok(None);
    }
    let parsed = level.as_str().and_then(|text| text.parse().ok()).filter(|rate: &BitRate| rate.0 > 0);
    let hint = || format!("{level} is no rate: write bits per second, as in \"100Mb/s\", or \"{UNLIMITED}\"");
    parsed.map(Some).ok_or_else(hint)
}

/// Links that get back what their lab's file says when this is dropped.
struct Restored<'lab, F: Fn(&RunningLab, usize, Option<&LabLink>) -> Result<(), LabError>> {
    lab: &'lab RunningLab,
    links: Vec<usize>,
    set: F,
}

impl<'lab, F: Fn(&RunningLab, usize, Option<&LabLink>) -> Result<(), LabError> + 'lab> Restored<'lab, F> {
    /// Sets every link that can have it; `set` gets the link of the file for its usual value.
    fn all(lab: &'lab RunningLab, what: &str, set: F) -> Result<Box<dyn Guard + 'lab>, TrialError> {
        let has_model =
            |link: &LabLink| matches!(link.effective_backend(), LinkBackend::DelayLine | LinkBackend::Netem);
        let links = lab.file().links.iter().enumerate().filter(|(_, link)| has_model(link));
        let mut restored = Self { lab, links: Vec::new(), set };
        for (number, _) in links {
            (restored.set)(lab, number, None).map_err(|error| failure(error.to_string()))?;
            restored.links.push(number);
        }
        if restored.links.is_empty() {
            return Err(failure(format!(
                "no link of the lab {} can have {what}: all are veth pairs; use a lab with delay lines, as wan-1650km",
                lab.file().name
            )));
        }
        Ok(Box::new(restored))
    }
}

fn failure(message: String) -> TrialError {
    Failure { kind: FailureKind::Unsupported, message }.into()
}

impl<F: Fn(&RunningLab, usize, Option<&LabLink>) -> Result<(), LabError>> Drop for Restored<'_, F> {
    fn drop(&mut self) {
        for number in &self.links {
            // A lab that does not respond fails the trial itself.
            let _ = (self.set)(self.lab, *number, self.lab.file().links.get(*number));
        }
    }
}

impl<F: Fn(&RunningLab, usize, Option<&LabLink>) -> Result<(), LabError>> Guard for Restored<'_, F> {}

impl<F: Fn(&RunningLab, usize, Option<&LabLink>) -> Result<(), LabError>> fmt::Debug for Restored<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restored").field("links", &self.links).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_units() {
        assert!(LinkDelay.check(&"2ms".into()).is_ok() && LinkDelay.check(&"0s".into()).is_ok());
        assert!(LinkRate.check(&"100Mb/s".into()).is_ok() && LinkRate.check(&"unlimited".into()).is_ok());
        for level in [Value::from(2), "fast".into(), "0Mb/s".into()] {
            assert!(LinkDelay.check(&level).unwrap_err().contains("2ms"), "{level}");
            assert!(LinkRate.check(&level).unwrap_err().contains("100Mb/s"), "{level}");
        }
    }
}
