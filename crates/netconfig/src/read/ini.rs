//! Files in sections: keyfiles (GLib) and systemd's units.

/// A section and its entries.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Section<'a> {
    pub(crate) name: &'a str,
    pub(crate) line: u32,
    pub(crate) entries: Vec<Entry<'a>>,
}

/// `key=value`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: String,
    pub(crate) line: u32,
}

/// Reads sections; gives back the lines that are none of theirs. A backslash
/// at the end goes on with the next line as systemd.syntax(7) has it; in
/// keyfiles none ends with one.
pub(crate) fn sections(text: &str) -> (Vec<Section<'_>>, Vec<(u32, &str)>) {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut strays = Vec::new();
    let mut goes_on = false;
    for (line, text) in (1..).zip(text.lines()) {
        let bare = text.trim();
        if bare.starts_with(['#', ';']) || bare.is_empty() && !goes_on {
            continue;
        }
        let (body, continues) = match bare.strip_suffix('\\') {
            Some(body) => (body.trim_end(), true),
            None => (bare, false),
        };
        let last = sections.last_mut();
        if goes_on {
            if let Some(entry) = last.and_then(|section| section.entries.last_mut()) {
                entry.value.push(' ');
                entry.value.push_str(body);
            }
            goes_on = continues;
            continue;
        }
        if let Some(name) = body.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push(Section { name, line, entries: Vec::new() });
            continue;
        }
        match (body.split_once('='), last) {
            (Some((key, value)), Some(section)) => {
                section.entries.push(Entry { key: key.trim(), value: value.trim().to_owned(), line });
                goes_on = continues;
            }
            _ => strays.push((line, text)),
        }
    }
    (sections, strays)
}

impl Section<'_> {
    /// The last value of a key, ignoring case.
    pub(crate) fn value(&self, key: &str) -> Option<&Entry<'_>> {
        self.entries.iter().rev().find(|entry| entry.key.eq_ignore_ascii_case(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_comments_and_continuations() {
        // The example of systemd.syntax(7), with a stray line before it.
        let text = "stray\n[Section A]\nKeyOne=value 1\nKeyTwo=value 2\n\n# a comment\n\n[Section B]\n\
                    Setting=\"something\" \"some thing\"\nKeyThree=value 3\\\n# in between\n       value 3 continued\n";
        let (sections, strays) = sections(text);
        assert_eq!(strays, [(1, "stray")]);
        assert_eq!(sections[0].name, "Section A");
        assert_eq!(sections[0].entries[1].value, "value 2");
        assert_eq!(sections[1].entries[1].value, "value 3 value 3 continued");
        assert_eq!(sections[1].value("keythree").map(|entry| entry.line), Some(10));
    }
}
