//! Positions of keys in a TOML text.

use std::{collections::HashSet, ops::Range};

use toml::de::{DeTable, DeValue};

/// Keys of a document, each with its position: `link[0].ends[1].host`.
#[derive(Debug, Default)]
pub(crate) struct Document {
    keys: Vec<(String, Range<usize>)>,
    /// Names of those that are tables.
    tables: HashSet<String>,
}

impl Document {
    /// Text that is not TOML has no keys.
    pub(crate) fn read(text: &str) -> Self {
        let mut document = Self::default();
        if let Ok(table) = DeTable::parse(text) {
            document.collect_table("", table.get_ref());
        }
        document
    }

    /// Offset of a key; for an absent one, that of the table that should contain it.
    pub(crate) fn offset_of(&self, key: &str) -> usize {
        let mut key = key;
        loop {
            if let Some((_, place)) = self.keys.iter().find(|(name, _)| name == key) {
                return place.start;
            }
            match key.rfind(['.', '[']) {
                Some(at) => key = &key[..at],
                None => return 0,
            }
        }
    }

    /// The innermost key around an offset.
    pub(crate) fn key_at(&self, offset: usize) -> Option<String> {
        self.innermost(offset, |_| true)
    }

    /// The innermost table around an offset; `None` for the document itself.
    pub(crate) fn table_at(&self, offset: usize) -> Option<String> {
        self.innermost(offset, |name| self.tables.contains(name))
    }

    fn innermost(&self, offset: usize, wanted: impl Fn(&str) -> bool) -> Option<String> {
        self.keys
            .iter()
            .filter(|(name, place)| place.start <= offset && offset <= place.end && wanted(name))
            .min_by_key(|(_, place)| place.end - place.start)
            .map(|(name, _)| name.clone())
    }

    fn collect_table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            let dot = if prefix.is_empty() { "" } else { "." };
            let name = format!("{prefix}{dot}{}", key.get_ref());
            let place = key.span().start.min(value.span().start)..key.span().end.max(value.span().end);
            self.keys.push((name.clone(), place));
            self.collect_value(&name, value.get_ref());
        }
    }

    fn collect_value(&mut self, name: &str, value: &DeValue<'_>) {
        match value {
            DeValue::Table(table) => {
                self.tables.insert(name.to_owned());
                self.collect_table(name, table);
            }
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let name = format!("{name}[{index}]");
                    self.keys.push((name.clone(), item.span()));
                    self.collect_value(&name, item.get_ref());
                }
            }
            _ => {}
        }
    }
}

/// Line of a byte offset, from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}
