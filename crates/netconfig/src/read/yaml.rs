//! YAML as a tree in which everything knows its line.

use saphyr_parser::{Event, Parser};

/// Depth and size beyond which a text is no configuration (aliases can make a
/// few lines grow without bound).
const MOST_DEPTH: usize = 48;
const MOST_NODES: usize = 2_000_000;

/// A value and its line, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Yaml {
    pub(crate) line: u32,
    pub(crate) node: Node,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Scalar(String),
    List(Vec<Yaml>),
    Map(Vec<(Yaml, Yaml)>),
}

/// A text that is no YAML: line and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoYaml(pub(crate) u32, pub(crate) String);

impl Yaml {
    /// Value of a key of a map.
    pub(crate) fn get(&self, key: &str) -> Option<&Yaml> {
        self.entries().iter().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value)
    }

    /// Entries of a map; none of anything else.
    pub(crate) fn entries(&self) -> &[(Yaml, Yaml)] {
        match &self.node {
            Node::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Items of a list; a single value counts as a list of one, as Ansible has it.
    pub(crate) fn items(&self) -> &[Yaml] {
        match &self.node {
            Node::List(items) => items,
            Node::Scalar(text) if text.is_empty() => &[],
            _ => std::slice::from_ref(self),
        }
    }

    /// Text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.node {
            Node::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// The value, shortened for messages.
    pub(crate) fn summary(&self) -> String {
        match &self.node {
            Node::Scalar(text) => text.clone(),
            Node::List(items) => {
                format!("[{}]", items.iter().take(4).map(Yaml::summary).collect::<Vec<_>>().join(", "))
            }
            Node::Map(entries) => {
                let pair = |(key, value): &(Yaml, Yaml)| format!("{}: {}", key.summary(), value.summary());
                format!("{{{}}}", entries.iter().take(4).map(pair).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// A list or map that is being read.
struct Open {
    anchor: usize,
    line: u32,
    is_map: bool,
    items: Vec<Yaml>,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: Vec<(usize, Yaml)>,
    documents: Vec<Yaml>,
    node_count: usize,
}

/// Documents of a text.
pub(crate) fn documents(text: &str) -> Result<Vec<Yaml>, NoYaml> {
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    // In YAML a carriage return alone ends a line as well (YAML 1.2, 5.4); in editors and in messages it does not.
    let last = text.lines().count();
    let line_of = |line: usize| u32::try_from(line.min(last).max(1)).unwrap_or(u32::MAX);
    while let Some(event) = parser.next_event() {
        let (event, span) =
            event.map_err(|error| NoYaml(line_of(error.marker().line()), error.info().to_owned()))?;
        let line = line_of(span.start.line());
        builder.event(event, line).map_err(|reason| NoYaml(line, reason.to_owned()))?;
    }
    Ok(builder.documents)
}

impl Builder {
    fn event(&mut self, event: Event<'_>, line: u32) -> Result<(), &'static str> {
        match event {
            Event::Scalar(text, _, anchor, _) => {
                let text = if is_null(&text) { String::new() } else { text.into_owned() };
                self.add(Yaml { line, node: Node::Scalar(text) }, anchor)
            }
            Event::SequenceStart(anchor, _) => self.begin(anchor, line, false),
            Event::MappingStart(anchor, _) => self.begin(anchor, line, true),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => {
                let value =
                    self.anchors.iter().rev().find(|(id, _)| *id == anchor).map(|(_, value)| value.clone());
                let value = value.ok_or("an alias of nothing")?;
                self.node_count += size(&value);
                self.add(value, 0)
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, anchor: usize, line: u32, is_map: bool) -> Result<(), &'static str> {
        if self.open.len() >= MOST_DEPTH {
            return Err("nested too deep for a configuration");
        }
        self.open.push(Open { anchor, line, is_map, items: Vec::new() });
        Ok(())
    }

    fn end(&mut self) -> Result<(), &'static str> {
        let Some(done) = self.open.pop() else { return Ok(()) };
        let node = if done.is_map {
            let mut entries = Vec::with_capacity(done.items.len() / 2);
            let mut items = done.items.into_iter();
            while let (Some(key), Some(value)) = (items.next(), items.next()) {
                entries.push((key, value));
            }
            Node::Map(merged(entries))
        } else {
            Node::List(done.items)
        };
        self.add(Yaml { line: done.line, node }, done.anchor)
    }

    fn add(&mut self, value: Yaml, anchor: usize) -> Result<(), &'static str> {
        self.node_count += 1;
        if self.node_count > MOST_NODES {
            return Err("too large for a configuration");
        }
        if anchor > 0 {
            self.node_count += size(&value);
            self.anchors.push((anchor, value.clone()));
        }
        match self.open.last_mut() {
            Some(open) => open.items.push(value),
            None => self.documents.push(value),
        }
        Ok(())
    }
}

/// `<<: *alias` takes the entries of another map (YAML merge key).
fn merged(entries: Vec<(Yaml, Yaml)>) -> Vec<(Yaml, Yaml)> {
    let (merges, mut own): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|(key, _)| key.text() == Some("<<"));
    for (_, value) in merges {
        for (key, value) in value.entries() {
            if own.iter().all(|(known, _)| known.text() != key.text()) {
                own.push((key.clone(), value.clone()));
            }
        }
    }
    own
}

fn is_null(text: &str) -> bool {
    matches!(text, "~" | "null")
}

fn size(value: &Yaml) -> usize {
    1 + match &value.node {
        Node::Scalar(_) => 0,
        Node::List(items) => items.iter().map(size).sum(),
        Node::Map(entries) => entries.iter().map(|(key, value)| size(key) + size(value)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_its_line() {
        let text = "# head\na: &x\n  b: [1, \"0x2\"]\n  c: |\n    two\n    lines\nd: *x\ne:\n  - {f: g}\n";
        let documents = documents(text).unwrap();
        let root = &documents[0];
        assert_eq!(root.get("a").unwrap().get("b").unwrap().line, 3);
        assert_eq!(root.get("a").unwrap().get("b").unwrap().items()[1].text(), Some("0x2"));
        assert_eq!(root.get("d").unwrap().get("c").unwrap().text(), Some("two\nlines\n"));
        assert_eq!(root.get("e").unwrap().items()[0].line, 9);
    }

    #[test]
    fn texts_that_would_grow_or_nest_without_bound_are_refused() {
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        assert!(documents(&deep).is_err());
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let previous = format!("*a{}", level - 1);
            laughs.push_str(&format!("a{level}: &a{level} [{}]\n", vec![previous; 10].join(", ")));
        }
        assert!(documents(&laughs).is_err());
        assert!(documents("a: [1\nb: }").is_err());
    }
}
