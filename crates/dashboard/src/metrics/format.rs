//! Formats of an exposition: OpenMetrics 1.0, or the text format 0.0.4 that came before it
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>) for those who do not name the new one, such as
//! `curl ADDRESS/metrics | promtool check metrics`.

use std::collections::BTreeSet;

use hyper::header::HeaderValue;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Content type and text for a scraper that accepts this.
pub(crate) fn in_accepted_format(
    open_metrics: String,
    accept: Option<&HeaderValue>,
) -> (&'static str, String) {
    let accepted = accept.and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    match accepted.contains("application/openmetrics-text") {
        true => (OPEN_METRICS, open_metrics),
        false => (TEXT, as_text(&open_metrics)),
    }
}

/// A family of counters has the name of its samples there, and neither units nor an end are written.
fn as_text(open_metrics: &str) -> String {
    let described = |line: &str| line.strip_prefix("# TYPE ")?.strip_suffix(" counter").map(str::to_owned);
    let counters: BTreeSet<String> = open_metrics.lines().filter_map(described).collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        match parts(line) {
            Some((keyword, name, rest)) if counters.contains(name) => {
                text.push_str(&format!("# {keyword} {name}_total {rest}"));
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// Keyword, family and the rest of a line of description.
fn parts(line: &str) -> Option<(&str, &str, &str)> {
    let (keyword, rest) = line.strip_prefix("# ")?.split_once(' ')?;
    let (name, rest) = rest.split_once(' ')?;
    Some((keyword, name, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_old_format_are_named_as_their_samples() {
        let open = "# HELP a_b Things.\n# TYPE a_b counter\na_b_total{x=\"1\"} 2\n# HELP c Now.\n# TYPE c gauge\n# UNIT c seconds\nc 1\n# EOF\n";
        let (kind, text) = in_accepted_format(open.to_owned(), Some(&HeaderValue::from_static("*/*")));
        assert_eq!(kind, TEXT);
        assert_eq!(
            text,
            "# HELP a_b_total Things.\n# TYPE a_b_total counter\na_b_total{x=\"1\"} 2\n# HELP c Now.\n# TYPE c gauge\nc 1\n"
        );
        let accept = HeaderValue::from_static("application/openmetrics-text;version=1.0.0,*/*;q=0.1");
        assert_eq!(in_accepted_format(open.to_owned(), Some(&accept)), (OPEN_METRICS, open.to_owned()));
    }
}
