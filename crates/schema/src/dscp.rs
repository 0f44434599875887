//! Differentiated services code points (RFC 2474) by number or by name.

use std::{fmt, str::FromStr};

#[cfg(debug_assertions)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

/// A code point, 0 to 63: the upper six bits of the former type-of-service
/// byte. Documents carry the number; both are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dscp(pub u8);

/// Largest code point.
const LARGEST: u8 = 63;
/// Names of standardised per-hop behaviours and classes.
const NAMES: [(&str, u8); 24] = [
    // RFC 2474 section 4.1: default forwarding, also called best effort.
    ("cs0", 0),
    ("df", 0),
    ("be", 0),
    // RFC 8622: lower effort.
    ("le", 1),
    // RFC 2474 section 4.2.2: class selectors.
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    // RFC 2597 section 6: assured forwarding, class and drop precedence.
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    // RFC 3246: expedited forwarding.
    ("ef", 46),
];
/// RFC 5865 section 2: admitted voice.
const VOICE_ADMIT: [(&str, u8); 2] = [("va", 44), ("voice-admit", 44)];

/// A code point that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read a DSCP from \"{0}\": write 0 to 63, or a name: ef, cs0 to cs7, af11 to af43, le, va (RFC 4594)"
)]
pub struct ParseDscpError(String);

fn names() -> impl Iterator<Item = (&'static str, u8)> {
    NAMES.into_iter().chain(VOICE_ADMIT)
}

impl Dscp {
    /// Its standard name.
    pub fn name(self) -> Option<&'static str> {
        names().find(|(_, point)| *point == self.0).map(|(name, _)| name)
    }
}

impl FromStr for Dscp {
    type Err = ParseDscpError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = text.trim().to_ascii_lowercase();
        let named = names().find(|(name, _)| *name == wanted).map(|(_, point)| point);
        let number = || wanted.parse().ok().filter(|point| *point <= LARGEST);
        named.or_else(number).map(Self).ok_or_else(|| ParseDscpError(text.to_owned()))
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => f.pad(&self.0.to_string()),
        }
    }
}

impl Serialize for Dscp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.0)
    }
}

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Dscp;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a DSCP of 0 to 63 or its name, such as \"ef\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Dscp, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Dscp, E> {
                let point = u8::try_from(number).ok().filter(|point| *point <= LARGEST);
                point.map(Dscp).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Dscp, E> {
                let positive = u64::try_from(number);
                positive
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
                    .and_then(|number| self.visit_u64(number))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(debug_assertions)]
impl JsonSchema for Dscp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Dscp".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "description": "Differentiated services code point, 0 to 63, or its name",
            "minimum": 0,
            "maximum": LARGEST,
            "examples": [46, "ef"]
        })
    }
}
