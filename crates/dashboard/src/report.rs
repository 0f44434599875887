//! The report so far, for pages that follow a study.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;

/// The newest report, and who has it.
#[derive(Default)]
pub(crate) struct Report {
    newest: Mutex<Newest>,
    /// Pages that read events.
    reader_count: AtomicUsize,
}

#[derive(Default)]
struct Newest {
    html: Bytes,
    version: u64,
    /// Times that it was fetched.
    fetch_count: usize,
}

impl Report {
    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the report; its version.
    pub(crate) fn set(&self, html: String) -> u64 {
        let mut newest = self.newest();
        *newest = Newest { html: Bytes::from(html), version: newest.version + 1, fetch_count: 0 };
        newest.version
    }

    /// The report, empty before the first.
    pub(crate) fn fetch(&self) -> Bytes {
        let mut newest = self.newest();
        newest.fetch_count += 1;
        newest.html.clone()
    }

    /// A page begins to read events, until the guard is dropped.
    pub(crate) fn reader(&self) -> Reader<'_> {
        self.reader_count.fetch_add(1, Ordering::Relaxed);
        Reader(self)
    }

    pub(crate) fn reader_count(&self) -> usize {
        self.reader_count.load(Ordering::Relaxed)
    }

    /// As many fetches of the newest report as there are pages.
    pub(crate) fn is_with_all(&self) -> bool {
        self.newest().fetch_count >= self.reader_count()
    }
}

/// A page that reads events.
pub(crate) struct Reader<'a>(&'a Report);

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.reader_count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_the_newest_when_as_many_fetched_it_as_read() {
        let report = Report::default();
        assert!(report.is_with_all(), "nobody reads");
        let (one, two) = (report.reader(), report.reader());
        assert_eq!(report.set("first".to_owned()), 1);
        assert_eq!(report.fetch(), "first");
        assert!(!report.is_with_all());
        assert_eq!(report.fetch(), "first");
        assert!(report.is_with_all());
        assert_eq!(report.set("second".to_owned()), 2);
        assert!(!report.is_with_all(), "of the newest");
        drop((one, two));
        assert!(report.is_with_all() && report.reader_count() == 0);
    }
}
