//! Records of version 1 are read for ever, with the same numbers: `trials.csv` beside each was
//! written by the program of their time, and so was `report.md` before its sentences were
//! changed on purpose (`UPDATE_GOLDEN=1` writes it anew). What its tables say is compared with
//! the trials of that time, whatever the words.
#![allow(clippy::unwrap_used)]

use std::{fs, iter::Peekable, path::Path, str::Chars};

use clearstream_record::Reader;
use clearstream_report::{csv, markdown};

/// Times in texts have one of these units, here in nanoseconds.
const TIME_UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];

#[test]
fn reports_of_old_records_are_what_they_were() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records/v1");
    for name in ["clearstream-40ge", "native-client"] {
        let reader = Reader::open(&folder.join(name)).unwrap();
        assert_eq!(reader.version(), 1);
        let before = |file: &str| fs::read_to_string(folder.join(format!("{name}.{file}"))).unwrap();
        let now = markdown(&reader).unwrap();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(folder.join(format!("{name}.report.md")), &now).unwrap();
        }
        assert_says_the_same(&now, &before("report.md"));
        assert_eq!(csv(&reader).unwrap(), before("trials.csv"), "{name}");
    }
}

/// Goodput in the tables of the report against the trials as they were written in their time.
#[test]
fn tables_of_old_records_have_the_goodput_of_their_trials() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records/v1");
    let trials = fs::read_to_string(folder.join("clearstream-40ge.trials.csv")).unwrap();
    let mut lines = trials.lines().map(|line| line.split(',').collect::<Vec<&str>>());
    let names = lines.next().unwrap();
    let column = |name: &str| names.iter().position(|known| *known == name).unwrap();
    let (experiment, goodput) = (column("experiment"), column("goodput_bps"));
    let text = markdown(&Reader::open(&folder.join("clearstream-40ge")).unwrap()).unwrap();
    let mut compared = 0;
    for trial in lines.filter(|trial| trial.len() == names.len()) {
        let first = match trial[experiment] {
            "local-throughput" => match trial[column("level_flows")] {
                "1" => "1 flow".to_owned(),
                flows => format!("{flows} flows"),
            },
            "window" => {
                let window: clearstream_schema::ByteCount = trial[column("level_window")].parse().unwrap();
                clearstream_schema::human::bytes(window.0)
            }
            _ => continue,
        };
        let Ok(bps) = trial[goodput].parse::<f64>() else { continue };
        let start = format!("| {first} | 1 | ");
        let row =
            text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("{start}"));
        let shown = row.split(' ').next().unwrap();
        let decimals = shown.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let half_digit = 0.5 * 0.1_f64.powi(i32::try_from(decimals).unwrap());
        assert!(
            (shown.parse::<f64>().unwrap() - bps / 1e9).abs() <= half_digit * 1.001,
            "{first}: {shown}, {bps}"
        );
        compared += 1;
    }
    assert_eq!(compared, 17, "three numbers of flows and fourteen windows");
}

#[test]
fn other_words_other_numbers_and_other_units_are_seen() {
    let same = |now: &str, before: &str| differs(now, before).is_none();
    assert!(same("2.27 us late", "0.002 ms late"));
    assert!(same("17.0 ms (n = 3)", "17.00 ms (n = 3)"));
    assert!(!same("17.1 ms", "17.00 ms"));
    assert!(!same("2.27 us", "2.27 ms"));
    assert!(!same("2.27 Gb/s", "2.27 Mb/s"));
    assert!(!same("a goodput of 3", "a loss of 3"));
    assert!(!same("1, 2", "1, 2, 3"));
}

/// The format of a number may have changed (17.0 ms for 17.00 ms), not the number
/// within the digits that both texts show, nor a word.
fn assert_says_the_same(now: &str, before: &str) {
    for (line, (now, before)) in now.lines().zip(before.lines()).enumerate() {
        if let Some(difference) = differs(now, before) {
            panic!("line {}: {difference}\n{now}\n{before}", line + 1);
        }
    }
    assert_eq!(now.lines().count(), before.lines().count());
}

fn differs(now: &str, before: &str) -> Option<String> {
    let (now, before) = (tokens(now), tokens(before));
    let unlike = now.iter().zip(&before).find(|(now, before)| !now.says(before));
    match unlike {
        Some((now, before)) => Some(format!("{now:?} was {before:?}")),
        None => (now.len() != before.len()).then(|| format!("{} tokens were {}", now.len(), before.len())),
    }
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    /// A number, half of its last digit, and whether it is a time (in nanoseconds).
    Number {
        value: f64,
        half_digit: f64,
        is_time: bool,
    },
}

impl Token {
    fn says(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Number { value, half_digit, is_time },
                Self::Number { value: other, half_digit: half, is_time: time },
            ) => is_time == time && (value - other).abs() <= half_digit + half,
            _ => self == other,
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let (mut tokens, mut rest) = (Vec::new(), text.chars().peekable());
    while let Some(&next) = rest.peek() {
        if next.is_ascii_digit() {
            tokens.push(number(&mut rest));
        } else if next.is_alphabetic() {
            tokens.push(Token::Word(take(&mut rest, char::is_alphanumeric)));
        } else {
            tokens.push(Token::Word(next.to_string()));
            rest.next();
        }
    }
    tokens
}

fn number(rest: &mut Peekable<Chars<'_>>) -> Token {
    let mut digits = take(rest, |c| c.is_ascii_digit());
    let mut ahead = rest.clone();
    if ahead.next() == Some('.') && ahead.peek().is_some_and(char::is_ascii_digit) {
        *rest = ahead;
        digits = format!("{digits}.{}", take(rest, |c| c.is_ascii_digit()));
    }
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let (value, half_digit) =
        (digits.parse::<f64>().unwrap(), 0.5 * 0.1_f64.powi(i32::try_from(decimals).unwrap()));
    let mut ahead = rest.clone();
    let unit =
        if ahead.next() == Some(' ') { take(&mut ahead, char::is_alphanumeric) } else { String::new() };
    match TIME_UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, scale)) => {
            *rest = ahead;
            Token::Number { value: value * scale, half_digit: half_digit * scale, is_time: true }
        }
        None => Token::Number { value, half_digit, is_time: false },
    }
}

fn take(rest: &mut Peekable<Chars<'_>>, wanted: impl Fn(char) -> bool) -> String {
    let mut taken = String::new();
    while let Some(next) = rest.next_if(|&c| wanted(c)) {
        taken.push(next);
    }
    taken
}
