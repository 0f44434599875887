//! Who may read what: method, path, token, `Host` and `Origin` of a request.

use std::net::{IpAddr, SocketAddr};

use hyper::{HeaderMap, Method, StatusCode, Uri, header, http::uri::Authority};

use crate::Content;

/// What a permitted request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Index,
    Common,
    Script,
    Style,
    Report,
    Events,
    Metrics,
}

/// The resource of a request, or the reason why it gets none.
pub(crate) fn permitted(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    address: SocketAddr,
    token: &str,
    content: &Content,
) -> Result<Resource, (StatusCode, &'static str)> {
    if method != Method::GET {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "use GET"));
    }
    // RFC 9112, section 3.2: which of them counts, others than this server may decide otherwise.
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Err((StatusCode::BAD_REQUEST, "more than one Host header"));
    }
    let resource = match (content, uri.path()) {
        (Content::Metrics(_), "/metrics") => Resource::Metrics,
        (Content::Study { .. }, "/report") => Resource::Report,
        (Content::Live { .. }, "/live.js")
        | (Content::Study { .. }, "/study.js")
        | (Content::Status { .. }, "/status.js") => Resource::Script,
        (Content::Live { .. } | Content::Study { .. } | Content::Status { .. }, path) => match path {
            "/" => Resource::Index,
            "/common.js" => Resource::Common,
            "/page.css" => Resource::Style,
            "/events" => Resource::Events,
            _ => return Err((StatusCode::NOT_FOUND, "nothing is here")),
        },
        _ => return Err((StatusCode::NOT_FOUND, "nothing is here")),
    };
    // On a network a scraper knows this host by a name; on loopback a name is that of a page elsewhere.
    let is_any_host = resource == Resource::Metrics && !address.ip().to_canonical().is_loopback();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    // A target in absolute form replaces Host (RFC 9112, section 3.2.2): both have to be right.
    let hosts = [Some(host.unwrap_or_default()), uri.authority().map(Authority::as_str)];
    if !is_any_host && !hosts.into_iter().flatten().all(|host| is_own(host, address)) {
        return Err((StatusCode::MISDIRECTED_REQUEST, "the Host header names another server"));
    }
    let host = host.unwrap_or_default();
    let own_origin = |origin: &header::HeaderValue| origin.as_bytes() == format!("http://{host}").as_bytes();
    if !headers.get_all(header::ORIGIN).iter().all(own_origin) {
        return Err((StatusCode::FORBIDDEN, "requests of other pages are refused"));
    }
    if resource == Resource::Metrics {
        return Ok(resource);
    }
    let given = uri.query().into_iter().flat_map(|query| query.split('&'));
    let given = given.filter_map(|pair| pair.strip_prefix("token=")).next().unwrap_or_default();
    if !is_equal(given, token) {
        return Err((
            StatusCode::FORBIDDEN,
            "the token is missing or wrong: open the link that the command printed",
        ));
    }
    Ok(resource)
}

/// A page elsewhere can make a name of its own resolve to this address (DNS rebinding), but not an address or
/// `localhost`.
fn is_own(host: &str, address: SocketAddr) -> bool {
    let port = format!(":{}", address.port());
    let name = match host.strip_suffix(&port) {
        Some(name) => name,
        // The port of HTTP is left out (RFC 9110, section 4.2.3).
        None if address.port() == 80 => host,
        None => return false,
    };
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name == "localhost" || literal.parse::<IpAddr>().is_ok()
}

/// Compares without a hint of where they differ.
fn is_equal(one: &str, two: &str) -> bool {
    let differences = one.bytes().zip(two.bytes()).map(|(one, two)| one ^ two);
    one.len() == two.len() && differences.fold(0, |sum, difference| sum | difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_not_own() {
        let address = "127.0.0.1:8080".parse().unwrap();
        for host in ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "192.0.2.7:8080"] {
            assert!(is_own(host, address), "{host}");
        }
        for host in
            ["example.com:8080", "127.0.0.1", "127.0.0.1:80", "localhost.example.com:8080", "", ":8080"]
        {
            assert!(!is_own(host, address), "{host}");
        }
        let address = "127.0.0.1:80".parse().unwrap();
        assert!(
            is_own("localhost", address)
                && is_own("127.0.0.1:80", address)
                && !is_own("example.com", address)
        );
    }
}
