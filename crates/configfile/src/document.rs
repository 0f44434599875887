//! Where in a TOML text a key stands, and which key stands where.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// Keys of a document, each with its place: `link[0].ends[1].host`.
#[derive(Debug)]
pub(crate) struct Document {
    keys: Vec<(String, Range<usize>)>,
}

impl Document {
    /// Text that is not TOML has no keys.
    pub(crate) fn read(text: &str) -> Self {
        let mut keys = Vec::new();
        if let Ok(table) = DeTable::parse(text) {
            collect_table("", table.get_ref(), &mut keys);
        }
        Self { keys }
    }

    /// Where a key starts; of one that is absent, where what should have it
    /// starts.
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

    /// The innermost key around a place.
    pub(crate) fn key_at(&self, offset: usize) -> Option<String> {
        let around = self.keys.iter().filter(|(_, place)| place.start <= offset && offset <= place.end);
        let innermost = around.min_by_key(|(_, place)| place.end - place.start);
        innermost.map(|(name, _)| name.clone())
    }
}

fn collect_table(prefix: &str, table: &DeTable<'_>, keys: &mut Vec<(String, Range<usize>)>) {
    for (key, value) in table.iter() {
        let dot = if prefix.is_empty() { "" } else { "." };
        let name = format!("{prefix}{dot}{}", key.get_ref());
        let place = key.span().start.min(value.span().start)..key.span().end.max(value.span().end);
        keys.push((name.clone(), place));
        collect_value(&name, value.get_ref(), keys);
    }
}

fn collect_value(name: &str, value: &DeValue<'_>, keys: &mut Vec<(String, Range<usize>)>) {
    match value {
        DeValue::Table(table) => collect_table(name, table, keys),
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let name = format!("{name}[{index}]");
                keys.push((name.clone(), item.span()));
                collect_value(&name, item.get_ref(), keys);
            }
        }
        _ => {}
    }
}

/// Line of a byte offset, from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}
