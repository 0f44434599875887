//! A table of nft(8) of family `inet` as a setting: its text on one line. The
//! program itself writes and reads, a whole table in one transaction.

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use clearstream_schema::plan::Setting;

use crate::{Fault, SettingError};

const PROGRAM: &str = "nft";

/// What is there; `None` when there is no such table.
pub(crate) fn read(setting: &Setting, name: &str) -> Result<Option<String>, SettingError> {
    match run(setting, &["list", "table", "inet", name], "") {
        Ok(shown) => Ok(Some(one_line(&String::from_utf8_lossy(&shown.stdout)))),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The text of `ENOENT`, in the C locale.
fn is_absent(error: &SettingError) -> bool {
    matches!(&*error.fault, Fault::Rejected { source, .. } if source.to_string().contains("No such file or directory"))
}

/// Puts the table in the place of the one of its name: packets find the one or
/// the other (nft(8), a file is one transaction).
pub(crate) fn write(setting: &Setting, name: &str, text: &str) -> Result<(), SettingError> {
    let empty = format!("table inet {name} {{ }}\ndelete table inet {name}\n");
    run(setting, &["-f", "-"], &format!("{empty}table inet {name} {{ {text}\n}}\n")).map(|_| ())
}

/// Takes the table away.
pub(crate) fn remove(setting: &Setting, name: &str) -> Result<(), SettingError> {
    run(setting, &["delete", "table", "inet", name], "").map(|_| ())
}

/// Fails for a name or text that is not one table, or when the program is not there.
pub(crate) fn check(setting: &Setting, name: &str, text: &str) -> Result<(), SettingError> {
    let invalid = |reason: String| Err(Fault::Invalid { reason }.of(setting));
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    if !name.starts_with(|letter: char| letter.is_ascii_alphabetic()) || !name.chars().all(is_plain) {
        return invalid("the name of a table is letters, digits, \"_\", \"-\" and \".\"".to_owned());
    }
    let mut depth = 0i32;
    for letter in text.chars() {
        depth += match letter {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        if depth < 0 {
            return invalid("it closes more braces than it opens".to_owned());
        }
    }
    if depth != 0 {
        return invalid("it opens more braces than it closes".to_owned());
    }
    let empty = format!("table inet {name} {{ }}\n");
    run(setting, &["-c", "-f", "-"], &format!("{empty}table inet {name} {{ {text}\n}}\n")).map(|_| ())
}

fn run(setting: &Setting, arguments: &[&str], input: &str) -> Result<Output, SettingError> {
    let unreadable = |source| Fault::Unreadable { source }.of(setting);
    let mut command = Command::new(PROGRAM);
    // A change that comes after its journal was put back would be nobody's.
    clearstream_sys::process::bind_child_to_parent(&mut command);
    command
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => {
            let reason = "the program nft is not here: install nftables".to_owned();
            Fault::Invalid { reason }.of(setting)
        }
        _ => unreadable(source),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // The program may have ended already; its status says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(unreadable)?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("nft failed and said nothing").trim().to_owned();
    let value = input.lines().rev().nth(1).unwrap_or_default().to_owned();
    Err(Fault::Rejected { value, source: std::io::Error::other(said) }.of(setting))
}

/// The inside of a table as the program shows it, on one line.
fn one_line(shown: &str) -> String {
    let lines: Vec<&str> = shown.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let inside = lines.get(1..lines.len().saturating_sub(1)).unwrap_or_default();
    let mut text = String::new();
    for line in inside {
        text.push_str(line);
        // A block ends with its line; on one line it needs a semicolon too.
        text.push_str(if line.ends_with(['{', ';']) { " " } else { "; " });
    }
    text.trim_end().to_owned()
}

/// Whether two texts of a table say the same: versions of the program differ in
/// blanks, quotes, the names of priorities and the spelling of numbers.
pub(crate) fn same(wanted: &str, live: &str) -> bool {
    words(wanted) == words(live)
}

fn words(text: &str) -> Vec<String> {
    let spaced = text.replace('{', " { ").replace('}', " } ").replace([';', ',', '"'], " ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut plain = Vec::new();
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        // What a chain does unless told otherwise.
        if *word == "policy" && rest.peek() == Some(&&"accept") {
            rest.next();
            continue;
        }
        plain.push(match *word {
            // nft(8), standard priority names.
            "raw" => "-300".to_owned(),
            "mangle" => "-150".to_owned(),
            "filter" if plain.last().is_some_and(|last: &String| last == "priority") => "0".to_owned(),
            word => match word.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16)) {
                Some(Ok(number)) => number.to_string(),
                _ => word.to_owned(),
            },
        });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As nft 1.0.6 shows a table that was given on one line.
    #[test]
    fn one_table_in_two_spellings() {
        let shown = "table inet marks {\n\tchain output {\n\t\ttype route hook output priority mangle; \
                     policy accept;\n\t\tct mark != 0x00000000 meta mark set ct mark\n\t}\n}\n";
        let line = one_line(shown);
        assert_eq!(
            line,
            "chain output { type route hook output priority mangle; policy accept; \
             ct mark != 0x00000000 meta mark set ct mark; };"
        );
        assert!(same(
            "chain output { type route hook output priority -150; ct mark != 0 meta mark set ct mark }",
            &line
        ));
        assert!(!same("chain output { type route hook output priority mangle; }", &line));
        assert!(same("ct mark { 0x1b59, 0x1b5a } accept", "ct mark { 0x00001b59, 0x00001b5a } accept"));
    }
}
