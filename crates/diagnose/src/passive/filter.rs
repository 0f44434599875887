//! Filter of connections: conditions that must all hold, as in `program=nginx,local-port=443`.

use std::{net::SocketAddr, str::FromStr};

use clearstream_schema::{connections::SocketOwner, prefix::Prefix};

/// Conditions of a filter; all of them must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionFilter {
    text: String,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    All,
    Pid(u32),
    Program(String),
    Address(Prefix),
    Port(u16),
    LocalPort(u16),
    RemotePort(u16),
}

/// A filter that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no condition: write pid=N, program=NAME, address=IP[/PREFIX], port=N, local-port=N, \
     remote-port=N or all, several joined by commas"
)]
pub struct ParseFilterError(String);

impl FromStr for ConnectionFilter {
    type Err = ParseFilterError;

    fn from_str(text: &str) -> Result<Self, ParseFilterError> {
        let conditions = text.split(',').map(|part| condition(part.trim()));
        Ok(Self { text: text.to_owned(), conditions: conditions.collect::<Result<_, _>>()? })
    }
}

fn condition(text: &str) -> Result<Condition, ParseFilterError> {
    let fail = || ParseFilterError(text.to_owned());
    if text == "all" {
        return Ok(Condition::All);
    }
    let (key, value) = text.split_once('=').ok_or_else(fail)?;
    let port = || value.parse().map_err(|_| fail());
    Ok(match key.trim() {
        "pid" => Condition::Pid(value.parse().map_err(|_| fail())?),
        "program" if !value.is_empty() => Condition::Program(value.to_owned()),
        "address" => Condition::Address(prefix(value).ok_or_else(fail)?),
        "port" => Condition::Port(port()?),
        "local-port" => Condition::LocalPort(port()?),
        "remote-port" => Condition::RemotePort(port()?),
        _ => return Err(fail()),
    })
}

/// A prefix, or an address alone.
fn prefix(text: &str) -> Option<Prefix> {
    text.parse().ok().or_else(|| text.parse().ok().map(Prefix::host))
}

impl ConnectionFilter {
    /// The filter `all`.
    pub fn all() -> Self {
        Self { text: "all".to_owned(), conditions: vec![Condition::All] }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether an end of a connection has all properties.
    pub fn matches(&self, local: SocketAddr, remote: SocketAddr, owners: &[SocketOwner]) -> bool {
        self.conditions.iter().all(|condition| match condition {
            Condition::All => true,
            Condition::Pid(pid) => owners.iter().any(|owner| owner.pid == *pid),
            Condition::Program(name) => owners.iter().any(|owner| owner.program == *name),
            Condition::Address(prefix) => prefix.contains(local.ip()) || prefix.contains(remote.ip()),
            Condition::Port(port) => local.port() == *port || remote.port() == *port,
            Condition::LocalPort(port) => local.port() == *port,
            Condition::RemotePort(port) => remote.port() == *port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(filter: &str) -> bool {
        let owner =
            SocketOwner { pid: 77, program: "nginx".to_owned(), stopped: false, busiest_thread_ratio: None };
        let (local, remote) = ("192.0.2.1:443".parse().unwrap(), "198.51.100.7:50001".parse().unwrap());
        filter.parse::<ConnectionFilter>().unwrap().matches(local, remote, &[owner])
    }

    #[test]
    fn all_conditions_must_hold() {
        for filter in [
            "all",
            "pid=77",
            "program=nginx,local-port=443",
            "port=50001",
            "port=443, remote-port=50001",
            "address=198.51.100.0/24",
            "address=192.0.2.1",
        ] {
            assert!(matches(filter), "{filter}");
        }
        for filter in [
            "pid=7",
            "program=ngin",
            "program=nginx,local-port=50001",
            "address=198.51.101.0/24",
            "address=2001:db8::1",
            "all,port=80",
        ] {
            assert!(!matches(filter), "{filter}");
        }
    }

    #[test]
    fn what_is_no_condition_is_named() {
        for text in ["", "pid", "pid=x", "port=70000", "address=1.2.3", "program=", "all,host=a", "pid=1,"] {
            let error = text.parse::<ConnectionFilter>().unwrap_err().to_string();
            assert!(error.contains("remote-port=N"), "{error}");
        }
    }
}
