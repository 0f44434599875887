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
    check_name(setting, name)?;
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
    check_name(setting, name)?;
    check_text(setting, text)?;
    let empty = format!("table inet {name} {{ }}\ndelete table inet {name}\n");
    run(setting, &["-f", "-"], &format!("{empty}table inet {name} {{ {text}\n}}\n")).map(|_| ())
}

/// Takes the table away.
pub(crate) fn remove(setting: &Setting, name: &str) -> Result<(), SettingError> {
    check_name(setting, name)?;
    run(setting, &["delete", "table", "inet", name], "").map(|_| ())
}

/// Fails for a name or text that is not one table, or when the program is not there.
pub(crate) fn check(setting: &Setting, name: &str, text: &str) -> Result<(), SettingError> {
    check_name(setting, name)?;
    check_text(setting, text)?;
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

/// Statements that read files or define variables (nft(8), INPUT FILE FORMATS).
const DIRECTIVES: [&str; 4] = ["include", "define", "redefine", "undefine"];

/// Fails for a text that is not the inside of one table: one that closes it and
/// goes on, hides braces in strings or comments, or reads a file.
fn check_text(setting: &Setting, text: &str) -> Result<(), SettingError> {
    let invalid = |reason: &str| Err(Fault::Invalid { reason: reason.to_owned() }.of(setting));
    let (mut depth, mut quoted) = (0i32, false);
    for letter in text.chars() {
        match letter {
            '"' => quoted = !quoted,
            '{' | '}' | ';' if quoted => return invalid("braces and semicolons do not stand in quotes here"),
            '{' => depth += 1,
            '}' => depth -= 1,
            '#' | '$' | '\\' | '`' => {
                return invalid("the text of a table has no \"#\", \"$\", \"\\\" and \"`\"");
            }
            letter if letter.is_control() => return invalid("the text of a table is one line"),
            _ => {}
        }
        if depth < 0 {
            return invalid("it closes more braces than it opens");
        }
    }
    if depth != 0 {
        return invalid("it opens more braces than it closes");
    }
    if quoted {
        return invalid("it ends inside of quotes");
    }
    let words = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != '-';
    match text.split(words).any(|word| DIRECTIVES.contains(&word)) {
        true => invalid("the text of a table includes no file and defines no variable"),
        false => Ok(()),
    }
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

    /// Names and texts by which a table would be left: nothing is run for them.
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
        let ours = "chain arrive { type filter hook prerouting priority mangle; policy accept; iifname \"eth0\" \
                    ct state new ether saddr 02:00:00:00:00:01 ct mark set 0x1b59 comment \"gw1\"; };";
        assert!(check_text(&setting, ours).is_ok());
    }

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
