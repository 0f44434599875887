//! Notices of a run, one row per kind: trials that report the same with other
//! numbers are counted, and the numbers become ranges.

use crate::figure::Table;

/// Number of wordings shown per kind; more are counted.
const SHOWN: usize = 3;

/// All notices by their id, in the order in which they first came.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    kinds: Vec<Kind>,
}

#[derive(Debug)]
struct Kind {
    id: String,
    places: Vec<String>,
    /// Trials that have it; none for a notice of the whole run.
    trials: Vec<u32>,
    wordings: Vec<Wording>,
}

/// Texts that differ in their numbers only.
#[derive(Debug)]
struct Wording {
    pieces: Vec<Piece>,
    count: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    /// Lowest and highest as they were written.
    Number(String, String),
}

impl Notices {
    /// Adds a notice of a trial, or of the whole run.
    pub(crate) fn add(&mut self, id: &str, message: &str, place: &str, trial: Option<u32>) {
        let index = match self.kinds.iter().position(|kind| kind.id == id) {
            Some(index) => index,
            None => {
                let (id, places, trials, wordings) = (id.to_owned(), Vec::new(), Vec::new(), Vec::new());
                self.kinds.push(Kind { id, places, trials, wordings });
                self.kinds.len() - 1
            }
        };
        let kind = &mut self.kinds[index];
        if !kind.places.iter().any(|known| known == place) {
            kind.places.push(place.to_owned());
        }
        kind.trials.extend(trial.filter(|trial| kind.trials.last() != Some(trial)));
        let pieces = pieces(message);
        if !kind.wordings.iter_mut().any(|wording| wording.takes(&pieces)) {
            kind.wordings.push(Wording { pieces, count: 1 });
        }
    }

    /// A row per kind; `trial_count` is that of the record.
    pub(crate) fn table(&self, trial_count: usize) -> Table {
        let mut table = Table::new("Warnings", &["Warning", "What was seen", "Where", "#Trials"]);
        for kind in &self.kinds {
            let trials = match kind.trials.len() {
                0 => "\u{2013}".to_owned(),
                count => format!("{count} of {trial_count}"),
            };
            table.push(vec![kind.id.clone(), kind.text(), kind.places.join(", "), trials]);
        }
        table
    }
}

impl Kind {
    /// The most frequent wording, then the others with how often they came.
    fn text(&self) -> String {
        let mut sorted: Vec<&Wording> = self.wordings.iter().collect();
        sorted.sort_by_key(|wording| std::cmp::Reverse(wording.count));
        let mut parts: Vec<String> = Vec::new();
        for (index, wording) in sorted.iter().take(SHOWN).enumerate() {
            match index {
                0 => parts.push(wording.text()),
                _ => parts.push(format!(
                    "in {}: {}",
                    crate::format::count(wording.count, "trial"),
                    wording.text()
                )),
            }
        }
        if let Some(more) = sorted.len().checked_sub(SHOWN).filter(|more| *more > 0) {
            parts.push(format!("and {}", crate::format::count(more, "other wording")));
        }
        parts.join("; ")
    }
}

impl Wording {
    /// Widens the ranges to another text of the same wording; false when it is none.
    fn takes(&mut self, other: &[Piece]) -> bool {
        let same = |(own, other): (&Piece, &Piece)| match (own, other) {
            (Piece::Text(own), Piece::Text(other)) => own == other,
            (Piece::Number(..), Piece::Number(..)) => true,
            _ => false,
        };
        if self.pieces.len() != other.len() || !self.pieces.iter().zip(other).all(same) {
            return false;
        }
        for (own, other) in self.pieces.iter_mut().zip(other) {
            if let (Piece::Number(low, high), Piece::Number(value, _)) = (own, other) {
                if number(value) < number(low) {
                    low.clone_from(value);
                }
                if number(value) > number(high) {
                    high.clone_from(value);
                }
            }
        }
        self.count += 1;
        true
    }

    fn text(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Number(low, high) if low == high => low.clone(),
            Piece::Number(low, high) => format!("{low} to {high}"),
        };
        self.pieces.iter().map(piece).collect()
    }
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or(0.0)
}

/// Text and numbers in turn. Digits that belong to a name (`veth0`, `10.0.0.1`) are text.
fn pieces(message: &str) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for (index, token) in message.split(' ').enumerate() {
        let mut text = if index > 0 { " ".to_owned() } else { String::new() };
        let start = token.find(|c: char| c.is_ascii_digit()).unwrap_or(token.len());
        let end = token.rfind(|c: char| c.is_ascii_digit()).map_or(token.len(), |last| last + 1);
        let digits = &token[start..end.max(start)];
        let alone = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '.');
        let is_number = digits.parse::<f64>().is_ok_and(f64::is_finite)
            && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
            && alone(token[..start].chars().next_back())
            && token[end.max(start)..].chars().next().is_none_or(|c| !c.is_alphanumeric() && c != '_');
        if is_number {
            text.push_str(&token[..start]);
            push_text(&mut all, text);
            all.push(Piece::Number(digits.to_owned(), digits.to_owned()));
            push_text(&mut all, token[end..].to_owned());
        } else {
            text.push_str(token);
            push_text(&mut all, text);
        }
    }
    all
}

fn push_text(all: &mut Vec<Piece>, text: String) {
    match all.last_mut() {
        Some(Piece::Text(last)) => last.push_str(&text),
        _ if text.is_empty() => {}
        _ => all.push(Piece::Text(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_per_kind_with_ranges_and_counts() {
        let mut notices = Notices::default();
        for (trial, percent) in [(1, 100), (2, 87), (3, 92)] {
            let message = format!("on one core, together after {percent} % of the intervals on veth0");
            notices.add("cores-chosen", &message, "flows", Some(trial));
        }
        notices.add("cores-chosen", "on two cores", "window", Some(4));
        notices.add("clock", "10.0.0.1:50 responded", "whole run", None);
        let rows = notices.table(47).rows;
        assert_eq!(rows.len(), 2);
        assert_eq!(
            rows[0].cells,
            [
                "cores-chosen",
                "on one core, together after 87 to 100 % of the intervals on veth0; in 1 trial: on two cores",
                "flows, window",
                "4 of 47"
            ]
        );
        assert_eq!(rows[1].cells, ["clock", "10.0.0.1:50 responded", "whole run", "\u{2013}"]);
    }

    #[test]
    fn names_and_addresses_are_no_numbers() {
        assert_eq!(pieces("veth0 of 10.0.0.1:5201 x").len(), 1);
        let found = pieces("took (34 %), 5.5 s.");
        assert_eq!(
            found,
            [
                Piece::Text("took (".to_owned()),
                Piece::Number("34".to_owned(), "34".to_owned()),
                Piece::Text(" %), ".to_owned()),
                Piece::Number("5.5".to_owned(), "5.5".to_owned()),
                Piece::Text(" s.".to_owned()),
            ]
        );
        assert!(pieces("").len() <= 1);
    }

    #[test]
    fn many_wordings_are_counted() {
        let mut notices = Notices::default();
        for name in ["alpha", "beta", "gamma", "delta", "epsilon"] {
            notices.add("one", name, "flows", Some(1));
        }
        assert!(notices.table(1).rows[0].cells[1].ends_with("; and 2 other wordings"));
    }
}
