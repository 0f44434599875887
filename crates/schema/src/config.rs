//! The file of defaults: options that would be repeated on every call.

use std::collections::BTreeMap;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name of the format.
pub const CONFIG_SCHEMA: &str = "clearstream.config";

/// Options by the names that they have on the command line, and tables of them by the verb
/// that they are for.
pub type Options = BTreeMap<String, Value>;

/// Defaults of options: the command line wins over a host's table, that one over the rest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConfigFile {
    /// [`CONFIG_SCHEMA`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Options of calls to any host, and of each verb.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defaults: Options,
    /// Options of calls to one host, by the name that is written on the command line.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host: BTreeMap<String, Options>,
}
