//! The one consumer of what a verb reports: a JSON line per event where a
//! stream was requested, else lines and a progress bar for people. Verbs report
//! once, independent of the format.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use clearstream_schema::{
    event::{
        Change, EVENT_SCHEMA, ErrorDocument, Event, EventKind, Finding, LIVE_STATE, Progress as Step, State,
    },
    notice::Notice,
    provenance::{HostIdentity, Provenance},
};
use jiff::{Timestamp, Unit};
use serde::Serialize;
use serde_json::Value;

use super::{
    Format, Paint,
    documents::{Document, named},
    json, line, log,
    progress::Progress,
};
use crate::{exit::CommandError, output::Unwritten};

/// Where the events and the document of one verb go. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Output(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    format: Format,
    host: String,
    verb: String,
    started: Timestamp,
    state: Mutex<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    trial: Option<(u32, String)>,
    /// Hosts that take part, for the document.
    hosts: Vec<HostIdentity>,
    progress: Option<Progress>,
    /// The document is out: nothing may follow it.
    is_ended: bool,
    /// First write error, returned when the document is printed.
    failed: Option<Unwritten>,
}

impl Output {
    /// For a verb, by its name on the command line: `flow`, `plan apply`.
    pub fn new(format: Format, verb: String) -> Self {
        let host = clearstream_sys::process::host_name();
        Self(Arc::new(Inner { format, host, verb, started: Timestamp::now(), state: Mutex::default() }))
    }

    /// Whether people read along: then a verb prints tables, else its document.
    pub fn is_human(&self) -> bool {
        self.0.format == Format::Human
    }

    /// Whether each event is a line of JSON.
    pub fn is_stream(&self) -> bool {
        self.0.format == Format::JsonStream
    }

    /// Rejects `--json` for what has no document: a daemon, a shell.
    ///
    /// # Errors
    /// One is requested.
    pub fn without_document(&self, what: &str) -> Result<(), CommandError> {
        if self.is_human() {
            return Ok(());
        }
        Err(CommandError::Usage(format!("{what} has no JSON document: leave --json out")))
    }

    /// Later events are of this trial of a study: its number, and its workload.
    pub fn set_trial(&self, trial: Option<(u32, String)>) {
        self.shown().trial = trial;
    }

    /// Names the hosts that take part: the document has them.
    pub fn set_hosts(&self, hosts: Vec<HostIdentity>) {
        self.shown().hosts = hosts;
    }

    /// A state was entered; people see `text`.
    pub fn state(&self, name: &str, detail: Option<Value>, text: impl FnOnce() -> Option<String>) {
        self.event(|| EventKind::State(State { name: name.to_owned(), detail }), text);
    }

    /// Part of a measurement is done; people see `text`.
    pub fn interval(&self, sample: &impl Serialize, text: impl FnOnce() -> Option<String>) {
        // A sample that is no JSON is missing from the record too, which reports it.
        self.event(
            || EventKind::Interval(clearstream_schema::json::to_value(sample).unwrap_or_default()),
            text,
        );
    }

    /// A conclusion; people see `text`.
    pub fn finding(&self, id: &str, message: &str, text: impl FnOnce() -> Option<String>) {
        let finding = || Finding { id: id.to_owned(), message: message.to_owned() };
        self.event(|| EventKind::Finding(finding()), text);
    }

    /// A setting was changed; people see `text`.
    pub fn change(
        &self,
        setting: &str,
        action: &str,
        detail: Option<Value>,
        text: impl FnOnce() -> Option<String>,
    ) {
        let change = Change { setting: setting.to_owned(), action: action.to_owned(), detail };
        self.event(|| EventKind::Change(change), text);
    }

    /// Something to know; people see it on standard error, also beside `--json`.
    pub fn notice(&self, notice: &Notice) {
        self.event(|| EventKind::Notice(notice.clone()), || None);
        self.note(&Paint::for_stderr().warning(&format!("note: {}", notice.message)));
    }

    /// How far the work is; people see a bar on standard error, also beside `--json`.
    pub fn progress(&self, left: Duration, step: &str) {
        let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        if self.is_stream() {
            return self.event(|| EventKind::Progress(Step { step: step.to_owned(), left_ns }), || None);
        }
        self.shown().progress.get_or_insert_with(|| Progress::start(left)).update(left, step);
    }

    /// What goes on now, once per second, or nothing in particular; people see it in the bar, or on standard error.
    pub fn live(&self, detail: Option<&impl Serialize>, text: impl FnOnce() -> Option<String>) {
        if self.is_stream() {
            let detail = detail.map(|detail| clearstream_schema::json::to_value(detail).unwrap_or_default());
            return self.state(LIVE_STATE, detail, || None);
        }
        if let Some(text) = text() {
            self.shown().progress.get_or_insert_with(|| Progress::start(Duration::ZERO)).live(&text);
        }
    }

    /// A line for people on standard error, above the bar; nothing in a stream.
    pub fn note(&self, text: &str) {
        match &self.shown().progress {
            _ if self.is_stream() => {}
            Some(progress) => progress.note(text),
            None => log(text),
        }
    }

    /// One of a list of documents without an end, on a line of its own: what
    /// `--json` means for a watch. Nothing in another format.
    pub fn line_of_list<D: Document>(&self, document: &D) {
        if self.0.format != Format::Json {
            return;
        }
        let written = json(&named::<D, _>(document, None), false);
        let mut shown = self.shown();
        shown.is_ended = true;
        if let Err(error) = written {
            shown.failed.get_or_insert(error);
        }
    }

    /// The option of this format, for a command line that is to have the same.
    pub fn option(&self) -> Option<&'static str> {
        match self.0.format {
            Format::Human => None,
            Format::Json => Some("--json"),
            Format::JsonStream => Some("--json-stream"),
        }
    }

    /// Ends the work and removes the progress bar.
    ///
    /// # Errors
    /// An event could not be written.
    pub fn end(&self) -> Result<(), Unwritten> {
        let mut shown = self.shown();
        shown.progress = None;
        shown.failed.take().map_or(Ok(()), Err)
    }

    /// Ends the work with its document, or with `text` for people.
    ///
    /// # Errors
    /// It, or an event before it, could not be written.
    pub fn result<D: Document>(&self, document: &D, text: impl FnOnce() -> String) -> Result<(), Unwritten> {
        if !self.is_human() {
            return self.document(document);
        }
        self.end()?;
        line(&text())
    }

    /// Ends the work with its document; nothing for people.
    ///
    /// # Errors
    /// It, or an event before it, could not be written.
    pub fn document<D: Document>(&self, document: &D) -> Result<(), Unwritten> {
        self.written::<D>(document)
    }

    /// As [`Self::document`], for one whose parts are made while it is written.
    ///
    /// # Errors
    /// It, or an event before it, could not be written.
    pub fn document_in_parts<D: Document>(&self, parts: &impl Serialize) -> Result<(), Unwritten> {
        self.written::<D>(parts)
    }

    fn written<D: Document>(&self, document: &impl Serialize) -> Result<(), Unwritten> {
        self.end()?;
        let provenance = self.provenance();
        self.last(&named::<D, _>(document, Some(&provenance)), EventKind::Result)
    }

    /// A document in the format of another standard, such as SARIF.
    ///
    /// # Errors
    /// It could not be written.
    pub fn foreign(&self, document: &Value) -> Result<(), Unwritten> {
        self.end()?;
        self.shown().is_ended = true;
        json(document, true)
    }

    /// Ends a verb that failed: the document of the error where none is out.
    ///
    /// # Errors
    /// It could not be written.
    pub fn failed(&self, error: &CommandError) -> Result<(), Unwritten> {
        self.failed_with(&ErrorDocument::new(error.exit_code(), error.to_string()))
    }

    /// As [`Self::failed`], for what is no error of a verb.
    ///
    /// # Errors
    /// It could not be written.
    pub fn failed_with(&self, document: &ErrorDocument) -> Result<(), Unwritten> {
        // What could not be written before is what the error is about, or of less weight.
        let _ = self.end();
        if self.shown().is_ended {
            return Ok(());
        }
        if self.0.format == Format::Json {
            self.shown().is_ended = true;
            return json(&named::<ErrorDocument, _>(document, Some(&self.provenance())), true);
        }
        self.last(document, |document| EventKind::Error(document.clone()))
    }

    /// Where the document comes from.
    fn provenance(&self) -> Provenance {
        // With all three digits, so that times sort as text.
        let time = |at: Timestamp| format!("{at:.3}");
        Provenance {
            started: time(self.0.started),
            ended: time(Timestamp::now()),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
            host: HostIdentity {
                host_name: self.0.host.clone(),
                kernel: Some(clearstream_sys::process::kernel_release()),
                ..HostIdentity::default()
            },
            hosts: self.shown().hosts.clone(),
        }
    }

    fn last<'d, S: Serialize>(
        &self,
        document: &'d S,
        kind: impl FnOnce(&'d S) -> EventKind<&'d S>,
    ) -> Result<(), Unwritten> {
        self.shown().is_ended = true;
        match self.0.format {
            Format::Human => Ok(()),
            Format::Json => json(document, true),
            Format::JsonStream => json(&self.envelope(kind(document)), false),
        }
    }

    fn event(&self, kind: impl FnOnce() -> EventKind, text: impl FnOnce() -> Option<String>) {
        let written = match self.0.format {
            Format::Human => text().map_or(Ok(()), |text| match &self.shown().progress {
                Some(progress) => progress.beside(|| line(&text)),
                None => line(&text),
            }),
            Format::Json => Ok(()),
            Format::JsonStream => json(&self.envelope(kind()), false),
        };
        if let Err(error) = written {
            self.shown().failed.get_or_insert(error);
        }
    }

    fn envelope<R>(&self, kind: EventKind<R>) -> Event<R> {
        let now = Timestamp::now();
        let (trial, workload) = self.shown().trial.clone().unzip();
        Event {
            schema: EVENT_SCHEMA.to_owned(),
            version: 1,
            time: now.round(Unit::Millisecond).unwrap_or(now).to_string(),
            host: self.0.host.clone(),
            workload: workload.unwrap_or_else(|| self.0.verb.clone()),
            trial,
            kind,
        }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        // What is behind it is whole after each change.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
