//! Findings that somebody has looked at and does not want to see again.

use std::str::FromStr;

use clearstream_schema::tune::Finding;

/// Ids, each whole or up to a `*` at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MuteList(Vec<String>);

/// A line that names no finding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line}: \"{text}\" is no id of a finding: write KEY:CLASS:CAUSE as lint prints it, or its beginning and *"
)]
pub struct ParseMuteError {
    line: usize,
    text: String,
}

impl FromStr for MuteList {
    type Err = ParseMuteError;

    /// One id in each line; `#` begins a comment, where the reason belongs.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut ids = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let id = line.split('#').next().unwrap_or_default().trim();
            if id.is_empty() {
                continue;
            }
            let is_whole = id.split(':').count() == 3;
            let is_beginning = id.len() > 1 && id.ends_with('*') && !id[..id.len() - 1].contains('*');
            if id.contains(char::is_whitespace) || !(is_whole && !id.contains('*') || is_beginning) {
                return Err(ParseMuteError { line: at + 1, text: id.to_owned() });
            }
            ids.push(id.to_owned());
        }
        Ok(Self(ids))
    }
}

impl MuteList {
    /// Both lists.
    pub fn with(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether a finding is on the list.
    pub fn holds(&self, finding: &Finding) -> bool {
        self.0.iter().any(|id| match id.strip_suffix('*') {
            Some(beginning) => finding.id.starts_with(beginning),
            None => finding.id == *id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ids_with_reasons() {
        let list: MuteList =
            "# agreed in March\nnet.ipv4.tcp_sack:unsafe:no-sack  # lab only\n\nlink.*\n".parse().unwrap();
        assert_eq!(list.0, ["net.ipv4.tcp_sack:unsafe:no-sack", "link.*"]);
        for slip in ["net.ipv4.tcp_sack", "*", "a b:c:d", "a*b:c:d", "a:b:c:d:e"] {
            assert!(slip.parse::<MuteList>().is_err(), "{slip}");
        }
    }
}
