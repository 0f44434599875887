//! What a shell makes of a script before it runs its commands, as far as that is plain: constants in place of
//! variables, a loop over a list as its body for each word, a function as its body where it is called, and rows of a
//! here-document. Lines keep the number that they have in the file.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    pieces::{Piece, braces, first_value, is_constant, numbered, pieces, words},
    shell::{Values, assignment, depth_change, with_values},
};

/// What is done beyond reading each line once, as bytes of commands: loops in loops, functions in functions and lists
/// of lists grow without bound.
const MOST_BYTES: usize = 1 << 20;
/// Commands beyond those that stand in the file.
const MOST_COMMANDS: usize = 20_000;
/// What a call costs beside its commands.
const CALL_BYTES: usize = 64;
/// Functions inside of functions, and loops inside of loops.
const MOST_CALLS: usize = 8;
const MOST_LOOPS: usize = 16;
/// Words of a list, each a round of its loop.
const MOST_ROUNDS: usize = 4096;

/// What a script becomes.
#[derive(Debug)]
pub(super) struct Expanded {
    /// Its commands, each with its line.
    pub(super) commands: Vec<Piece>,
    /// Line at which it became too much: from there on loops and calls stand as they are in the file.
    pub(super) ends_at: Option<u32>,
}

/// The commands of a script.
pub(super) fn expanded(text: &str) -> Expanded {
    let (pieces, documents) = pieces(text);
    let mut shell = Shell {
        documents,
        bytes_left: text.len() + pieces.len() + MOST_BYTES,
        most_commands: pieces.len() + MOST_COMMANDS,
        ..Shell::default()
    };
    let rest = shell.without_functions(pieces);
    shell.run(&rest);
    // A function that nothing calls may be called by who sources the file.
    for (name, body) in shell.functions.clone() {
        if !shell.called.contains(&name) {
            let line = body.first().map_or(1, |(line, _)| *line);
            shell.done.push((line, "{".to_owned()));
            shell.values.forget_all();
            shell.run(&body);
            shell.done.push((line, "}".to_owned()));
        }
    }
    Expanded { commands: shell.done, ends_at: shell.ends_at }
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
    loops: usize,
    done: Vec<Piece>,
    bytes_left: usize,
    most_commands: usize,
    ends_at: Option<u32>,
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

    /// Takes what a step costs; whether there is enough left.
    fn affords(&mut self, line: u32, bytes: usize) -> bool {
        if self.ends_at.is_none() {
            match self.bytes_left.checked_sub(bytes).filter(|_| self.done.len() < self.most_commands) {
                Some(left) => self.bytes_left = left,
                None => self.ends_at = Some(line),
            }
        }
        self.ends_at.is_none()
    }

    fn run(&mut self, pieces: &[Piece]) {
        let mut at = 0;
        while let Some((line, text)) = pieces.get(at) {
            at += 1;
            let is_plain = text.trim().is_empty() || text.trim_start().starts_with('#');
            if !self.affords(*line, text.len() + 1) || is_plain {
                self.done.push((*line, text.clone()));
                continue;
            }
            if is_loop(text) {
                let found = looped(pieces, at - 1);
                let seen = found.map_or(pieces.len(), |(_, next)| next) - at;
                if let (true, Some((body, next))) = (self.affords(*line, seen), found) {
                    if self.repeat(*line, text, body, pieces.get(next - 1)) {
                        at = next;
                        continue;
                    }
                    self.forget_assigned(body);
                }
            }
            self.command(*line, text);
        }
    }

    /// Runs the body of a loop for each of its rounds; whether these are known.
    fn repeat(&mut self, line: u32, head: &str, body: &[Piece], end: Option<&Piece>) -> bool {
        if self.loops >= MOST_LOOPS {
            return false;
        }
        let Some(rounds) = self.rounds(head, end) else { return false };
        let bytes = rounds.iter().flatten().map(|(name, value)| name.len() + value.len() + 1).sum();
        if !self.affords(line, bytes) {
            return false;
        }
        self.loops += 1;
        for round in rounds {
            if !self.affords(line, 1) {
                break;
            }
            for (name, value) in round {
                self.values.set(&name, value);
            }
            self.run(body);
        }
        self.loops -= 1;
        true
    }

    /// What a loop of unknown rounds assigns is known in none of them: it may count.
    fn forget_assigned(&mut self, body: &[Piece]) {
        for (name, _) in body.iter().filter_map(|(_, text)| assignment(text.trim())) {
            self.values.forget(name);
        }
    }

    fn command(&mut self, line: u32, text: &str) {
        let text = with_values(text, &self.values);
        self.depth += depth_change(text.split([' ', '\t']));
        if self.depth <= 0 {
            for name in std::mem::take(&mut self.uncertain) {
                self.values.forget(&name);
                self.arrays.remove(&name);
            }
        }
        self.assign(&text);
        let words = words(&text);
        let at = words.iter().position(|word| !super::shell::is_prefix(word)).unwrap_or(words.len());
        if let Some((name, arguments)) = words.get(at..).and_then(<[String]>::split_first)
            && self.calls < MOST_CALLS
            && !text.trim_end().ends_with('\\')
            && let Some(body) = self.functions.get(name).cloned()
            && self.affords(line, CALL_BYTES + body.len())
        {
            self.called.insert(name.clone());
            return self.call(arguments, &body);
        }
        self.done.push((line, text));
    }

    /// The body of a function with its arguments; its lines are those of the function.
    fn call(&mut self, arguments: &[String], body: &[Piece]) {
        let names = (0..10).map(|number| number.to_string()).chain(["@".to_owned(), "*".to_owned()]);
        let outside: Vec<_> = names.map(|name| (self.values.unset(&name), name)).collect();
        let ends = |word: &&String| matches!(word.as_str(), "||" | "&&" | "|" | "&") || word.starts_with('>');
        let end = arguments.iter().position(|word| ends(&word)).unwrap_or(arguments.len());
        let own = arguments.get(..end).unwrap_or_default();
        for (number, argument) in (1..10).zip(own) {
            self.values.set(&number.to_string(), argument.clone());
        }
        for all in ["@", "*"] {
            self.values.set(all, own.join(" "));
        }
        self.calls += 1;
        self.run(body);
        self.calls -= 1;
        for (value, name) in outside {
            self.values.restore(&name, value);
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
        if let Some(rest) = command.strip_prefix("read ") {
            rest.split_whitespace().for_each(|name| self.values.forget(name));
            return;
        }
        if let Some(rest) = command.strip_prefix("unset ") {
            for name in rest.split_whitespace() {
                self.values.unset(name);
            }
            return;
        }
        // `A=1 command` sets it for the command alone; two assignments are two.
        let mut next = Some(command);
        while let Some(command) = next {
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
            let before =
                if is_added { self.values.get(name).map(str::to_owned) } else { Some(String::new()) };
            match before.filter(|_| is_constant(&value)) {
                Some(before) => self.values.set(name, before + &value),
                None => self.values.forget(name),
            }
            next = behind.filter(|behind| assignment(behind).is_some());
        }
    }

    /// What the variables of a loop are in each of its rounds; none where that is not plain.
    fn rounds(&self, head: &str, end: Option<&Piece>) -> Option<Vec<Round>> {
        let head = head.trim();
        if let Some(rest) = head.strip_prefix("for ") {
            let (name, list) = rest.trim().split_once(" in ")?;
            let items = self.items(list)?;
            return Some(items.into_iter().map(|item| vec![(name.trim().to_owned(), item)]).collect());
        }
        let names = head.strip_prefix("while ")?.trim().strip_prefix("read ")?;
        let names: Vec<&str> = names.split_whitespace().filter(|name| !name.starts_with('-')).collect();
        let (line, end) = end?;
        let rows = end.contains("<<").then(|| self.documents.get(line)).flatten()?;
        let round = |row: &String| {
            let mut words = row.split_whitespace();
            let mut round = Round::new();
            for (at, name) in names.iter().enumerate() {
                let last = at + 1 == names.len();
                let value = if last {
                    words.by_ref().collect::<Vec<_>>().join(" ")
                } else {
                    words.next()?.to_owned()
                };
                round.push(((*name).to_owned(), value));
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
            if items.len() > MOST_ROUNDS {
                return None;
            }
        }
        items.iter().all(|item| is_constant(item)).then_some(items)
    }
}

/// What the variables of a loop are in one of its rounds.
type Round = Vec<(String, String)>;

/// Whether a command begins a loop.
fn is_loop(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    matches!(first, "for" | "while" | "until" | "select")
}

/// The body of the loop that begins at a piece, and where it ends.
fn looped(pieces: &[Piece], at: usize) -> Option<(&[Piece], usize)> {
    let begin = at + 1 + usize::from(pieces.get(at + 1).is_some_and(|(_, text)| text.trim().is_empty()));
    if pieces.get(begin)?.1.trim() != "do" {
        return None;
    }
    let mut depth = 1;
    for (offset, (_, text)) in pieces.iter().enumerate().skip(begin + 1) {
        if is_loop(text) {
            depth += 1;
        }
        if text.split_whitespace().next() == Some("done") {
            depth -= 1;
            if depth == 0 {
                return Some((pieces.get(begin + 1..offset)?, offset + 1));
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
        let pieces =
            expanded(script).commands.into_iter().map(|(line, text)| format!("{line} {}", text.trim()));
        pieces.filter(|text| text.contains(" ip ") && !text.contains("=\"")).collect()
    }

    #[test]
    fn what_is_plain_is_done_as_a_shell_does_it() {
        for (script, expected) in [
            ("A=10.0.0.1\nip r a $A/8 ${A}", &["2 ip r a 10.0.0.1/8 10.0.0.1"][..]),
            ("NET=10.1\nA=\"$NET.0.1\" # the gateway\nip via $A", &["3 ip via 10.1.0.1"]),
            ("A=1\nip $A\nA=2\nip $A", &["2 ip 1", "4 ip 2"]),
            ("ip ${1:-eth0} ${GW:-10.0.0.1}", &["1 ip eth0 10.0.0.1"]),
            // By a program, or in a condition: not known behind it, whatever it would be by default.
            ("A=$(hostname)\nip ${A:-b}", &["2 ip ${A:-b}"]),
            ("unset A\nip ${A:-b}", &["2 ip b"]),
            ("n=1\nwhile x; do\nn=$((n+1))\nip $n\ndone", &["4 ip $n"]),
            ("echo wait if it\nA=1\nip $A", &["3 ip 1"]),
            ("n=$((1 << n))\nip a", &["2 ip a"]),
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

    /// Scripts that become more than a reader can hold are read up to a bound, and end in time.
    #[test]
    fn what_grows_without_bound_is_not_expanded() {
        let of_function = |at: i32| format!("f{at}() {{\n{}}}\n", format!("f{}\n", at - 1).repeat(300));
        let nested = |most: usize, head: &str| head.repeat(most) + &"done\n".repeat(most);
        for (name, script, is_bounded) in [
            ("doubled values", "A=x\n".to_owned() + &"A=\"$A$A\"\n".repeat(60) + "ip $A", false),
            ("empty loops", nested(6, "for a in {1..4000}; do\n"), true),
            ("nested loops", nested(5000, "for i in 1; do\n"), true),
            ("loops without end", "for i in 1\ndo\n".repeat(20_000), true),
            ("many assignments", "A=1 ".repeat(50_000), false),
            ("a long here-document", format!("foo <<EOF\n{}EOF\n", "x\n".repeat(50_000)), false),
            (
                "functions of nothing",
                format!("f0() {{\n}}\n{}f6\n", (1..7).map(of_function).collect::<String>()),
                true,
            ),
            ("a function in itself", format!("f() {{\n{}}}\nf\n", "f\n".repeat(50)), true),
            ("a long body", format!("for i in {{1..4000}}; do\n{}done", "ip x\n".repeat(3000)), true),
            ("a long list", format!("for i in {}; do\nip $i\ndone", "{1..4000} ".repeat(3000)), false),
            ("long words", format!("for i in {}{{1..4000}}; do\nip $i\ndone", "a".repeat(100_000)), false),
            (
                "long rows",
                format!(
                    "for i in {{1..4000}}; do\nwhile read a; do\nip\ndone <<E\n{}E\ndone",
                    "a\n".repeat(3000)
                ),
                true,
            ),
        ] {
            let expanded = expanded(&script);
            let bytes: usize = expanded.commands.iter().map(|(_, text)| text.len() + 1).sum();
            assert!(bytes <= 3 * script.len() + MOST_BYTES + (1 << 20), "{name}: {bytes}");
            assert_eq!(expanded.ends_at.is_some(), is_bounded, "{name}");
        }
    }
}
