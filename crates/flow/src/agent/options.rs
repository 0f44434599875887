//! Socket options that are one value each: a line sets what an option of the test asks for and reads what the kernel made
//! of it, which record and report show by the option's name.

use std::{collections::BTreeMap, io};

use clearstream_schema::{Dscp, control::Failure, flow::FlowConfig};
use serde_json::Value;
use socket2::Socket;

/// One of them.
struct SocketOption {
    /// Name of the option of the test.
    name: &'static str,
    /// Sets it where it is requested.
    set: fn(&Socket, &FlowConfig) -> io::Result<()>,
    /// Its value now; absent where this socket has none.
    read: fn(&Socket) -> Option<Value>,
}

const OPTIONS: [SocketOption; 1] =
    [SocketOption { name: "dscp", set: set_dscp, read: |socket| Some(dscp(socket)?.into()) }];

/// Sets all that are requested.
pub(super) fn set(socket: &Socket, config: &FlowConfig) -> Result<(), Failure> {
    OPTIONS.iter().try_for_each(|option| {
        let set = (option.set)(socket, config);
        set.map_err(|error| Failure::of_system(&format!("set {} of a socket", option.name), &error))
    })
}

/// What they are on a connected socket, by name (`SocketSettings::options`).
pub(super) fn read(socket: &Socket) -> BTreeMap<String, Value> {
    let values = OPTIONS.iter().map(|option| Some((option.name.to_owned(), (option.read)(socket)?)));
    values.flatten().collect()
}

/// The upper six bits of the former type-of-service byte (RFC 2474).
fn set_dscp(socket: &Socket, config: &FlowConfig) -> io::Result<()> {
    let Some(Dscp(dscp)) = config.dscp else { return Ok(()) };
    let byte = u32::from(dscp) << 2;
    if is_ipv4(socket)? { socket.set_tos_v4(byte) } else { socket.set_tclass_v6(byte) }
}

fn dscp(socket: &Socket) -> Option<u8> {
    let byte = if is_ipv4(socket).ok()? { socket.tos_v4() } else { socket.tclass_v6() };
    u8::try_from(byte.ok()? >> 2).ok()
}

fn is_ipv4(socket: &Socket) -> io::Result<bool> {
    Ok(socket.local_addr()?.is_ipv4())
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Type};

    use super::*;

    #[test]
    fn what_is_set_is_read_by_the_name_of_an_option_of_the_test() {
        let config = FlowConfig { dscp: Some(Dscp(46)), ..FlowConfig::default() };
        for domain in [Domain::IPV4, Domain::IPV6] {
            let socket = Socket::new(domain, Type::STREAM, None).unwrap();
            set(&socket, &config).unwrap();
            let found = read(&socket);
            assert_eq!(found.get("dscp"), Some(&46.into()), "{domain:?}");
            for (name, value) in &found {
                let named = config.with(name, value.clone());
                assert!(named.is_ok(), "{name} is no option of a flow test, or has no such value: {named:?}");
            }
            assert_eq!(found.len(), OPTIONS.len(), "{domain:?}");
        }
    }
}
