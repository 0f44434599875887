//! Kernel versions, compared by the first three numbers of `uname -r`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, de};

/// A kernel release by its first three numbers: `6.18.44-1-amd64` is 6.18.44.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion(u32, u32, u32);

impl KernelVersion {
    /// Creates a version from its numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self(major, minor, patch)
    }
}

/// Text that does not begin with a release number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read a kernel version from \"{0}\": write it as uname -r does, as in 6.12 or 5.14.0-427.el9")]
pub struct ParseVersionError(String);

impl FromStr for KernelVersion {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseVersionError(text.to_owned());
        let mut numbers = [0; 3];
        for (at, (number, part)) in numbers.iter_mut().zip(text.trim().splitn(3, '.')).enumerate() {
            let digits = part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            // `6.19-rc1` and `5.14.0-427` end in a part that is not compared.
            if !digits.is_empty() {
                *number = digits.parse().map_err(|_| fail())?;
            } else if at < 2 {
                return Err(fail());
            }
        }
        let [major, minor, patch] = numbers;
        Ok(Self(major, minor, patch))
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(major, minor, 0) => write!(f, "{major}.{minor}"),
            Self(major, minor, patch) => write!(f, "{major}.{minor}.{patch}"),
        }
    }
}

impl<'de> Deserialize<'de> for KernelVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_releases_as_distributions_write_them() {
        for (text, expected) in [
            ("6.18.44", KernelVersion(6, 18, 44)),
            ("6.12", KernelVersion(6, 12, 0)),
            ("2.6.32-754.el6.x86_64", KernelVersion(2, 6, 32)),
            ("5.14.0-427.13.1.el9_4.x86_64", KernelVersion(5, 14, 0)),
            ("6.19-rc3+", KernelVersion(6, 19, 0)),
            ("4.18.0\n", KernelVersion(4, 18, 0)),
            ("0", KernelVersion(0, 0, 0)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["", "linux", "v6.1", "6.x", ".1", "99999999999.1"] {
            assert!(text.parse::<KernelVersion>().is_err(), "{text}");
        }
    }

    #[test]
    fn compares_by_number() {
        let version = |text: &str| text.parse::<KernelVersion>().unwrap();
        assert!(version("4.9") < version("4.14"));
        assert!(version("2.6.32") < version("3.2"));
        assert!(version("6.18.44") > version("6.18"));
    }
}
