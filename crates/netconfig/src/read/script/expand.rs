//! What a shell makes of a script before it runs its commands, as far as that is plain: constants in place of
//! variables, a loop over a list as its body for each word, a function as its body where it is called, and rows of a
//! here-document. Lines keep the number that they have in the file.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    pieces::{Piece, braces, first_value, is_constant, numbered, pieces, words},
    shell::{Values, assignment, depth_change, with_values},
};

/// Lines beyond which nothing more is expanded, and functions inside of functions.
const MOST_LINES: usize = 20_000;
const MOST_CALLS: usize = 8;

/// The commands of a script, each with its line.
pub(super) fn expanded(text: &str) -> Vec<Piece> {
    let (pieces, documents) = pieces(text);
    let mut shell = Shell { documents, ..Shell::default() };
    let rest = shell.without_functions(pieces);
    shell.run(&rest);
    // A function that nothing calls may be called by who sources the file.
    for (name, body) in shell.functions.clone() {
        if !shell.called.contains(&name) {
            let line = body.first().map_or(1, |(line, _)| *line);
            shell.done.push((line, "{".to_owned()));
            shell.values.clear();
            shell.run(&body);
            shell.done.push((line, "}".to_owned()));
        }
    }
    shell.done
}

#[derive(Default)]
struct Shell {
    functions: BTreeMap<String, Vec<Piece>>,
    called: BTreeSet<String>,
    documents: BTreeMap<u32, Vec<String>>,
    values: Values,
    arrays: BTreeMap<String, Vec<String>>,
    /// Names that are set where it is not known whether.
    uncertain: BTreeSet<String>,
    depth: i32,
    calls: usize,
    done: Vec<Piece>,
}

impl Shell {
    /// Takes the functions out: `name() {` to `}`.
    fn without_functions(&mut self, pieces: Vec<Piece>) -> Vec<Piece> {
        let mut rest = Vec::new();
        let mut pieces = pieces.into_iter().peekable();
        while let Some((line, text)) = pieces.next() {
            let Some((name, behind)) = function(&text) else {
                rest.push((line, text));
                continue;
            };
            let mut body = Vec::new();
            let mut depth = i32::from(behind.contains('{'));
            let first = behind.trim().trim_start_matches('{').trim();
            if !first.is_empty() {
                body.push((line, first.to_owned()));
            }
            for (line, text) in pieces.by_ref() {
                let bare = text.trim();
                if bare == "{" {
                    depth += 1;
                    if depth == 1 {
                        continue;
                    }
                }
                if bare == "}" || bare.starts_with("} ") {
                    depth -= 1;
                    if depth <= 0 {
                        break;
                    }
                }
                body.push((line, text));
            }
            self.functions.insert(name, body);
        }
        rest
    }

    fn run(&mut self, pieces: &[Piece]) {
        let mut at = 0;
        while let Some((line, text)) = pieces.get(at) {
            at += 1;
            if self.done.len() > MOST_LINES || text.trim().is_empty() || text.trim_start().starts_with('#') {
                self.done.push((*line, text.clone()));
                continue;
            }
            if let Some((head, body, next)) = looped(pieces, at - 1)
                && let Some(rounds) = self.rounds(head, pieces.get(next - 1))
            {
                for round in rounds {
                    self.values.extend(round);
                    self.run(body);
                }
                at = next;
                continue;
            }
            self.command(*line, text);
        }
    }

    fn command(&mut self, line: u32, text: &str) {
        let text = with_values(text, &self.values);
        self.depth += depth_change(text.split([' ', '\t']));
        if self.depth <= 0 {
            for name in std::mem::take(&mut self.uncertain) {
                self.values.remove(&name);
                self.arrays.remove(&name);
            }
        }
        self.assign(&text);
        let words = words(&text);
        let at = words.iter().position(|word| !super::shell::is_prefix(word)).unwrap_or(words.len());
        if let Some((name, arguments)) = words.get(at..).and_then(<[String]>::split_first)
            && let Some(body) = self.functions.get(name).cloned()
            && self.calls < MOST_CALLS
            && !text.trim_end().ends_with('\\')
        {
            self.called.insert(name.clone());
            return self.call(arguments, &body);
        }
        self.done.push((line, text));
    }

    /// The body of a function with its arguments; its lines are those of the function.
    fn call(&mut self, arguments: &[String], body: &[Piece]) {
        let outside: Values = self.values.clone();
        for number in 0..10 {
            self.values.remove(&number.to_string());
        }
        let ends = |word: &&String| matches!(word.as_str(), "||" | "&&" | "|" | "&") || word.starts_with('>');
        let end = arguments.iter().position(|word| ends(&word)).unwrap_or(arguments.len());
        let own = arguments.get(..end).unwrap_or_default();
        for (number, argument) in (1..).zip(own) {
            self.values.insert(number.to_string(), argument.clone());
        }
        for all in ["@", "*"] {
            self.values.insert(all.to_owned(), own.join(" "));
        }
        self.calls += 1;
        self.run(body);
        self.calls -= 1;
        for name in (0..10).map(|number| number.to_string()).chain(["@".to_owned(), "*".to_owned()]) {
            match outside.get(&name) {
                Some(value) => self.values.insert(name, value.clone()),
                None => self.values.remove(&name),
            };
        }
    }

    /// Learns what a command assigns.
    fn assign(&mut self, text: &str) {
        let mut command = text.trim();
        while let Some((first, rest)) = command.split_once([' ', '\t'])
            && matches!(
                first,
                "export" | "readonly" | "local" | "declare" | "typeset" | "-r" | "-a" | "-x" | "-i"
            )
        {
            command = rest.trim_start();
        }
        if let Some(rest) = command.strip_prefix("read ").or_else(|| command.strip_prefix("unset ")) {
            for name in rest.split_whitespace() {
                self.values.remove(name);
            }
            return;
        }
        let Some((name, value)) = assignment(command) else { return };
        let is_added = command.as_bytes().get(name.len()) == Some(&b'+');
        if self.depth > 0 {
            self.uncertain.insert(name.to_owned());
        }
        if let Some(list) = value.strip_prefix('(').and_then(|list| list.trim_end().strip_suffix(')')) {
            let known = self.arrays.entry(name.to_owned()).or_default();
            if !is_added {
                known.clear();
            }
            known.extend(words(list));
            return;
        }
        let (value, behind) = first_value(value);
        let before = if is_added { self.values.get(name).cloned() } else { Some(String::new()) };
        match before.filter(|_| is_constant(&value)) {
            Some(before) => self.values.insert(name.to_owned(), before + &value),
            None => self.values.remove(name),
        };
        // `A=1 command` sets it for the command alone; two assignments are two.
        if let Some(behind) = behind.filter(|behind| assignment(behind).is_some()) {
            self.assign(behind);
        }
    }

    /// What the variables of a loop are in each of its rounds; none where that is not plain.
    fn rounds(&self, head: &str, end: Option<&Piece>) -> Option<Vec<Values>> {
        let head = head.trim();
        if let Some(rest) = head.strip_prefix("for ") {
            let (name, list) = rest.trim().split_once(" in ")?;
            let items = self.items(list)?;
            return Some(
                items.into_iter().map(|item| Values::from([(name.trim().to_owned(), item)])).collect(),
            );
        }
        let names = head.strip_prefix("while ")?.trim().strip_prefix("read ")?;
        let names: Vec<&str> = names.split_whitespace().filter(|name| !name.starts_with('-')).collect();
        let (line, end) = end?;
        let rows = end.contains("<<").then(|| self.documents.get(line)).flatten()?;
        let round = |row: &String| {
            let mut words = row.split_whitespace();
            let mut round = Values::new();
            for (at, name) in names.iter().enumerate() {
                let last = at + 1 == names.len();
                let value = if last {
                    words.by_ref().collect::<Vec<_>>().join(" ")
                } else {
                    words.next()?.to_owned()
                };
                round.insert((*name).to_owned(), value);
            }
            Some(round)
        };
        rows.iter().filter(|row| !row.trim().is_empty()).map(round).collect()
    }

    /// The words of a list: constants, `{1..4}`, `$(seq 1 4)`, `"${ARRAY[@]}"`.
    fn items(&self, list: &str) -> Option<Vec<String>> {
        let list = with_values(list, &self.values);
        let list = list.trim();
        let sequence = list.strip_prefix("$(seq ").and_then(|rest| rest.strip_suffix(')'));
        let sequence =
            sequence.or_else(|| list.strip_prefix("`seq ").and_then(|rest| rest.strip_suffix('`')));
        if let Some(sequence) = sequence {
            let numbers: Vec<i64> =
                sequence.split_whitespace().map(|number| number.parse().ok()).collect::<Option<_>>()?;
            return match numbers[..] {
                [last] => numbered(1, last),
                [first, last] => numbered(first, last),
                _ => None,
            };
        }
        let mut items = Vec::new();
        for word in words(list) {
            let array = word
                .strip_prefix("${")
                .and_then(|rest| rest.strip_suffix("[@]}").or(rest.strip_suffix("[*]}")));
            let range = word.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')?.split_once(".."));
            if let Some(array) = array {
                items.extend(self.arrays.get(array)?.iter().cloned());
            } else if let Some((first, last)) = range {
                items.extend(numbered(first.parse().ok()?, last.parse().ok()?)?);
            } else if let Some(alternatives) = braces(&word) {
                items.extend(alternatives);
            } else {
                items.push(word);
            }
        }
        items.iter().all(|item| is_constant(item)).then_some(items)
    }
}

/// The head and the body of a loop that begins at a piece, and where it ends.
fn looped(pieces: &[Piece], at: usize) -> Option<(&str, &[Piece], usize)> {
    let (_, head) = pieces.get(at)?;
    let is_head = |text: &str| {
        let first = text.split_whitespace().next().unwrap_or_default();
        matches!(first, "for" | "while" | "until" | "select")
    };
    if !is_head(head) {
        return None;
    }
    let begin = at + 1 + usize::from(pieces.get(at + 1).is_some_and(|(_, text)| text.trim().is_empty()));
    if pieces.get(begin)?.1.trim() != "do" {
        return None;
    }
    let mut depth = 1;
    for (offset, (_, text)) in pieces.iter().enumerate().skip(begin + 1) {
        if is_head(text) {
            depth += 1;
        }
        if text.split_whitespace().next() == Some("done") {
            depth -= 1;
            if depth == 0 {
                return Some((head, pieces.get(begin + 1..offset)?, offset + 1));
            }
        }
    }
    None
}

/// `name() {`, `function name {`.
fn function(text: &str) -> Option<(String, &str)> {
    let text = text.trim();
    let (name, behind) = match text.strip_prefix("function ") {
        Some(rest) => {
            let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '(' | '{')).unwrap_or(rest.len());
            (&rest[..end], rest[end..].trim_start().trim_start_matches("()"))
        }
        None => {
            let (name, behind) = text.split_once("()").or_else(|| text.split_once(" ()"))?;
            (name.trim(), behind)
        }
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    let begins = behind.trim().is_empty() || behind.trim_start().starts_with('{');
    (is_name && begins).then(|| (name.to_owned(), behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(script: &str) -> Vec<String> {
        let pieces = expanded(script).into_iter().map(|(line, text)| format!("{line} {}", text.trim()));
        pieces.filter(|text| text.contains(" ip ") && !text.contains("=\"")).collect()
    }

    #[test]
    fn what_is_plain_is_done_as_a_shell_does_it() {
        for (script, expected) in [
            ("A=10.0.0.1\nip r a $A/8 ${A}", &["2 ip r a 10.0.0.1/8 10.0.0.1"][..]),
            ("NET=10.1\nA=\"$NET.0.1\" # the gateway\nip via $A", &["3 ip via 10.1.0.1"]),
            ("A=1\nip $A\nA=2\nip $A", &["2 ip 1", "4 ip 2"]),
            ("ip ${1:-eth0} ${GW:-10.0.0.1}", &["1 ip eth0 10.0.0.1"]),
            // By a program, or in a condition: not known behind it.
            ("A=$(hostname)\nip $A", &["2 ip $A"]),
            ("if x; then\nA=1\nfi\nip $A", &["4 ip $A"]),
            ("for i in 1 2; do ip $i; done", &["1 ip 1", "1 ip 2"]),
            (
                "for i in {1..2} 5\ndo\n  ip 10.$i.0.1 $((100 + i))\ndone",
                &["3 ip 10.1.0.1 101", "3 ip 10.2.0.1 102", "3 ip 10.5.0.1 105"],
            ),
            (
                "for i in $(seq 1 2); do\nfor j in a b; do\nip $i$j\ndone\ndone",
                &["3 ip 1a", "3 ip 1b", "3 ip 2a", "3 ip 2b"],
            ),
            (
                "G=(10.0.0.1 10.0.0.2)\nC=\"ip route add x\"\nfor g in \"${G[@]}\"; do C=\"$C nexthop via $g\"; done\n$C",
                &["4 ip route add x nexthop via 10.0.0.1 nexthop via 10.0.0.2"],
            ),
            (
                "add() {\n  local net=$1\n  ip $net $2\n}\nadd 10/8 a\nadd 11/8 \"b\"",
                &["3 ip 10/8 a", "3 ip 11/8 b"],
            ),
            (
                "while read n g; do\nip $n via $g\ndone <<EOF\n10/8 a\n11/8 b\nEOF",
                &["2 ip 10/8 via a", "2 ip 11/8 via b"],
            ),
            ("for i in $LIST; do\nip $i\ndone\nip x", &["2 ip $i", "4 ip x"]),
            ("cat >f <<EOF\nip x\nEOF\nip y", &["4 ip y"]),
        ] {
            assert_eq!(lines(script), expected, "{script}");
        }
    }
}
