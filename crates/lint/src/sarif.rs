//! SARIF 2.1.0 (OASIS), the form in which code review systems take findings.

use std::collections::BTreeMap;

use clearstream_schema::tune::{Finding, LintReport, Severity};
use serde_json::{Value, json};

/// One run with one result for each finding; `tool` is the command that looked.
pub fn sarif(report: &LintReport, tool: &str) -> Value {
    let mut rules: BTreeMap<&str, &Finding> = BTreeMap::new();
    for finding in &report.findings {
        rules.entry(&finding.id).or_insert(finding);
    }
    let index: BTreeMap<&str, usize> = rules.keys().enumerate().map(|(at, id)| (*id, at)).collect();
    let descriptors: Vec<Value> = rules
        .values()
        .map(|finding| {
            json!({
                "id": finding.id,
                "shortDescription": { "text": format!("{}: {}", finding.key, finding.id.rsplit(':').next().unwrap_or_default()) },
                "defaultConfiguration": { "level": level(finding.severity) },
                "help": { "text": format!("Source: {}", finding.source) },
            })
        })
        .collect();
    let results: Vec<Value> = report.findings.iter().map(|finding| result(finding, &index)).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": tool,
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": descriptors,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(finding: &Finding, index: &BTreeMap<&str, usize>) -> Value {
    let mut text = format!("{}: {}", finding.key, finding.message);
    if let Some(advice) = &finding.advice {
        text.push_str(&format!(". Instead: {advice}"));
    }
    let parts = [finding.host.as_ref(), finding.interface.as_ref(), Some(&finding.key)];
    let subject = parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join("/");
    let mut location = json!({ "logicalLocations": [{ "fullyQualifiedName": subject, "kind": "resource" }] });
    if let Some(place) = &finding.place {
        let physical = json!({
            "artifactLocation": { "uri": uri(&place.file) },
            "region": { "startLine": place.line.max(1) },
        });
        location.as_object_mut().map(|location| location.insert("physicalLocation".to_owned(), physical));
    }
    json!({
        "ruleId": finding.id,
        "ruleIndex": index.get(finding.id.as_str()),
        "level": level(finding.severity),
        "message": { "text": text },
        "locations": [location],
        "partialFingerprints": { "clearstream/v1": format!("{}@{subject}", finding.id) },
    })
}

/// SARIF 3.27.10.
fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// A path as a URI reference (RFC 3986, 2.3): what is not unreserved or a
/// slash is escaped; a path from the root becomes a file URI.
fn uri(path: &str) -> String {
    let mut uri = if path.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}
