//! Accepts connections, and responds: bounded in number, in the size of a request, and in time.

use std::{
    convert::Infallible,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, channel::Channel, combinators::BoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{sleep_until, timeout},
};

use crate::{
    Content,
    door::{Door, Guest},
    history::History,
    metrics::in_accepted_format,
    report::Report,
    request::{Resource, permitted},
    status::{STATE_INTERVAL, States},
};

/// Bytes of a request's head (the least that hyper takes).
const HEAD_BYTES: usize = 8192;
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// A browser that does not read for so long is disconnected.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two comments that show that the connection is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

const LIVE: &str = include_str!("page/live.html");
const LIVE_SCRIPT: &str = include_str!("page/live.js");
const STUDY: &str = include_str!("page/study.html");
const STUDY_SCRIPT: &str = include_str!("page/study.js");
const STATUS: &str = include_str!("page/status.html");
const STATUS_SCRIPT: &str = include_str!("page/status.js");
const COMMON: &str = include_str!("page/common.js");
const STYLE: &str = include_str!("page/page.css");

/// Nothing but the page's own files, its events and the report.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// A report has its style and its script within: that one script may run, by its hash.
fn report_policy(script_hash: &str) -> String {
    format!(
        "default-src 'none'; script-src 'sha256-{script_hash}'; style-src 'unsafe-inline'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    )
}

type Body = BoxBody<Bytes, Infallible>;

/// What is served, and to whom.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    pub(crate) content: Content,
    pub(crate) history: Arc<History>,
    pub(crate) report: Arc<Report>,
}

/// Serves until it is stopped.
pub(crate) async fn serve(listener: TcpListener, site: Site, mut stopped: watch::Receiver<bool>) {
    // The address was bound without an error, so the socket can be polled.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let door = Door::new();
    let site = Arc::new(site);
    loop {
        let deadline = door.close_overdue();
        let wait = async {
            match deadline {
                Some(deadline) => sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        let accepted = tokio::select! {
            accepted = listener.accept(), if door.is_accepting() => accepted,
            () = wait => continue,
            _ = stopped.changed() => return,
        };
        match accepted {
            Ok((stream, peer)) => door.enter(peer, |guest| {
                tokio::spawn(connection(stream, Arc::clone(&site), guest)).abort_handle()
            }),
            Err(error) => door.refused(&error),
        }
    }
}

async fn connection(stream: TcpStream, site: Arc<Site>, guest: Guest) {
    let guest = &guest;
    let respond = |request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(respond(&request, &site, guest)) }
    };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false);
    // What a client does wrong ends its connection, and concerns nobody else.
    let _ = http.serve_connection(TokioIo::new(stream), service_fn(respond)).await;
}

fn respond(request: &Request<Incoming>, site: &Site, guest: &Guest) -> Response<Body> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    let mut policy = HeaderValue::from_static(POLICY);
    let permitted = permitted(method, uri, headers, site.address, &site.token, &site.content);
    let permitted = permitted.and_then(|resource| {
        // Metrics need no token: whoever asks for them stays a stranger.
        let may_stay = resource == Resource::Metrics || guest.is_admitted();
        let reason = "too many connections: close a page";
        if may_stay { Ok(resource) } else { Err((StatusCode::SERVICE_UNAVAILABLE, reason)) }
    });
    let mut response = match permitted {
        Ok(resource) => {
            if let (Resource::Report, Content::Study { script_hash, .. }) = (resource, &site.content) {
                // A hash that is no text of a header leaves the stricter one.
                policy = HeaderValue::try_from(report_policy(script_hash)).unwrap_or(policy);
            }
            resource_of(resource, headers, site)
        }
        Err((status, reason)) => {
            let mut response = text("text/plain; charset=utf-8", format!("{reason}\n"));
            *response.status_mut() = status;
            response
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn resource_of(resource: Resource, headers: &hyper::HeaderMap, site: &Site) -> Response<Body> {
    match (resource, &site.content) {
        (Resource::Index, Content::Live { title }) => page(LIVE, title, site),
        (Resource::Index, Content::Study { title, .. }) => page(STUDY, title, site),
        (Resource::Index, Content::Status { title, .. }) => page(STATUS, title, site),
        (Resource::Common, _) => script(COMMON),
        (Resource::Script, Content::Study { .. }) => script(STUDY_SCRIPT),
        (Resource::Script, Content::Status { .. }) => script(STATUS_SCRIPT),
        (Resource::Script, _) => script(LIVE_SCRIPT),
        (Resource::Report, _) => text("text/html; charset=utf-8", site.report.fetch()),
        (Resource::Style, _) => text("text/css; charset=utf-8", STYLE),
        (Resource::Metrics, Content::Metrics(exposition)) => match exposition() {
            Ok(exposition) => {
                let (kind, exposition) = in_accepted_format(exposition, headers.get(header::ACCEPT));
                text(kind, exposition)
            }
            Err(_) => failed("metrics cannot be written"),
        },
        (Resource::Events, _) => events(headers, site),
        (Resource::Index | Resource::Metrics, _) => failed("not served here"),
    }
}

fn page(page: &str, title: &str, site: &Site) -> Response<Body> {
    let page = page.replace("{token}", &site.token).replace("{title}", &escaped(title));
    text("text/html; charset=utf-8", page)
}

fn script(script: &'static str) -> Response<Body> {
    text("text/javascript; charset=utf-8", script)
}

fn text(kind: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(text.into()).boxed());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn failed(reason: &str) -> Response<Body> {
    let mut response = text("text/plain; charset=utf-8", format!("{reason}\n"));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

/// The history from the beginning, or from after the event that a page had last, and then what comes.
fn events(headers: &hyper::HeaderMap, site: &Site) -> Response<Body> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse::<u64>().ok());
    let (sender, body) = Channel::<Bytes, Infallible>::new(1);
    let states = match &site.content {
        Content::Status { state, .. } => Some(States::of(Arc::clone(state))),
        _ => None,
    };
    tokio::spawn(send_events(sender, Arc::clone(&site.history), Arc::clone(&site.report), states, last));
    let mut response = Response::new(body.boxed());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

async fn send_events(
    mut sender: http_body_util::channel::Sender<Bytes, Infallible>,
    history: Arc<History>,
    report: Arc<Report>,
    mut states: Option<States>,
    last: Option<u64>,
) {
    let pause = if states.is_some() { STATE_INTERVAL } else { KEEP_ALIVE };
    let _reader = report.reader();
    let mut latest = history.follow();
    let (mut next, mut was_reading) = (last.map_or(0, |last| last.saturating_add(1)), last.is_some());
    loop {
        latest.mark_unchanged();
        let batch = history.batch(next, was_reading);
        (next, was_reading) = (batch.next, true);
        let is_empty = batch.text.is_empty();
        let state = states.as_mut().and_then(States::next).unwrap_or_default();
        let text = if is_empty && state.is_empty() { ":\n\n".to_owned() } else { state + &batch.text };
        match timeout(READ_TIMEOUT, sender.send_data(Bytes::from(text))).await {
            Ok(Ok(())) => {}
            // It went away, or does not read.
            Ok(Err(_)) | Err(_) => return,
        }
        if is_empty && timeout(pause, latest.changed()).await.is_ok_and(|changed| changed.is_err()) {
            return;
        }
    }
}

/// Text of a page.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
