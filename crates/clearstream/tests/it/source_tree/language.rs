//! The language of `docs/glossary.md`: retired words are rejected in identifiers,
//! file names, help and error texts.

use std::{fs, path::Path};

use super::{
    root,
    rust::{self, Piece},
};

/// Folders that follow the glossary, their subfolders included.
const FOLDERS: [&str; 9] =
    ["bench", "crates", "docs", "extras", "fabrics", "fuzz", "labs", "packaging", "studies"];

/// The lists of this test itself.
const LISTS: &str = "crates/clearstream/tests/it/source_tree";

/// Words of no identifier, file name, help or error text.
const RETIRED: [&str; 46] = [
    "again",
    "anew",
    "answer",
    "answered",
    "answering",
    "answers",
    "ask",
    "asked",
    "asking",
    "asks",
    "beats",
    "condemn",
    "condemned",
    "condemns",
    "farewell",
    "heard",
    "hears",
    "look",
    "looked",
    "looking",
    "looks",
    "mend",
    "mended",
    "mends",
    "nap",
    "naps",
    "patience",
    "quarrel",
    "reckon",
    "reckoning",
    "said",
    "say",
    "saying",
    "says",
    "talk",
    "talking",
    "talks",
    "tell",
    "telling",
    "tells",
    "told",
    "way",
    "ways",
    "whoever",
    "word",
    "words",
];

/// The same for sequences of words.
const RETIRED_PHRASES: [&str; 18] = [
    "far end",
    "far host",
    "far hosts",
    "far side",
    "in force",
    "in turn",
    "near end",
    "other one",
    "put back",
    "puts back",
    "take back",
    "take out",
    "taken back",
    "taken out",
    "takes back",
    "takes no part",
    "takes out",
    "when absent",
];

/// Those that no guide has either.
const RETIRED_IN_GUIDES: [&str; 3] = ["in turn", "takes no part", "when absent"];

/// Identifiers and file names that stay, with the reason.
const IDENTIFIERS: [(&str, &str); 17] = [
    ("Answered", "published value"),
    ("NoAnswer", "published value"),
    ("NotAnswered", "published value"),
    ("answer_count", "published key"),
    ("answered_count", "published key"),
    ("answers_per_second", "published key"),
    ("asked_forward_fit", "published key"),
    ("asked_forward_ratio", "published key"),
    ("asked_queue", "published key"),
    ("asked_reply_fit", "published key"),
    ("asked_reply_ratio", "published key"),
    ("both_ways", "option and key `both-ways`"),
    ("look_count", "published key"),
    ("tcp_answered_count", "published key"),
    ("AGAIN", "errno"),
    ("EAGAIN", "errno"),
    ("one_way", "standard term: one-way delay"),
];

/// Texts in which a retired word has a standard meaning.
const TEXTS: [(&str, &str); 7] = [
    ("answer rate", "label of the published metric `answer-rate`"),
    ("asks for confirmation", "what a prompt does"),
    ("both ways", "label of a published table"),
    ("both-ways", "option and key"),
    ("one way", "label of a published table, and a distance"),
    ("one-way", "standard term: one-way delay"),
    ("try again later", "what a busy server replies"),
];

fn is_covered(path: &Path) -> bool {
    let path = path.strip_prefix(root()).unwrap();
    !path.starts_with(LISTS)
}

/// Files of the covered folders.
fn files(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if !is_covered(&path) || name == "target" || name == "fixtures" {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// `Self::both_ways` and `NoAnswer` in lower case words: `both ways`, `no answer`.
fn words(name: &str) -> String {
    let mut text = String::new();
    let mut last = ' ';
    for c in name.chars() {
        if c.is_uppercase() && last.is_lowercase() {
            text.push(' ');
        }
        text.push(if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
        last = c;
    }
    text
}

/// First retired word or phrase of a text in lower case.
fn retired(text: &str) -> Option<&'static str> {
    let spaced = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let spaced = format!(" {} ", spaced.collect::<Vec<_>>().join(" "));
    let all = RETIRED.iter().chain(&RETIRED_PHRASES);
    all.copied().find(|word| spaced.contains(&format!(" {word} ")))
}

fn retired_in_name(name: &str) -> Option<&'static str> {
    if IDENTIFIERS.iter().any(|(allowed, _)| *allowed == name) { None } else { retired(&words(name)) }
}

fn retired_in_text(text: &str) -> Option<&'static str> {
    let allowed = |text: String, (allowed, _): &(&str, &str)| text.replace(allowed, "");
    retired(&TEXTS.iter().fold(text.to_lowercase(), allowed))
}

fn covered() -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    FOLDERS.iter().for_each(|folder| files(&root().join(folder), &mut all));
    assert!(all.len() > 300, "only {} files were found", all.len());
    all
}

#[test]
fn no_file_name_has_a_retired_word() {
    let stem = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    let named =
        |path: &std::path::PathBuf| Some(format!("{}: {}", path.display(), retired_in_name(&stem(path))?));
    let found: Vec<String> = covered().iter().filter_map(named).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Identifiers of all Rust files; string literals that are texts (they have a space); doc
/// comments where they are help texts or descriptions of a published schema.
#[test]
fn no_identifier_help_or_error_has_a_retired_word() {
    let described = ["crates/clearstream/src/verbs", "crates/schema/src"].map(|folder| root().join(folder));
    let mut found = Vec::new();
    for path in covered().iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let text = fs::read_to_string(path).unwrap();
        let has_help = described.iter().any(|folder| path.starts_with(folder));
        for (line, piece) in rust::pieces(&text) {
            let word = match piece {
                Piece::Identifier(name) => retired_in_name(name),
                Piece::Text(text) if text.contains(' ') => retired_in_text(text),
                Piece::Comment(text) if has_help && text.starts_with("///") => retired_in_text(text),
                Piece::Text(_) | Piece::Comment(_) => None,
            };
            found.extend(word.map(|word| format!("{}:{line}: {word}", path.display())));
        }
    }
    assert!(found.is_empty(), "{} places: {found:#?}", found.len());
}

#[test]
fn no_guide_has_a_retired_phrase() {
    let mut pages = vec![root().join("README.md")];
    files(&root().join("docs/guide"), &mut pages);
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(page).unwrap().to_lowercase();
        let words = format!(" {} ", text.split_whitespace().collect::<Vec<_>>().join(" "));
        for phrase in RETIRED_IN_GUIDES {
            let found = words.split(phrase).skip(1).any(|rest| !rest.starts_with(char::is_alphanumeric));
            assert!(!found, "{}: {phrase}", page.display());
        }
    }
}

#[test]
fn retired_words_are_found() {
    assert_eq!(retired_in_name("is_asked_once"), Some("asked"));
    assert_eq!(retired_in_name("PathWord"), Some("word"));
    assert_eq!(retired_in_name("in_force"), Some("in force"));
    assert_eq!(retired_in_name("both_ways"), None);
    assert_eq!(retired_in_name("lookup_always"), None);
    assert_eq!(retired_in_text("settings are Put back"), Some("put back"));
    assert_eq!(retired_in_text("one-way delay, looked up"), Some("looked"));
    assert_eq!(retired_in_text("one-way delay of a keyword"), None);
}
