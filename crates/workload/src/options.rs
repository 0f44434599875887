//! Error messages for options, with a suggestion.

use clearstream_configfile::{did_you_mean, explain as explain_other, unknown_name};

/// Converts serde's message for users. `more` are valid names in addition to the fields known to serde.
pub(crate) fn explain(message: &str, more: &[&str]) -> String {
    match unknown_name(message).filter(|_| message.contains("unknown field")) {
        Some((written, mut known)) => {
            known.extend(more);
            let hint = did_you_mean(written, known.iter().copied());
            format!("there is no option `{written}`{hint} (known: {})", known.join(", "))
        }
        None => explain_other(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_option_is_named_with_the_known_ones() {
        let message = "unknown field `windw`, expected one of `window`, `flows` at line 1 column 9";
        let text = explain(message, &["mtu"]);
        assert!(text.starts_with("there is no option `windw`"), "{text}");
        assert!(text.contains("`window`?") && text.ends_with("(known: window, flows, mtu)"), "{text}");
        assert_eq!(explain("write 1 to 9 at line 1 column 2", &[]), "write 1 to 9");
    }
}
