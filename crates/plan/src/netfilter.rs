//! A table of nft(8) of family `inet` as a setting: its text on one line. The
//! program nft reads and writes it, a whole table in one transaction.

use std::{io, process::Output, time::Duration};

use clearstream_schema::{
    plan::Setting,
    routing::table::{TableError, TableText},
};
use clearstream_sys::program::Program;

use crate::{Fault, SettingError};

const PROGRAM: &str = "nft";
/// A table of thousands of elements takes seconds on a busy host.
const WITHIN: Duration = Duration::from_secs(60);

/// Current text; `None` when there is no such table.
pub(crate) fn read(setting: &Setting, name: &str) -> Result<Option<String>, SettingError> {
    check_name(setting, name)?;
    match run(setting, &["list", "table", "inet", name], "") {
        Ok(shown) => Ok(Some(TableText::shown(&String::from_utf8_lossy(&shown.stdout)).to_string())),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The text of `ENOENT`, in the C locale.
fn is_absent(error: &SettingError) -> bool {
    matches!(&*error.fault, Fault::Rejected { source, .. } if source.to_string().contains("No such file or directory"))
}

/// Replaces the table of this name: packets see the old or the new one (nft(8), a
/// file is one transaction).
pub(crate) fn write(setting: &Setting, name: &str, text: &str) -> Result<(), SettingError> {
    check_name(setting, name)?;
    let text = read_text(setting, text)?;
    let empty = format!("table inet {name} {{ }}\ndelete table inet {name}\n");
    run(setting, &["-f", "-"], &format!("{empty}table inet {name} {{ {text}\n}}\n")).map(|_| ())
}

/// Removes the table.
pub(crate) fn remove(setting: &Setting, name: &str) -> Result<(), SettingError> {
    check_name(setting, name)?;
    run(setting, &["delete", "table", "inet", name], "").map(|_| ())
}

/// Fails for a name or text that is not one table, or when nft is not installed.
pub(crate) fn check(setting: &Setting, name: &str, text: &str) -> Result<(), SettingError> {
    check_name(setting, name)?;
    let text = read_text(setting, text)?;
    let empty = format!("table inet {name} {{ }}\n");
    run(setting, &["-c", "-f", "-"], &format!("{empty}table inet {name} {{ {text}\n}}\n")).map(|_| ())
}

/// nft joins its arguments and parses them as commands, so that a name could hold
/// further ones: it is checked before the program runs, for reading too.
fn check_name(setting: &Setting, name: &str) -> Result<(), SettingError> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    if name.starts_with(|letter: char| letter.is_ascii_alphabetic()) && name.chars().all(is_plain) {
        return Ok(());
    }
    let reason = "the name of a table is letters, digits, \"_\", \"-\" and \".\"".to_owned();
    Err(Fault::Invalid { reason }.of(setting))
}

/// Fails for a text that is not the content of one table.
fn read_text(setting: &Setting, text: &str) -> Result<TableText, SettingError> {
    text.parse().map_err(|error: TableError| Fault::Invalid { reason: error.to_string() }.of(setting))
}

fn run(setting: &Setting, arguments: &[&str], input: &str) -> Result<Output, SettingError> {
    // It ends with this process: a change that happens after its journal was reverted
    // would belong to no journal.
    let program = Program::new(PROGRAM).args(arguments).env("LC_ALL", "C").input(input.as_bytes());
    let output = program.within(WITHIN).finishes().run().map_err(|error| {
        if error.is_missing() {
            let reason = "the program nft is not here: install nftables".to_owned();
            return Fault::Invalid { reason }.of(setting);
        }
        Fault::Unreadable { source: io::Error::other(error) }.of(setting)
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let message = stderr.lines().next().unwrap_or("nft failed without a message").trim().to_owned();
    let value = input.lines().rev().nth(1).unwrap_or_default().to_owned();
    Err(Fault::Rejected { value, source: io::Error::other(message) }.of(setting))
}

/// Whether two texts of a table have the same meaning.
pub(crate) fn same(wanted: &str, live: &str) -> bool {
    match (wanted.parse::<TableText>(), live.parse::<TableText>()) {
        (Ok(wanted), Ok(live)) => wanted == live,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and texts that would escape from the table: nft is not run for them.
    #[test]
    fn a_table_is_never_left() {
        let setting = Setting::NetfilterTable { name: "clearstream".to_owned() };
        for name in ["a; flush ruleset", "a b", "a\nflush ruleset", "-a", "", "a{", "é"] {
            for result in [
                read(&setting, name).map(|_| ()),
                remove(&setting, name),
                write(&setting, name, ""),
                check(&setting, name, ""),
            ] {
                let message = result.unwrap_err().to_string();
                assert!(message.contains("the name of a table is"), "{name:?}: {message}");
            }
        }
        for text in [
            "} flush ruleset; table inet b {",
            "comment \"{\"; } flush ruleset; table inet b { comment \"}\";",
            "chain a { } # }",
            "include \"/etc/shadow\";",
            "chain a { include \"/tmp/x\"; }",
            "define x = 1;",
            "chain a { ip saddr $x drop; }",
            "chain a {",
            "comment \"a",
            "chain a { } \r flush ruleset",
        ] {
            for result in [write(&setting, "clearstream", text), check(&setting, "clearstream", text)] {
                assert!(matches!(*result.unwrap_err().fault, Fault::Invalid { .. }), "{text:?}");
            }
        }
    }
}
