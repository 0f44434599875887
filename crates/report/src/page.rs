//! The HTML page: a template with escaping on and undefined names refused,
//! the style sheet and the small script that shows values under the pointer.

use minijinja::{AutoEscape, Environment, UndefinedBehavior, context, syntax::SyntaxConfig, value::Serde};

use crate::{ReportError, document::Document};

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

/// SHA-256 of the script in base64, as the page's content security policy names
/// it (Content Security Policy level 3, section 2.3.1 "hash-source"): a script that
/// a hostile record smuggled in would not run.
const SCRIPT_HASH: &str = include_str!("page/script.sha256");

/// Keeps numbers and their units on one line.
fn unbroken(text: String) -> String {
    [" %", " Gb/s", " Mb/s", " ms", " MiB", " KiB", " MB"]
        .iter()
        .fold(text, |text, unit| text.replace(unit, &unit.replace(' ', "\u{a0}")))
}

/// The page.
pub(crate) fn render(document: &Document) -> Result<String, ReportError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(ReportError::Page)?);
    environment.add_filter("unbroken", unbroken);
    environment.add_template("page", TEMPLATE).map_err(ReportError::Page)?;
    let template = environment.get_template("page").map_err(ReportError::Page)?;
    template
        .render(context! {
            document => Serde(document),
            style => STYLE,
            script => SCRIPT,
            script_hash => SCRIPT_HASH.trim(),
        })
        .map_err(ReportError::Page)
}
