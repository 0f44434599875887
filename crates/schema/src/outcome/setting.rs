//! Settings of a trial: as requested, and as the kernel or program had them. The list has every option that was asked
//! for: what its workload reads back, and else the request alone.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Outcome, Unit};
use crate::JsonSchema;

/// A setting as requested and as the kernel or program had it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingValue {
    /// Role of the host that it belongs to; absent when it is the trial's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Key of its option, as in study files; a name of its own where no option requests it.
    pub name: String,
    /// Key of another option that requested it, as `window` does for `send-buffer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// Unit of both values, where they are numbers with a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// As requested, or the option's default value where it has one; absent when nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<Value>,
    /// As read back; absent when it could not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<Value>,
    /// Nothing was requested, and this program chose what is in effect: no default of the kernel or host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chosen: bool,
    /// The kernel keeps twice of what is requested (socket(7)): such a value is as requested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubled: bool,
}

impl SettingValue {
    /// Without values, of the whole trial.
    pub fn of(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Of the host with this role.
    #[must_use]
    pub fn at(self, role: &str) -> Self {
        Self { role: Some(role.to_owned()), ..self }
    }

    /// With numbers in this unit.
    #[must_use]
    pub fn unit(self, unit: Unit) -> Self {
        Self { unit: Some(unit), ..self }
    }

    /// With what was requested, if anything was.
    #[must_use]
    pub fn requested<T: Serialize>(self, value: Option<T>) -> Self {
        Self { requested: value.map(plain), ..self }
    }

    /// With what is in effect, where that is known.
    #[must_use]
    pub fn effective<T: Serialize>(self, value: Option<T>) -> Self {
        Self { effective: value.map(plain), ..self }
    }

    /// Whether one of the values is known.
    pub fn is_known(&self) -> bool {
        self.requested.is_some() || self.effective.is_some()
    }

    /// Whether what is in effect is twice of what was requested, because the kernel doubles it.
    pub fn is_twice(&self) -> bool {
        let number = |value: &Option<Value>| value.as_ref().and_then(Value::as_u64);
        let twice = number(&self.requested).and_then(|bytes| bytes.checked_mul(2));
        self.doubled && twice.is_some() && twice == number(&self.effective)
    }

    /// Whether something else is in effect than was requested.
    pub fn differs(&self) -> bool {
        let known = self.requested.is_some() && self.effective.is_some();
        known && self.requested != self.effective && !self.is_twice()
    }

    /// Whether this option requested it.
    fn answers(&self, option: &str) -> bool {
        self.name == option || self.requested_by.as_deref() == Some(option)
    }
}

impl Outcome {
    /// With every option that was asked for: those of which no setting tells what became of them are in the list by
    /// their request alone.
    #[must_use]
    pub fn with_requests(mut self, asked: &Map<String, Value>) -> Self {
        for (option, value) in asked {
            if !self.settings.iter().any(|setting| setting.answers(option)) {
                self.settings.push(SettingValue::of(option).requested(Some(value)));
            }
        }
        self
    }
}

/// A plain value is always JSON.
fn plain(value: impl Serialize) -> Value {
    crate::json::to_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_buffer_that_the_kernel_doubled_is_as_requested_and_no_other() {
        let buffer = SettingValue::of("send-buffer").requested(Some(65_536));
        let doubled =
            |effective: u64| SettingValue { doubled: true, ..buffer.clone().effective(Some(effective)) };
        assert!(!doubled(131_072).differs() && doubled(131_072).is_twice());
        assert!(!doubled(65_536).differs());
        assert!(doubled(131_071).differs());
        assert!(buffer.clone().effective(Some(131_072)).differs(), "nothing doubles it");
        assert!(!buffer.differs(), "what was not read back is not known to differ");
        assert!(!SettingValue::of("pacing").effective(Some(1)).differs());
    }

    #[test]
    fn what_no_setting_tells_of_is_there_by_its_request() {
        let window = SettingValue {
            requested_by: Some("window".to_owned()),
            ..SettingValue::of("send-buffer").at("client").requested(Some(1))
        };
        let outcome = Outcome { settings: vec![window.clone()], ..Outcome::default() };
        let asked = json!({ "window": "1B", "duration": "2s" });
        let all = outcome.with_requests(asked.as_object().unwrap()).settings;
        assert_eq!(all, [window, SettingValue::of("duration").requested(Some("2s"))]);
    }
}
