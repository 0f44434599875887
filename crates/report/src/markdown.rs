//! Markdown (GitHub's dialect): the same findings and tables without drawings.

use clearstream_schema::human;

use crate::{
    document::Document,
    figure::{Figure, Section, Table, published_text},
};

/// The report as Markdown.
pub(crate) fn render(document: &Document) -> String {
    let mut out = format!("# {}\n\n{}\n\n", text(&document.title), text(&document.subtitle));
    if let Some(band) = &document.band {
        out.push_str(&format!("> **{}**\n\n", text(band)));
    }
    if !document.about.is_empty() {
        out.push_str(&format!("{}\n\n", text(&document.about)));
    }
    out.push_str("## Summary\n\n");
    for headline in &document.headlines {
        out.push_str(&format!(
            "- **{}: {}** ({}). {}",
            text(&headline.label),
            text(&headline.value),
            text(&headline.sure),
            text(&headline.detail)
        ));
        if let Some(path) = &headline.path {
            out.push_str(&format!(" {}.", text(&human::sentence_case(&path.phrase()))));
        }
        if let Some(published) = &headline.published {
            out.push_str(&format!(" *{}*", text(published)));
        }
        out.push('\n');
    }
    for finding in document.findings.iter().filter(|finding| finding.short) {
        out.push_str(&format!(
            "\n### First finding\n\n**{}**: {}\n",
            text(&finding.title),
            text(&finding.text)
        ));
    }
    out.push_str("\n### Confidence\n\n");
    for line in &document.trust {
        out.push_str(&format!("- {}\n", text(line)));
    }
    for part in &document.sections {
        section(&mut out, part);
    }
    settings(&mut out, document);
    for (title, data) in [
        ("Warnings", &document.notices),
        ("Not available from the hosts", &document.missing),
        ("Failed trials", &document.failures),
    ] {
        out.push_str(&format!("\n## {title}\n\n"));
        if data.rows.is_empty() {
            out.push_str("None.\n");
        } else {
            table(&mut out, data);
        }
    }
    out.push_str("\n## Provenance\n\n");
    for fact in &document.provenance {
        out.push_str(&format!("- {}: {}\n", text(&fact.name), text(&fact.value)));
    }
    out
}

fn settings(out: &mut String, document: &Document) {
    out.push_str("\n## Settings: requested and effective\n\n");
    if document.settings.rows.is_empty() {
        out.push_str("No trial of this record has settings.\n");
    } else {
        table(out, &document.settings);
    }
}

fn section(out: &mut String, section: &Section) {
    out.push_str(&format!("\n## {}\n", text(&section.title)));
    if !section.about.is_empty() {
        out.push_str(&format!("\n{}\n", text(&section.about)));
    }
    if let Some(absent) = &section.absent {
        out.push_str(&format!("\n{}\n", text(absent)));
    }
    for part in &section.figures {
        figure(out, part);
    }
}

fn figure(out: &mut String, figure: &Figure) {
    out.push_str(&format!("\n### {}\n\n**{}**\n\n", text(&figure.title), text(&figure.finding)));
    for note in &figure.notes {
        out.push_str(&format!("{}\n\n", text(note)));
    }
    table(out, &figure.table);
    if !figure.published.is_empty() {
        out.push('\n');
        for published in &figure.published {
            out.push_str(&format!(
                "> Published: {} ({})\n",
                text(&published_text(published)),
                text(&published.source)
            ));
        }
    }
}

fn table(out: &mut String, table: &Table) {
    let titles: Vec<String> = table.columns.iter().map(|column| text(&column.title)).collect();
    let rules: Vec<&str> =
        table.columns.iter().map(|column| if column.numeric { "---:" } else { "---" }).collect();
    out.push_str(&format!("| {} |\n|{}|\n", titles.join(" | "), rules.join("|")));
    for row in &table.rows {
        let cells: Vec<String> = row.cells.iter().map(|cell| text(cell)).collect();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
}

/// Text that stays text: on one line, and without meaning to Markdown or HTML.
fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '\n' | '\r' | '\t' => out.push(' '),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' | '~' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_cannot_leave_its_cell() {
        let mut data = Table::new("t", &["Name", "#Value"]);
        data.push(vec!["a|b\n| c".to_owned(), "<script>[x](javascript:1)".to_owned()]);
        let mut out = String::new();
        table(&mut out, &data);
        assert_eq!(
            out,
            "| Name | Value |\n|---|---:|\n| a\\|b \\| c | &lt;script&gt;\\[x\\](javascript:1) |\n"
        );
    }
}
