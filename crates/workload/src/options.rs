//! Options as people write them: what is wrong with one, and what was
//! probably meant.

use clearstream_schema::document::nearest;

/// `; did you mean NAME?`, or nothing.
pub fn hint<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(written, known).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// An error of serde about an unknown name, split: what was written and what
/// there is. Serde puts names between backticks, the unknown one first.
fn unknown_name(message: &str) -> Option<(&str, Vec<&str>)> {
    if !message.contains("unknown field") && !message.contains("unknown variant") {
        return None;
    }
    let mut names = message.split('`').skip(1).step_by(2);
    Some((names.next()?, names.collect()))
}

/// Serde's message as people read it. `more` are names that there are beside
/// the fields that serde knows.
pub fn explain(message: &str, more: &[&str]) -> String {
    match unknown_name(message) {
        Some((written, mut known)) => {
            let what = if message.contains("unknown field") { "option " } else { "" };
            if !what.is_empty() {
                known.extend(more);
            }
            let hint = hint(written, known.iter().copied());
            format!("there is no {what}`{written}`{hint} (known: {})", known.join(", "))
        }
        // serde_json ends a message with a place in a text that nobody wrote.
        None => message.split(" at line ").next().unwrap_or(message).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_option_is_named_with_what_there_is() {
        let message = "unknown field `windw`, expected one of `window`, `flows` at line 1 column 9";
        let text = explain(message, &["mtu"]);
        assert_eq!(text, "there is no option `windw`; did you mean `window`? (known: window, flows, mtu)");
        assert_eq!(explain("write 1 to 9 at line 1 column 2", &[]), "write 1 to 9");
    }
}
