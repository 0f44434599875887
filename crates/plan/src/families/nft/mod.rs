//! A table of nft(8) of family `inet`: its text on one line. The program nft reads and
//! writes it, a whole table in one transaction.

mod keywords;

use std::{io, process::Output, time::Duration};

use clearstream_schema::{plan::Value, routing::table::TableText};
use clearstream_sys::program::Program;

use super::{Family, kernel::check_permitted, parsed};
use crate::{Fault, Host, Needed, modules};

const PROGRAM: &str = "nft";
/// A table of thousands of elements takes seconds on a busy host.
const WITHIN: Duration = Duration::from_secs(60);
/// Tables that are ours begin with this.
const PREFIX: &str = "clearstream";

pub(super) struct Table<'a> {
    pub(super) name: &'a str,
}

impl Table<'_> {
    /// nft joins its arguments and parses them as commands, so that a name could hold
    /// further ones: it is checked before the program runs, for reading too.
    fn check_name(&self) -> Result<(), Fault> {
        if self.name.starts_with(|letter: char| letter.is_ascii_alphabetic()) && is_plain(self.name) {
            return Ok(());
        }
        let reason = "the name of a table is letters, digits, \"_\", \"-\" and \".\"".to_owned();
        Err(Fault::Invalid { reason })
    }
}

fn is_plain(name: &str) -> bool {
    name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.".contains(letter))
}

/// Fails for a text that is not the content of one table.
fn content(value: &Value) -> Result<TableText, Fault> {
    match value {
        Value::Table(content) => Ok(content.clone()),
        other => parsed(other),
    }
}

impl Family for Table<'_> {
    fn is_permitted(&self) -> Result<bool, Fault> {
        Ok(self.name.starts_with(PREFIX) && is_plain(self.name))
    }

    fn read(&self, host: &Host) -> Result<Option<Value>, Fault> {
        host.needs_routing()?;
        self.check_name()?;
        match run(&["list", "table", "inet", self.name], "") {
            Ok(shown) => {
                let shown = TableText::shown(&String::from_utf8_lossy(&shown.stdout));
                Ok(Some(shown.parse().map_or(Value::Text(shown), Value::Table)))
            }
            Err(fault) if is_absent(&fault) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Replaces the table of this name: packets see the old or the new one (nft(8), a
    /// file is one transaction).
    fn write(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        host.needs_routing()?;
        self.check_name()?;
        let (name, content) = (self.name, content(value)?);
        let empty = format!("table inet {name} {{ }}\ndelete table inet {name}\n");
        run(&["-f", "-"], &format!("{empty}table inet {name} {{ {content}\n}}\n")).map(|_| ())
    }

    fn remove(&self, _host: &Host) -> Result<(), Fault> {
        self.check_name()?;
        run(&["delete", "table", "inet", self.name], "").map(|_| ())
    }

    /// Fails for a name or text that is not one table, or when nft is not installed.
    fn check(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        host.needs_routing()?;
        self.check_name()?;
        let (name, content) = (self.name, content(value)?);
        let empty = format!("table inet {name} {{ }}\n");
        run(&["-c", "-f", "-"], &format!("{empty}table inet {name} {{ {content}\n}}\n"))?;
        check_permitted()
    }

    fn check_loaded(&self, host: &Host, value: &Value) -> Result<(), Fault> {
        let text = value.to_string();
        let keywords = keywords::check(&text)?;
        modules::check(host.files(), "nf_tables")?;
        if keywords.has("ct") { modules::check(host.files(), "nft_ct") } else { Ok(()) }
    }

    /// What versions of nft spell differently is the same.
    fn is_met_by(&self, wanted: &Value, live: &Value) -> bool {
        match (content(wanted), content(live)) {
            (Ok(wanted), Ok(live)) => wanted == live,
            _ => false,
        }
    }

    /// It outlives the interfaces that it names.
    fn gone(&self, _host: &Host, _value: Option<&Value>) -> Option<Needed> {
        None
    }
}

/// The text of `ENOENT`, in the C locale.
fn is_absent(fault: &Fault) -> bool {
    matches!(fault, Fault::Rejected { source, .. } if source.to_string().contains("No such file or directory"))
}

fn run(arguments: &[&str], input: &str) -> Result<Output, Fault> {
    // It ends with this process: a change that happens after its journal was reverted
    // would belong to no journal.
    let program = Program::new(PROGRAM).args(arguments).env("LC_ALL", "C").input(input.as_bytes());
    let output = program.within(WITHIN).finishes().run().map_err(|error| {
        if error.is_missing() {
            let reason = "the program nft is not here: install nftables".to_owned();
            return Fault::Invalid { reason };
        }
        Fault::Unreadable { source: io::Error::other(error) }
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let message = stderr.lines().next().unwrap_or("nft failed without a message").trim().to_owned();
    let value = input.lines().rev().nth(1).unwrap_or_default().to_owned();
    Err(Fault::Rejected { value, source: io::Error::other(message) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and texts that would escape from the table: nft is not run for them.
    #[test]
    fn a_table_is_never_left() {
        let host = Host::live();
        let value = |text: &str| Value::Text(text.to_owned());
        for name in ["a; flush ruleset", "a b", "a\nflush ruleset", "-a", "", "a{", "é"] {
            let table = Table { name };
            for result in [
                table.read(&host).map(|_| ()),
                table.remove(&host),
                table.write(&host, &value("")),
                table.check(&host, &value("")),
            ] {
                let message = result.unwrap_err().to_string();
                assert!(message.contains("the name of a table is"), "{name:?}: {message}");
            }
        }
        let table = Table { name: "clearstream" };
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
            for result in [table.write(&host, &value(text)), table.check(&host, &value(text))] {
                assert!(matches!(result.unwrap_err(), Fault::Invalid { .. }), "{text:?}");
            }
        }
    }
}
