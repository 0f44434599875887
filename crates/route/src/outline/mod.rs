//! Draft of a fabric file from existing hosts: networks from their prefixes,
//! gateways from their next hops, classes from hosts that are equal. What is
//! unknown is a comment in the file.

mod classes;
mod networks;
mod patterns;
mod text;

use clearstream_schema::routing::HostRouting;

/// Hosts from which no fabric follows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutlineError {
    /// No gateway between them.
    #[error(
        "no two networks with a gateway between them follow from {hosts}: give hosts of both sides with \
         routes to each other, or the gateways with addresses on both"
    )]
    NoGateway {
        /// Names of the hosts.
        hosts: String,
    },
}

/// Writes a fabric file called `name` for these hosts.
///
/// # Errors
/// There are not two networks with a gateway between them.
pub fn outline(hosts: &[HostRouting], name: &str) -> Result<String, OutlineError> {
    let no_gateway = || OutlineError::NoGateway {
        hosts: hosts.iter().map(|host| host.host.as_str()).collect::<Vec<_>>().join(", "),
    };
    let networks = networks::find(hosts).ok_or_else(no_gateway)?;
    let classes = classes::find(hosts, &networks).ok_or_else(no_gateway)?;
    Ok(text::write(name, hosts, &networks, &classes))
}

#[cfg(test)]
mod tests;
