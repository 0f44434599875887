//! Addresses with the length of their network part, written as `10.0.0.1/24`.

use std::{borrow::Cow, fmt, net::IpAddr, str::FromStr};

#[cfg(debug_assertions)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// An address with the length of its network part, `10.0.0.1/24`. Also a
/// network, where the rest of the address is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// Address.
    pub address: IpAddr,
    /// Bits of the network part.
    pub length: u8,
}

/// Text that is no prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no address with prefix length: write it as 10.0.0.1/24 or fd00::1/64")]
pub struct ParsePrefixError(String);

impl FromStr for Prefix {
    type Err = ParsePrefixError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParsePrefixError(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(fail)?;
        let address: IpAddr = address.parse().map_err(|_| fail())?;
        let length: u8 = length.parse().map_err(|_| fail())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if length > most {
            return Err(fail());
        }
        Ok(Self { address, length })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Prefix {
    /// A single address: length 32 or 128.
    pub fn host(address: IpAddr) -> Self {
        Self { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// The same network with the host part set to zero.
    pub fn network(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V4((u32::from(address) & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V6((u128::from(address) & mask).into())
            }
        };
        Self { address, length: self.length }
    }

    /// Whether `address` lies in this network.
    pub fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Self { address, length: self.length }.network() == self.network()
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(debug_assertions)]
impl JsonSchema for Prefix {
    fn schema_name() -> Cow<'static, str> {
        "Prefix".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "An address with the length of its network part: 10.0.0.1/24, fd00::1/64."
        })
    }
}
