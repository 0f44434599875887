//! Reports of the golden records have the same numbers as ever: `trials.csv` beside each is never
//! changed. `report.md` is today's report (`UPDATE_GOLDEN=1` rewrites it, after sentences were
//! changed on purpose).

use std::{fs, iter::Peekable, path::Path, str::Chars};

use clearstream_record::Reader;
use clearstream_report::{csv, markdown};

/// Times in texts have one of these units, here in nanoseconds.
const TIME_UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];

#[test]
fn reports_of_golden_records_are_what_they_were() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records");
    for name in ["clearstream-40ge", "native-client"] {
        let reader = Reader::open(&folder.join(name)).unwrap();
        let before = |file: &str| fs::read_to_string(folder.join(format!("{name}.{file}"))).unwrap();
        let now = markdown(&reader).unwrap();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(folder.join(format!("{name}.report.md")), &now).unwrap();
        }
        assert_same_contents(&now, &before("report.md"));
        assert_has_columns_of(&csv(&reader).unwrap(), &before("trials.csv"));
    }
}

/// Goodput in the tables of the report against the trials as they are in the file of columns.
#[test]
fn tables_of_golden_records_have_the_goodput_of_their_trials() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/records");
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
fn other_terms_other_numbers_and_other_units_are_detected() {
    let same = |now: &str, before: &str| differs(now, before).is_none();
    assert!(same("2.27 us late", "0.002 ms late"));
    assert!(same("17.0 ms (n = 3)", "17.00 ms (n = 3)"));
    assert!(!same("17.1 ms", "17.00 ms"));
    assert!(!same("2.27 us", "2.27 ms"));
    assert!(!same("2.27 Gb/s", "2.27 Mb/s"));
    assert!(!same("a goodput of 3", "a loss of 3"));
    assert!(!same("1, 2", "1, 2, 3"));
}

/// The columns of that time come first and have what they had, but for those that are empty in
/// every line; metrics that had none follow.
fn assert_has_columns_of(now: &str, before: &str) {
    let (now, before) = (fields(now), fields(before));
    assert_eq!(now.len(), before.len());
    let filled = |column: &usize| before[1..].iter().any(|line| !line[*column].is_empty());
    let kept: Vec<usize> = (0..before[0].len()).filter(filled).collect();
    for (now, before) in now.iter().zip(&before) {
        let before: Vec<&str> = kept.iter().map(|column| before[*column].as_str()).collect();
        assert_eq!(now[..kept.len()], before);
    }
    let is_filled = |column: usize| now[1..].iter().any(|line| !line[column].is_empty());
    assert!((0..now[0].len()).all(is_filled), "a column is empty: {:?}", now[0]);
}

/// The fields of every line; commas within quotes separate none.
fn fields(text: &str) -> Vec<Vec<String>> {
    let line = |line: &str| {
        let (mut fields, mut quoted) = (vec![String::new()], false);
        for letter in line.chars() {
            quoted ^= letter == '"';
            match fields.last_mut() {
                Some(field) if letter != ',' || quoted => field.push(letter),
                _ => fields.push(String::new()),
            }
        }
        fields
    };
    text.split_terminator("\r\n").map(line).collect()
}

/// The format of a number may have changed (17.0 ms for 17.00 ms), not the number
/// within the digits that both texts show, nor a term.
fn assert_same_contents(now: &str, before: &str) {
    for (line, (now, before)) in now.lines().zip(before.lines()).enumerate() {
        if let Some(difference) = differs(now, before) {
            panic!("line {}: {difference}\n{now}\n{before}", line + 1);
        }
    }
    assert_eq!(now.lines().count(), before.lines().count());
}

fn differs(now: &str, before: &str) -> Option<String> {
    let (now, before) = (tokens(now), tokens(before));
    let unlike = now.iter().zip(&before).find(|(now, before)| !now.agrees(before));
    match unlike {
        Some((now, before)) => Some(format!("{now:?} was {before:?}")),
        None => (now.len() != before.len()).then(|| format!("{} tokens were {}", now.len(), before.len())),
    }
}

#[derive(Debug, PartialEq)]
enum Token {
    Term(String),
    /// A number, half of its last digit, and whether it is a time (in nanoseconds).
    Number {
        value: f64,
        half_digit: f64,
        is_time: bool,
    },
}

impl Token {
    fn agrees(&self, other: &Self) -> bool {
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
            tokens.push(Token::Term(take(&mut rest, char::is_alphanumeric)));
        } else {
            tokens.push(Token::Term(next.to_string()));
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
