//! The public items of the crates that nearly every other crate uses.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use super::{
    root,
    rust::{Piece, pieces},
    sources,
};

const CRATES: [&str; 5] = ["control", "diagnose", "host", "stats", "tune"];
const KINDS: [&str; 8] = ["const", "enum", "fn", "mod", "static", "struct", "trait", "type"];

fn identifiers(text: &str) -> BTreeSet<&str> {
    let identifier = |(_, piece)| if let Piece::Identifier(name) = piece { Some(name) } else { None };
    pieces(text).into_iter().filter_map(identifier).collect()
}

/// Name of the item that a line declares public at module level.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.strip_prefix("pub ")?.split(|c: char| !c.is_alphanumeric() && c != '_');
    let kind = words.find(|word| KINDS.contains(word) || *word == "use")?;
    let name = words.find(|word| !matches!(*word, "" | "fn" | "mut" | "unsafe"))?;
    KINDS.contains(&kind).then_some(name)
}

/// Public signatures of a source file, each with the name of its item or the head of its `impl` block:
/// functions up to their body, public fields, variants of public enums, items of public traits, and
/// associated types.
fn signatures(text: &str) -> Vec<(&str, String)> {
    let (mut owner, mut is_whole, mut is_open) = ("", false, false);
    let mut found = Vec::<(&str, String)>::new();
    for line in text.lines().take_while(|line| *line != "#[cfg(test)]") {
        if line.starts_with("pub ") || line.starts_with("impl") {
            owner = declared(line).unwrap_or(line);
            is_whole = line.starts_with("pub enum") || line.starts_with("pub trait");
        }
        let item = line.trim_start();
        if is_open {
            found.last_mut().unwrap().1.push_str(line);
        } else if item.starts_with("pub ") || item.starts_with("type ") || is_whole {
            found.push((owner, line.to_owned()));
            is_open = item.starts_with("pub ") && item.contains("fn ");
        }
        is_open &= !line.contains('{') && !line.ends_with(';');
        if line.starts_with('}') {
            (owner, is_whole) = ("", false);
        }
    }
    found
}

/// What only its own crate uses is `pub(crate)` or private, so that the compiler reports it once nothing does.
#[test]
fn public_items_are_used_by_another_crate_or_by_a_public_signature() {
    let mut files = Vec::new();
    ["crates", "extras", "bench/src", "fuzz/src"]
        .iter()
        .for_each(|folder| sources(&root().join(folder), &mut files));
    let texts: BTreeMap<_, _> =
        files.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect();
    let (mut count, mut unused) = (0, Vec::new());
    for name in CRATES {
        let library = root().join("crates").join(name).join("src");
        let (own, others): (Vec<_>, Vec<_>) = texts.iter().partition(|(path, _)| path.starts_with(&library));
        let package = format!("clearstream_{name}");
        let used: BTreeSet<&str> = others
            .iter()
            .filter(|(_, text)| text.contains(&package))
            .flat_map(|(_, text)| identifiers(text))
            .collect();
        let signatures: Vec<_> = own.iter().flat_map(|(_, text)| signatures(text)).collect();
        let signatures: Vec<_> =
            signatures.iter().map(|(owner, text)| (identifiers(owner), identifiers(text))).collect();
        for (path, text) in own {
            for item in text.lines().filter_map(declared) {
                count += 1;
                let in_signature =
                    signatures.iter().any(|(owner, text)| text.contains(item) && !owner.contains(item));
                if !used.contains(item) && !in_signature {
                    let path = path.strip_prefix(root()).unwrap().display();
                    unused
                        .push(format!("{path}: no other crate uses `{item}`: make it private or pub(crate)"));
                }
            }
        }
    }
    assert!(unused.is_empty(), "{}", unused.join("\n"));
    assert!(count > 100, "only {count} public items were found");
}
