//! Typed values of settings.

use std::fmt;

use super::Setting;
use crate::routing::{
    ip_arguments::IpArgumentsError,
    table::{TableError, TableText},
    values::{AddressValue, NexthopValue, RouteValue, RuleValue},
};

/// Value of a setting. Plans and journals keep its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
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
    /// Text of all others, as the kernel's file or the tool shows it.
    Text(String),
}

/// A text that is no value of its setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not in the syntax of `ip`.
    #[error(transparent)]
    IpArguments(#[from] IpArgumentsError),
    /// Not the inside of a table of nft.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl Value {
    /// Parses the text of a setting.
    pub fn of(setting: &Setting, text: &str) -> Result<Self, ValueError> {
        Ok(match setting {
            Setting::Nexthop { .. } => Self::Nexthop(text.parse()?),
            Setting::Route { .. } => Self::Route(text.parse()?),
            Setting::Rule { .. } => Self::Rule(text.parse()?),
            Setting::Address { .. } => Self::Address(text.parse()?),
            Setting::NetfilterTable { .. } => Self::Table(text.parse()?),
            Setting::Sysctl(_)
            | Setting::File(_)
            | Setting::Link { .. }
            | Setting::Qdisc { .. }
            | Setting::Ethtool { .. } => Self::Text(text.to_owned()),
        })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nexthop(value) => write!(f, "{value}"),
            Self::Route(value) => write!(f, "{value}"),
            Self::Rule(value) => write!(f, "{value}"),
            Self::Address(value) => write!(f, "{value}"),
            Self::Table(text) => write!(f, "{text}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}
