//! Small pieces of payload on their way into memory that is written by calls of the kernel: pieces that follow one
//! another there go by one call.

use super::{AccessError, Span, held};

/// Bytes that are kept at most.
const KEPT_BYTES: usize = 64 * 1024;

/// Payload whose place is known and that is not there yet.
#[derive(Debug, Default)]
pub struct Placements {
    bytes: Vec<u8>,
    /// Where they belong, in their order.
    spans: Vec<Span>,
    is_lost: bool,
}

impl Placements {
    /// Writes bytes to an offset of memory, now or, where the kernel holds its pages, by [`Placements::flush`].
    ///
    /// # Errors
    /// As for [`Span::write`]; of what is kept, by [`Placements::flush`].
    pub fn write(&mut self, span: &Span, at: usize, bytes: &[u8]) -> Result<(), AccessError> {
        if !span.is_held() || bytes.len() > KEPT_BYTES {
            return span.write(at, bytes);
        }
        if self.bytes.len() + bytes.len() > KEPT_BYTES || self.spans.len() == held::REQUESTS {
            self.flush()?;
        }
        let place = span.slice(at, bytes.len());
        match self.spans.last_mut() {
            Some(last) if last.is_followed_by(&place) => last.extend(bytes.len()),
            _ => self.spans.push(place),
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes what is kept.
    ///
    /// # Errors
    /// Some of the memory was withdrawn, or is not reached any more: nothing or some of it was written.
    pub fn flush(&mut self) -> Result<(), AccessError> {
        if self.spans.is_empty() {
            return Ok(());
        }
        let written = Span::write_held(&self.spans, &self.bytes);
        self.spans.clear();
        self.bytes.clear();
        self.is_lost |= written.is_err();
        written
    }

    /// Whether something that was kept could not be written, now or before.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }
}
