//! `clearstream defaults`: what the file of defaults adds to calls.

use clearstream_schema::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::{
    defaults::{self, Defaults, Setting},
    exit::CommandError,
    output::{Output, table::table},
};

/// Show the file of defaults, and which of its options apply to a host.
#[derive(Debug, clap::Args)]
pub struct DefaultsArgs {
    /// Host as written on the command line (default: everything in the file)
    host: Option<String>,
}

/// The options of a file of defaults.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DefaultsDocument {
    /// Path of the file; absent where `CLEARSTREAM_CONFIG` is empty or there is no home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// Whether there is such a file.
    exists: bool,
    /// Its options: of a host, those that win.
    settings: Vec<DefaultSetting>,
}

/// An option of the file.
#[derive(Debug, Serialize, JsonSchema)]
struct DefaultSetting {
    /// The option, without its dashes.
    option: String,
    /// Its value.
    value: Value,
    /// The verb that it is for; absent for all that have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verb: Option<String>,
    /// The host that it is for; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    /// Line in the file.
    line: usize,
}

impl From<Setting> for DefaultSetting {
    fn from(setting: Setting) -> Self {
        let Setting { option, value, verb, host, line, key: _ } = setting;
        Self { option, value, verb, host, line }
    }
}

impl DefaultsArgs {
    /// Reads the file and shows it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let loaded = Defaults::load()?;
        let path = match &loaded {
            Some(loaded) => Some(loaded.path().to_owned()),
            None => defaults::path().map(|(path, _)| path),
        };
        let settings = loaded.as_ref().map(|loaded| loaded.settings(self.host.as_deref()));
        let document = DefaultsDocument {
            file: path.map(|path| path.display().to_string()),
            exists: loaded.is_some(),
            settings: settings.unwrap_or_default().into_iter().map(DefaultSetting::from).collect(),
        };
        Ok(out.result(&document, || document.text(self.host.as_deref()))?)
    }
}

impl DefaultsDocument {
    fn text(&self, host: Option<&str>) -> String {
        let Some(file) = &self.file else { return "no file of defaults is read".to_owned() };
        if !self.exists {
            return format!("{file} does not exist: no option has another default");
        }
        if self.settings.is_empty() {
            let whose = host.map_or(String::new(), |host| format!(" for {host}"));
            return format!("{file} sets nothing{whose}");
        }
        let all = |value: &Option<String>| value.clone().unwrap_or_else(|| "all".to_owned());
        let rows = self.settings.iter().map(|setting| {
            let value = match &setting.value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let option = format!("--{}", setting.option);
            vec![option, value, all(&setting.verb), all(&setting.host), setting.line.to_string()]
        });
        format!("{file}\n{}", table(&["option", "value", "verb", "host", ">line"], rows.collect()))
    }
}
