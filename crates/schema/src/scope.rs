//! Permissions of a pairing: the scopes of controllers, made of rights of which each
//! call names the one that it needs.

use std::{fmt, str::FromStr};

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

/// A right of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// Describe the host, read its network settings, send and receive test traffic.
    Measure,
    /// Apply and revert plans: change settings of the host.
    Change,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Measure => "measure",
            Self::Change => "change",
        })
    }
}

/// Rights of a pairing: `measure`, or `measure,change`. In files a list of
/// [`Right`]s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<Right>", into = "Vec<Right>")]
#[schemars(with = "Vec<Right>")]
pub enum Scope {
    /// Measuring only.
    #[default]
    Measure,
    /// Measuring and changing settings.
    MeasureAndChange,
}

/// A list of rights that is no scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write `measure` or `measure,change`")]
pub struct ScopeError;

impl Scope {
    /// Whether a call that needs `right` is permitted.
    pub fn permits(self, right: Right) -> bool {
        self.rights().contains(&right)
    }

    /// Its rights, in the order in which they are written.
    pub fn rights(self) -> &'static [Right] {
        match self {
            Self::Measure => &[Right::Measure],
            Self::MeasureAndChange => &[Right::Measure, Right::Change],
        }
    }
}

impl TryFrom<Vec<Right>> for Scope {
    type Error = ScopeError;
    fn try_from(mut rights: Vec<Right>) -> Result<Self, ScopeError> {
        rights.sort_unstable();
        match rights[..] {
            [Right::Measure] => Ok(Self::Measure),
            [Right::Measure, Right::Change] => Ok(Self::MeasureAndChange),
            _ => Err(ScopeError),
        }
    }
}

impl From<Scope> for Vec<Right> {
    fn from(scope: Scope) -> Self {
        scope.rights().to_vec()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Measure => "measure",
            Self::MeasureAndChange => "measure,change",
        })
    }
}

impl FromStr for Scope {
    type Err = ScopeError;
    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let right = |name: &str| match name.trim() {
            "measure" => Ok(Right::Measure),
            "change" => Ok(Right::Change),
            _ => Err(ScopeError),
        };
        text.split(',').map(right).collect::<Result<Vec<_>, _>>()?.try_into()
    }
}
