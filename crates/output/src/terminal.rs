//! Text on its way to a terminal. Names, titles and messages come from files,
//! captures and peers; a terminal obeys the control characters in them. Here,
//! and only here, they are escaped: C0 and C1 controls (ECMA-48), and
//! characters that reorder or hide text (Unicode UAX #9, UTR #36 section 2.5).

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, IsTerminal},
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// What this process prints goes to a launcher of ranks.
static IS_OF_LAUNCHER: AtomicBool = AtomicBool::new(false);

/// From here on nothing is written for a terminal: this process is a rank, and the terminal that it sees is one that
/// its launcher made (Open MPI's `mpirun`), whose own output may be a file.
pub fn of_launcher() {
    IS_OF_LAUNCHER.store(true, Ordering::Relaxed);
}

/// Whether [`of_launcher`] was called.
pub fn is_of_launcher() -> bool {
    IS_OF_LAUNCHER.load(Ordering::Relaxed)
}

/// Whether people see a stream on a terminal.
pub fn is_for_people(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && !is_of_launcher()
}

/// Whether a stream takes colours.
pub fn wants_colours(stream: &impl IsTerminal) -> bool {
    is_for_people(stream) && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Style of a piece of our own text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A lost capability, a failed trial.
    Warning,
    /// What a command was run for.
    Figure,
}

/// Noncharacters (Unicode section 23.7) that stand for our own styles until
/// the text is printed; an escape sequence of others can so never be taken for
/// one of ours.
const WARNING: char = '\u{fdd0}';
const FIGURE: char = '\u{fdd1}';
const PLAIN: char = '\u{fdd2}';
/// Before a line that is never broken: a command to copy.
pub const VERBATIM: char = '\u{fdd3}';

/// Takes no place on the screen.
pub fn is_mark(c: char) -> bool {
    matches!(c, WARNING..=VERBATIM)
}

/// Marks a piece of text; [`printable`] makes escape sequences of the marks.
pub fn styled(style: Style, text: &str) -> String {
    let mark = match style {
        Style::Warning => WARNING,
        Style::Figure => FIGURE,
    };
    format!("{mark}{text}{PLAIN}")
}

/// The text with what a terminal would obey made visible. Lines and tabs stay.
/// Marks become escape sequences where `colours` are wanted.
pub fn printable(text: &str, colours: bool) -> Cow<'_, str> {
    let harmless = |c: char| !is_obeyed(c) && !is_mark(c);
    let Some(first) = text.find(|c| !harmless(c)) else { return Cow::Borrowed(text) };
    let mut shown = String::with_capacity(text.len() + 16);
    shown.push_str(&text[..first]);
    for c in text[first..].chars() {
        match c {
            WARNING if colours => shown.push_str("\x1b[33m"),
            FIGURE if colours => shown.push_str("\x1b[1m"),
            PLAIN if colours => shown.push_str("\x1b[0m"),
            VERBATIM => {}
            c if harmless(c) => shown.push(c),
            // Writing to a string cannot fail.
            c => drop(write!(shown, "{}", c.escape_unicode())),
        }
    }
    Cow::Owned(shown)
}

/// A cell or a name: as [`printable`] without colours.
pub fn escaped(text: &str) -> String {
    printable(text, false).into_owned()
}

/// A terminal acts on it, or shows text in another order than it stands.
fn is_obeyed(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // Directional marks, embeddings, overrides and isolates.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}' => true,
        // Line and paragraph separators, tags.
        '\u{2028}' | '\u{2029}' | '\u{e0000}'..='\u{e007f}' => true,
        c => c.is_control(),
    }
}

/// JSON whose strings carry such characters as `\uXXXX`: the same document,
/// harmless on a terminal. serde_json escapes those below U+0020 only, as RFC
/// 8259 section 7 requires.
pub struct Escaping<F>(F);

impl Escaping<CompactFormatter> {
    /// Without spaces.
    pub fn compact() -> Self {
        Self(CompactFormatter)
    }
}

impl Escaping<PrettyFormatter<'_>> {
    /// A key or an element a line.
    pub fn pretty() -> Self {
        Self(PrettyFormatter::new())
    }
}

impl<F: Formatter> Formatter for Escaping<F> {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_obeyed(*c)) {
            out.write_all(&rest.as_bytes()[..at])?;
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }
    fn end_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }
    fn end_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }
    fn begin_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }
    fn end_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }
    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }
    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }
    fn end_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize as _;

    use super::*;

    /// Each of them alone makes a terminal act, or shows text in another order.
    const HOSTILE: [&str; 10] = [
        "\x1b[2J",
        "\x1b]0;title\x07",
        "\u{9b}31m",
        "\u{90}q",
        "\r",
        "\x08",
        "\x7f",
        "\u{202e}gpj.exe",
        "\u{2066}",
        "\u{2028}",
    ];

    #[test]
    fn nothing_that_a_terminal_obeys_passes() {
        for text in HOSTILE {
            for colours in [false, true] {
                let shown = printable(text, colours).into_owned();
                assert!(!shown.chars().any(is_obeyed), "{text:?}: {shown:?}");
                assert!(shown.contains("\\u{"), "{text:?} is made visible: {shown:?}");
            }
        }
        assert_eq!(printable("a\tb\nπ – 40 Gb/s", true), "a\tb\nπ – 40 Gb/s");
    }

    #[test]
    fn our_own_styles_are_the_only_escape_sequences() {
        let text = styled(Style::Warning, "\x1b[33mevil");
        assert_eq!(printable(&text, true), "\x1b[33m\\u{1b}[33mevil\x1b[0m");
        assert!(!printable(&text, false).contains('\x1b'), "none without colours");
    }

    #[test]
    fn json_stays_the_same_document() {
        for text in HOSTILE.into_iter().chain(["plain \"quoted\" \\ \u{1f600}"]) {
            let mut compact = Vec::new();
            let mut ser = serde_json::Serializer::with_formatter(&mut compact, Escaping::compact());
            [text].serialize(&mut ser).expect("a document");
            let written = String::from_utf8(compact).expect("UTF-8");
            assert!(!written.chars().any(is_obeyed), "{written:?}");
            assert_eq!(clearstream_schema::json::from_str::<Vec<String>>(&written).expect("JSON"), [text]);
        }
    }
}
