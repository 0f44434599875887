//! Kinds of configuration files (labs, fabrics, studies) and how to load one: a built-in document by its
//! name, or a file by its path.

use std::path::{Path, PathBuf};

use clearstream_sys::document::{DOCUMENT_BYTES, read_text};
use serde::de::DeserializeOwned;
use toml::Value;

use crate::{
    ConfigError, Fault, did_you_mean,
    document::{Document, line_of},
    explain,
};

/// One kind of configuration file.
#[derive(Debug)]
pub struct FileKind {
    /// Name in messages: `lab`.
    pub noun: &'static str,
    /// Value of the key `schema`.
    pub schema: &'static str,
    /// Value of the key `version`.
    pub version: u32,
    /// Folder of the built-in documents, for messages.
    pub folder: &'static str,
    /// Name and text of each built-in document.
    pub built_in: &'static [(&'static str, &'static str)],
}

impl FileKind {
    /// Names of the built-in documents.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.built_in.iter().map(|(name, _)| *name)
    }

    /// Finds a built-in document by its name, or a file by its path (anything with a
    /// `/` or ending in `.toml`).
    ///
    /// # Errors
    /// [`ConfigError::Unknown`] and [`ConfigError::Read`].
    pub fn find(&self, name_or_path: &str) -> Result<Source, ConfigError> {
        if let Some((name, text)) = self.built_in.iter().find(|(name, _)| *name == name_or_path) {
            return Ok(Source::new(format!("{}/{name}.toml", self.folder), *text));
        }
        if !name_or_path.contains('/') && !name_or_path.ends_with(".toml") {
            return Err(ConfigError::Unknown {
                noun: self.noun,
                name: name_or_path.to_owned(),
                hint: did_you_mean(name_or_path, self.names()),
                known: self.names().collect::<Vec<_>>().join(", "),
            });
        }
        let path = Path::new(name_or_path);
        match read_text(path, DOCUMENT_BYTES) {
            Ok(text) => Ok(Source::new(path, text)),
            Err(source) => Err(ConfigError::Read { path: path.to_owned(), source }),
        }
    }

    /// Parses the document in a text, after a check of its kind and version.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with the first key that is wrong.
    pub fn read<T: DeserializeOwned>(&self, source: &Source) -> Result<T, ConfigError> {
        self.check_head(source)?;
        toml::from_str(&source.text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            ConfigError::Invalid {
                path: source.path.clone(),
                line: Some(line_of(&source.text, offset)),
                key: source.key_at(offset, error.message()),
                problem: explain(error.message()),
            }
        })
    }

    /// Checks kind and version. A file of another kind has other keys, too; its kind is a better hint than
    /// the first of them. Absent keys are left to the typed parser.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with the value in the document and the expected one.
    pub fn check_head(&self, source: &Source) -> Result<(), ConfigError> {
        let Some(document) = source.table() else { return Ok(()) };
        let fault = |key: &str, problem| Err(source.invalid(Fault { key: key.to_owned(), problem }));
        let Self { noun, schema, version, .. } = self;
        match document.get("schema").and_then(Value::as_str) {
            Some(other) if other != *schema => {
                return fault("schema", format!("this is \"{other}\": a {noun} file needs \"{schema}\""));
            }
            _ => {}
        }
        match document.get("version").and_then(Value::as_integer) {
            Some(other) if other != i64::from(*version) => {
                let problem = format!("version {other} is not supported by this program: use {version}");
                fault("version", problem)
            }
            _ => Ok(()),
        }
    }
}

/// The text of a document and its origin.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// `path` is its name in messages.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// The document without types; `None` when the text is not TOML.
    pub fn table(&self) -> Option<toml::Table> {
        self.text.parse().ok()
    }

    /// Path of the document in messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Line of a key, from 1; for an absent one, that of the table that should contain it.
    pub fn line_of(&self, key: &str) -> usize {
        line_of(&self.text, Document::read(&self.text).offset_of(key))
    }

    /// The error of a failed check of this text.
    pub fn invalid(&self, fault: Fault) -> ConfigError {
        let offset = Document::read(&self.text).offset_of(&fault.key);
        ConfigError::Invalid {
            path: self.path.clone(),
            line: Some(line_of(&self.text, offset)),
            key: fault.key,
            problem: fault.problem,
        }
    }

    /// The key of a TOML parse error.
    fn key_at(&self, offset: usize, message: &str) -> String {
        let document = Document::read(&self.text);
        if let Some(rest) = message.strip_prefix("missing field `") {
            let missing = rest.split('`').next().unwrap_or_default();
            let table = document.table_at(offset);
            return table.map_or_else(|| missing.to_owned(), |table| format!("{table}.{missing}"));
        }
        document
            .key_at(offset)
            .or_else(|| self.line_begins_with(offset))
            .unwrap_or_else(|| "the file".to_owned())
    }

    /// The text before the `=` of a line, for invalid TOML.
    fn line_begins_with(&self, offset: usize) -> Option<String> {
        let line = self.text.lines().nth(line_of(&self.text, offset) - 1)?;
        let key = line.split_once('=')?.0.trim();
        (!key.is_empty()).then(|| key.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: FileKind = FileKind {
        noun: "note",
        schema: "clearstream.note",
        version: 1,
        folder: "notes",
        built_in: &[("first", "schema = \"clearstream.note\"\nversion = 1\ntitle = \"x\"\n")],
    };

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its errors count")]
    struct Note {
        schema: String,
        version: u32,
        title: String,
        #[serde(default)]
        page: Vec<Page>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its errors count")]
    struct Page {
        text: String,
    }

    fn message(text: &str) -> String {
        KIND.read::<Note>(&Source::new("my.toml", text)).unwrap_err().to_string()
    }

    #[test]
    fn built_in_documents_are_found_by_name_and_files_by_path() {
        assert_eq!(KIND.read::<Note>(&KIND.find("first").unwrap()).unwrap().title, "x");
        let error = KIND.find("frist").unwrap_err().to_string();
        assert!(error.contains("did you mean `first`?") && error.contains("./frist.toml"), "{error}");
        for path in ["./first", "first.toml", "/"] {
            assert!(matches!(KIND.find(path), Err(ConfigError::Read { .. })), "{path}");
        }
    }

    #[test]
    fn errors_name_file_line_and_key() {
        let head = "schema = \"clearstream.note\"\nversion = 1\n";
        for (text, expected) in [
            (
                "schema = \"clearstream.lab\"\nhost = 1\n".to_owned(),
                "my.toml:1: schema: this is \"clearstream.lab\"",
            ),
            (head.replace('1', "2"), "my.toml:2: version: version 2 is not supported"),
            (head.to_owned(), "my.toml:1: title: missing field"),
            (
                format!("{head}titel = \"x\"\n"),
                "my.toml:3: titel: there is no `titel` here; did you mean `title`?",
            ),
            (format!("{head}title = 3\n"), "my.toml:3: title: invalid type"),
            (format!("{head}title = x\n"), "my.toml:3: title: "),
            (format!("{head}title = \"x\"\n[[page]]\n"), "my.toml:4: page[0].text: missing field"),
            (
                format!("{head}title = \"x\"\n[[page]]\ntext = \"\"\ntxt = 1\n"),
                "my.toml:6: page[0].txt: there is no `txt` here; did you mean `text`?",
            ),
        ] {
            let message = message(&text);
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn a_check_names_the_line_of_its_key_or_of_its_table() {
        let source = Source::new("my.toml", "title = \"x\"\n[[page]]\ntext = \"\"\n");
        for (key, line) in [("page[0].text", 3), ("page[0].number", 2), ("title", 1), ("elsewhere", 1)] {
            let error = source.invalid(Fault { key: key.to_owned(), problem: "wrong".to_owned() });
            assert_eq!(error.to_string(), format!("my.toml:{line}: {key}: wrong"));
        }
    }
}
