//! How a finding is made.

use clearstream_schema::{
    routing,
    tune::{Finding, FindingClass, Place, Severity},
};

/// A finding with the id `KEY:CLASS:CAUSE`, to be completed.
pub fn finding(key: &str, class: FindingClass, cause: &str, severity: Severity, message: String) -> Finding {
    // serde's own name of the class, so that id and document agree.
    let name = clearstream_schema::json::to_value(class).ok();
    let name = name.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
    Finding {
        id: format!("{key}:{name}:{cause}"),
        key: key.to_owned(),
        class,
        severity,
        value: None,
        message,
        advice: None,
        place: None,
        interface: None,
        host: None,
        source: String::new(),
    }
}

/// A finding with where it is, what to do and where that comes from.
pub trait With {
    /// At a place of what a host routes by.
    fn at(self, place: Option<&routing::Place>) -> Self;
    /// Of a value.
    fn of(self, value: impl Into<String>) -> Self;
    /// On an interface.
    fn on(self, interface: &str) -> Self;
    /// With what to do instead.
    fn advise(self, advice: impl Into<String>) -> Self;
    /// With the document that says so.
    fn sourced(self, source: &str) -> Self;
}

impl With for Finding {
    fn at(mut self, place: Option<&routing::Place>) -> Self {
        self.place = place.map(|place| Place { file: place.file.clone(), line: place.line.unwrap_or(1) });
        self
    }

    fn of(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    fn on(mut self, interface: &str) -> Self {
        self.interface = Some(interface.to_owned());
        self
    }

    fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    fn sourced(mut self, source: &str) -> Self {
        self.source = source.to_owned();
        self
    }
}
