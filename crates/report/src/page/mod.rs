//! The HTML pages: templates with escaping on and undefined names refused,
//! the style sheet and the small script that shows values under the pointer.

use minijinja::{AutoEscape, Environment, UndefinedBehavior, context, syntax::SyntaxConfig, value::Serde};
use serde::Serialize;

use crate::{ReportError, document::Document, history, improvement};

const MACROS: &str = include_str!("../page/macros.html");
const REPORT: &str = include_str!("../page/page.html");
const HISTORY: &str = include_str!("../page/history.html");
const IMPROVEMENT: &str = include_str!("../page/improvement.html");
const STYLE: &str = include_str!("../page/style.css");
const IMPROVEMENT_STYLE: &str = include_str!("../page/improvement.css");
const SCRIPT: &str = include_str!("../page/script.js");

/// SHA-256 of the script in base64, as the page's content security policy names
/// it (Content Security Policy level 3, section 2.3.1 "hash-source"): a script that
/// a hostile record smuggled in would not run.
const SCRIPT_HASH: &str = include_str!("../page/script.sha256");

/// The same, for who serves a report and sends a policy with it.
#[must_use]
pub fn script_hash() -> &'static str {
    SCRIPT_HASH.trim()
}

/// Keeps numbers and their units on one line.
fn unbroken(text: String) -> String {
    [" %", " Gb/s", " Mb/s", " ms", " us", " GiB", " MiB", " KiB", " MB"]
        .iter()
        .fold(text, |text, unit| text.replace(unit, &unit.replace(' ', "\u{a0}")))
}

/// The page of a run.
pub(crate) fn render(document: &Document) -> Result<String, ReportError> {
    filled(REPORT, document, STYLE).map_err(ReportError::Page)
}

/// The page of several runs.
pub(crate) fn render_history(document: &history::Document) -> Result<String, ReportError> {
    filled(HISTORY, document, STYLE).map_err(ReportError::Page)
}

/// The page of a closed loop.
pub(crate) fn render_improvement(document: &improvement::Document) -> Result<String, ReportError> {
    filled(IMPROVEMENT, document, &format!("{STYLE}{IMPROVEMENT_STYLE}")).map_err(ReportError::Page)
}

fn filled(template: &str, document: &impl Serialize, style: &str) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_filter("unbroken", unbroken);
    environment.add_template("macros", MACROS)?;
    environment.add_template("page", template)?;
    environment.get_template("page")?.render(context! {
        document => Serde(document),
        style => style,
        script => SCRIPT,
        script_hash => script_hash(),
    })
}
