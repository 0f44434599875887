//! An in-memory tree of files and links, from which an opened capture is read. Nothing of a bundle is written
//! to disk, so nothing has to be removed and no path in it can escape.

use std::collections::BTreeMap;

/// One path of a tree; directories are implied by the paths below them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A name that was listed or requested, or a directory; no content is known.
    Name,
    /// A file with its contents.
    File(Vec<u8>),
    /// A link with its target.
    Link(String),
}

/// Files and links by path, without leading slash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryTree {
    pub(crate) entries: BTreeMap<String, Entry>,
}

impl MemoryTree {
    /// Inserts a file, replacing any entry.
    pub fn file(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.entries.insert(path.to_owned(), Entry::File(bytes.into()));
    }

    /// Inserts a link, replacing any entry.
    pub fn link(&mut self, path: &str, target: &str) {
        self.entries.insert(path.to_owned(), Entry::Link(target.to_owned()));
    }

    /// Inserts a name, unless an entry exists.
    pub fn name(&mut self, path: &str) {
        self.entries.entry(path.to_owned()).or_insert(Entry::Name);
    }

    /// The entry at a path; [`Entry::Name`] for an implied directory.
    pub(crate) fn at(&self, path: &str) -> Option<&Entry> {
        match self.entries.get(path) {
            None if path.is_empty() || self.has_below(path) => Some(&Entry::Name),
            found => found,
        }
    }

    /// Whether entries exist below this path, which makes it a directory.
    pub(crate) fn has_below(&self, path: &str) -> bool {
        self.below(path).next().is_some()
    }

    /// The tree below a folder, or this one for an empty name.
    pub(crate) fn inside(self, folder: &str) -> Self {
        if folder.is_empty() {
            return self;
        }
        let inside = |path: String| Some(path.strip_prefix(folder)?.strip_prefix('/')?.to_owned());
        let entries = self.entries.into_iter().filter_map(|(path, entry)| Some((inside(path)?, entry)));
        Self { entries: entries.collect() }
    }

    /// Names directly below a path, ascending.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for rest in self.below(path) {
            let name = rest.split('/').next().unwrap_or_default();
            if names.last().is_none_or(|last| last != name) {
                names.push(name.to_owned());
            }
        }
        // `a-b` sorts between `a` and `a/x` in the order of paths.
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Paths below a directory, relative to it.
    fn below(&self, path: &str) -> impl Iterator<Item = &str> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let start = prefix.len();
        let first = prefix.clone();
        self.entries
            .range(first..)
            .map(|(path, _)| path.as_str())
            .take_while(move |path| path.starts_with(&prefix))
            .map(move |path| &path[start..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_implied() {
        let mut tree = MemoryTree::default();
        tree.file("sys/a/x", "1");
        tree.file("sys/a-b", "2");
        tree.link("sys/a/c", "../a-b");
        tree.name("sys/a");
        assert_eq!(tree.names("sys"), ["a", "a-b"]);
        assert_eq!(tree.names("sys/a"), ["c", "x"]);
        assert_eq!(tree.names(""), ["sys"]);
        assert_eq!((tree.at("sys/a"), tree.at("sys")), (Some(&Entry::Name), Some(&Entry::Name)));
        assert_eq!(tree.at("sys/a/"), None);
        assert!(tree.has_below("sys/a") && !tree.has_below("sys/a-b"));
    }
}
