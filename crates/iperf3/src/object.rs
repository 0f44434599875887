//! A JSON object of a peer, read key by key. Versions differ in their keys: unknown keys are ignored, keys
//! may be absent, and a number may be an integer or have a fraction.

use serde_json::{Map, Value};

use crate::error::ProtocolError;

/// The object, and its name in errors.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    what: &'static str,
    keys: &'a Map<String, Value>,
}

/// The document of a message.
pub(crate) fn parse(what: &'static str, text: &[u8]) -> Result<Value, ProtocolError> {
    clearstream_schema::json::from_slice(text)
        .map_err(|error| ProtocolError::Json { what, reason: error.to_string() })
}

impl<'a> Object<'a> {
    pub(crate) fn new(what: &'static str, value: &'a Value) -> Result<Self, ProtocolError> {
        match value {
            Value::Object(keys) => Ok(Self { what, keys }),
            _ => Err(ProtocolError::Json { what, reason: "another value".to_owned() }),
        }
    }

    pub(crate) fn wrong(&self, reason: String) -> ProtocolError {
        ProtocolError::Value { what: self.what, reason }
    }

    /// A finite number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, ProtocolError> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(value) => match value.as_f64().filter(|number| number.is_finite()) {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(format!("{key} must be a number"))),
            },
        }
    }

    /// A whole number; negative ones mean "not measured" and are absent.
    pub(crate) fn count(&self, key: &str) -> Result<Option<u64>, ProtocolError> {
        if let Some(exact) = self.keys.get(key).and_then(Value::as_u64) {
            return Ok(Some(exact));
        }
        match self.number(key)? {
            Some(number) if number < 0.0 => Ok(None),
            // Above 2^53 some versions write the digits of a double.
            Some(number) if number < u64::MAX as f64 => Ok(Some(number as u64)),
            Some(_) => Err(self.wrong(format!("{key} must fit 64 bits"))),
            None => Ok(None),
        }
    }

    /// A whole number from 0 to `most`.
    pub(crate) fn up_to(&self, key: &str, most: u64) -> Result<Option<u64>, ProtocolError> {
        let in_range = |number: u64| number <= most;
        match (self.number(key)?, self.count(key)?) {
            (None, _) => Ok(None),
            (Some(_), Some(number)) if in_range(number) => Ok(Some(number)),
            _ => Err(self.wrong(format!("{key} must be 0 to {most}"))),
        }
    }

    /// `true`, or a number other than 0.
    pub(crate) fn flag(&self, key: &str) -> bool {
        match self.keys.get(key) {
            Some(Value::Bool(is_set)) => *is_set,
            Some(value) => value.as_f64().is_some_and(|number| number != 0.0),
            None => false,
        }
    }

    /// A text of at most `most` bytes.
    pub(crate) fn text(&self, key: &str, most: usize) -> Result<Option<&'a str>, ProtocolError> {
        match self.keys.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() <= most => Ok(Some(text)),
            Some(_) => Err(self.wrong(format!("{key} must be a text of at most {most} bytes"))),
        }
    }

    /// A list of at most `most` objects.
    pub(crate) fn list(&self, key: &str, most: usize) -> Result<Vec<Object<'a>>, ProtocolError> {
        match self.keys.get(key) {
            Some(Value::Array(list)) if list.len() <= most => {
                list.iter().map(|value| Object::new(self.what, value)).collect()
            }
            _ => Err(self.wrong(format!("{key} must be a list of at most {most}"))),
        }
    }
}
