//! Typed values of settings.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

use super::Setting;
use crate::routing::{
    table::TableText,
    values::{AddressValue, NexthopValue, RouteValue, RuleValue},
};

/// Value of a setting. Plans and journals keep its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Of [`Setting::Link`].
    Number(u32),
    /// Of [`Setting::Nexthop`].
    Nexthop(NexthopValue),
    /// Of [`Setting::Route`].
    Route(RouteValue),
    /// Of [`Setting::Rule`].
    Rule(RuleValue),
    /// Of [`Setting::Address`].
    Address(AddressValue),
    /// Of [`Setting::NetfilterTable`].
    Table(TableText),
    /// Text of all others, as the kernel's file or the tool shows it; and a text that is no
    /// value of its setting, which equals only itself and cannot be written.
    Text(String),
}

/// Separates several objects in one place.
const NEXT_OBJECT: &str = " ; ";

impl Value {
    /// The value that a text of this setting means. One with control characters stays as it
    /// is: a value is one line.
    pub fn of(setting: &Setting, text: &str) -> Self {
        let found = match setting {
            _ if text.contains(char::is_control) => None,
            Setting::Link { .. } => read(text, Self::Number),
            Setting::Nexthop { .. } => read(text, Self::Nexthop),
            Setting::Route { .. } => read(text, Self::Route),
            Setting::Rule { .. } => read(text, Self::Rule),
            Setting::Address { .. } => read(text, Self::Address),
            Setting::NetfilterTable { .. } => read(text, Self::Table),
            _ => None,
        };
        found.unwrap_or_else(|| Self::Text(text.to_owned()))
    }

    /// What a place holds that has these objects: nothing, the one, or of several a text that
    /// names them all, which cannot be written.
    pub fn of_objects(mut objects: Vec<Self>) -> Option<Self> {
        if objects.len() < 2 {
            return objects.pop();
        }
        let texts: Vec<String> = objects.iter().map(Self::to_string).collect();
        Some(Self::Text(texts.join(NEXT_OBJECT)))
    }
}

fn read<T: FromStr>(text: &str, value: fn(T) -> Value) -> Option<Value> {
    text.parse().ok().map(value)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Nexthop(value) => write!(f, "{value}"),
            Self::Route(value) => write!(f, "{value}"),
            Self::Rule(value) => write!(f, "{value}"),
            Self::Address(value) => write!(f, "{value}"),
            Self::Table(text) => write!(f, "{text}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
