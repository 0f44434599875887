//! Suggestions for names that do not exist: "did you mean `window`?".

/// The known name nearest to `written`, if near enough for a typing error: at most one edit in every three
/// letters, and never more than two.
///
/// The distance is that of optimal string alignment (Damerau 1964): an inserted,
/// deleted or replaced letter and a swap of neighbours count as one edit each.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = written.chars().count();
    let limit = (length / 3).clamp(1, 2);
    known
        .into_iter()
        // Names of a very different length are at least as distant; the distance itself takes quadratic time.
        .map(|name| (name.chars().count().abs_diff(length), name))
        .filter(|(difference, _)| *difference <= limit)
        .map(|(difference, name)| (strsim::osa_distance(written, name), difference, name))
        .filter(|(edits, ..)| *edits <= limit)
        .min()
        .map(|(_, _, name)| name)
}

/// "; did you mean `name`?", or empty.
pub fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(written, known).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// Splits an error of serde about an unknown key or value: the unknown name and the known ones. Serde puts
/// names between backticks, the unknown one first.
pub fn unknown_name(message: &str) -> Option<(&str, Vec<&str>)> {
    if !message.contains("unknown field") && !message.contains("unknown variant") {
        return None;
    }
    let mut names = message.split('`').skip(1).step_by(2);
    Some((names.next()?, names.collect()))
}

/// Adds a suggestion to a message of serde about an unknown name.
pub fn explain(message: &str) -> String {
    match unknown_name(message) {
        Some((written, known)) => {
            let hint = did_you_mean(written, known.iter().copied());
            format!("there is no `{written}` here{hint} (known: {})", known.join(", "))
        }
        // serde_json ends a message with a position in a text unknown to the user.
        None => message.split(" at line ").next().unwrap_or(message).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_typing_errors_and_nothing_else() {
        let known = ["window", "flows", "sender-cores", "receiver-cores"];
        assert_eq!(nearest("windw", known), Some("window"));
        assert_eq!(nearest("wnidow", known), Some("window"), "neighbours swapped");
        assert_eq!(nearest("sender_core", known), Some("sender-cores"));
        assert_eq!(nearest("sender", known), None);
        assert_eq!(nearest("latency", known), None);
        assert_eq!(nearest("anything", []), None);
    }

    #[test]
    fn the_nearest_of_several_is_independent_of_the_order() {
        assert_eq!(nearest("gw7", ["gw2", "gw1"]), Some("gw1"));
        assert_eq!(nearest("gw7", ["gw1", "gw2"]), Some("gw1"));
        // At the same distance, the one of the same length.
        assert_eq!(nearest("tcp_mme", ["tcp_me", "tcp_mem"]), Some("tcp_mem"));
    }

    #[test]
    fn messages_of_serde_get_a_suggestion() {
        assert_eq!(
            explain("unknown field `dely`, expected one of `delay`, `rate`"),
            "there is no `dely` here; did you mean `delay`? (known: delay, rate)"
        );
        assert_eq!(explain("invalid type: a table at line 3 column 4"), "invalid type: a table");
    }
}
