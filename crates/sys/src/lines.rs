//! Lines of what somebody else writes: another program, a peer, a file from elsewhere. A line is as long as its writer
//! pleases, so that each reader says how much of one it takes, and no more than that is ever in memory.

use std::io::{self, BufRead, BufReader, Read};

/// Maximum length of what a person types or pastes, such as a token.
const ANSWER_BYTES: usize = 64 << 10;

/// The lines of a stream.
#[derive(Debug)]
pub struct Lines<R> {
    from: BufReader<R>,
    limit: usize,
    line: Vec<u8>,
}

/// A line without its newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its bytes, or as many of them as the limit says.
    pub bytes: &'a [u8],
    /// It was longer; the rest is passed over.
    pub is_cut: bool,
    /// It had a newline: only the last line of a stream has none.
    pub is_ended: bool,
}

impl Line<'_> {
    /// As if the limit had been this one.
    #[must_use]
    pub fn shortened(self, limit: usize) -> Self {
        let bytes = self.bytes.get(..limit).unwrap_or(self.bytes);
        Self { bytes, is_cut: self.is_cut || bytes.len() < self.bytes.len(), ..self }
    }

    /// As text for people, which says so when it is cut.
    pub fn text(&self) -> String {
        let text = String::from_utf8_lossy(self.bytes);
        if !self.is_cut {
            return text.into_owned();
        }
        // The cut may be inside a character.
        let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        format!("{text} [cut after {} bytes]", self.bytes.len())
    }
}

impl<R: Read> Lines<R> {
    /// Lines of which at most `limit` bytes are taken.
    pub fn new(from: R, limit: usize) -> Self {
        Self { from: BufReader::with_capacity(64 << 10, from), limit, line: Vec::new() }
    }

    /// The next line, cut where it is longer than the limit; none at the end.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn cut(&mut self) -> io::Result<Option<Line<'_>>> {
        let (mut is_ended, is_cut) = (self.fill()?, self.line.len() > self.limit);
        if is_cut {
            self.line.truncate(self.limit);
            is_ended = is_ended || self.pass_over()?;
        }
        if self.line.is_empty() && !is_ended && !is_cut {
            return Ok(None);
        }
        Ok(Some(Line { bytes: &self.line, is_cut, is_ended }))
    }

    /// The next line; none at the end.
    ///
    /// # Errors
    /// Those of the stream, and [`io::ErrorKind::InvalidData`] where it is longer than the limit; it is not read to its
    /// end then.
    pub fn whole(&mut self) -> io::Result<Option<Line<'_>>> {
        let is_ended = self.fill()?;
        if self.line.len() > self.limit {
            let message = format!("a line is longer than {}, which is the limit", shown(self.limit));
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if self.line.is_empty() && !is_ended {
            return Ok(None);
        }
        Ok(Some(Line { bytes: &self.line, is_cut: false, is_ended }))
    }

    /// The bytes of the line that was read last.
    pub fn last(&self) -> &[u8] {
        &self.line
    }

    /// Reads up to a newline, which is left out, or a byte more than the limit; whether there was a newline.
    fn fill(&mut self) -> io::Result<bool> {
        self.line.clear();
        let limit = (self.limit as u64).saturating_add(1);
        // The newline of a line that is as long as the limit is one of these bytes.
        self.from.by_ref().take(limit).read_until(b'\n', &mut self.line)?;
        let is_ended = self.line.last() == Some(&b'\n');
        if is_ended {
            self.line.pop();
        }
        Ok(is_ended)
    }

    /// Reads up to the next newline; whether there was one.
    fn pass_over(&mut self) -> io::Result<bool> {
        loop {
            let bytes = match self.from.fill_buf() {
                Ok([]) => return Ok(false),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(bytes.len(), |end| end + 1);
            self.from.consume(count);
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

/// What a person types, without spaces around it. Of what is longer than any answer the rest is not read: standard input
/// may have no end.
///
/// # Errors
/// Those of the stream.
pub fn answer(from: impl Read) -> io::Result<String> {
    let mut lines = Lines::new(from, ANSWER_BYTES);
    lines.fill()?;
    Ok(String::from_utf8_lossy(&lines.line).trim().to_owned())
}

fn shown(bytes: usize) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{bytes} bytes") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Writes without an end, and counts what was taken.
    struct Endless(u64);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b'x');
            self.0 += buffer.len() as u64;
            Ok(buffer.len())
        }
    }

    /// As many bytes at a time as it is told.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(self.1).min(buffer.len());
            let (now, later) = self.0.split_at(count);
            buffer.get_mut(..count).expect("shorter").copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    proptest! {
        /// Against what the standard library reads without a limit.
        #[test]
        fn lines_are_those_of_the_stream_and_none_is_longer_than_the_limit(
            stream in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'x'), any::<u8>()], 0..200),
            limit in 0_usize..20,
            piece in 1_usize..30,
        ) {
            let expected: Vec<Vec<u8>> = BufRead::split(stream.as_slice(), b'\n').map(|line| line.expect("memory")).collect();
            let mut cut = Lines::new(Pieces(&stream, piece), limit);
            let mut whole = Lines::new(Pieces(&stream, piece), limit);
            let mut is_refused = false;
            for (number, line) in expected.iter().enumerate() {
                let is_ended = number + 1 < expected.len() || stream.ends_with(b"\n");
                let is_cut = line.len() > limit;
                let bytes = &line[..line.len().min(limit)];
                prop_assert_eq!(cut.cut().expect("memory"), Some(Line { bytes, is_cut, is_ended }));
                prop_assert!(cut.line.capacity() <= 64, "{}", cut.line.capacity());
                if !is_refused {
                    is_refused = is_cut;
                    match whole.whole() {
                        Ok(found) => prop_assert_eq!(found, Some(Line { bytes: line, is_cut: false, is_ended })),
                        Err(error) => prop_assert!(is_cut && error.kind() == io::ErrorKind::InvalidData),
                    }
                }
            }
            prop_assert_eq!(cut.cut().expect("memory"), None);
            prop_assert!(is_refused || whole.whole().expect("memory").is_none());
        }
    }

    #[test]
    fn a_line_without_end_is_refused_after_its_limit() {
        let mut source = Endless(0);
        let error = Lines::new(&mut source, 1 << 20).whole().expect_err("it has no end");
        assert_eq!(error.to_string(), "a line is longer than 1 MiB, which is the limit");
        assert!(source.0 <= 2 << 20, "{} bytes were read", source.0);
        assert_eq!(answer(Endless(0)).expect("its beginning").len(), ANSWER_BYTES + 1);
    }

    #[test]
    fn a_cut_line_says_so_and_ends_between_characters() {
        let text =
            |limit| Lines::new("größe\n".as_bytes(), limit).cut().expect("memory").map(|line| line.text());
        assert_eq!(text(7).as_deref(), Some("größe"));
        assert_eq!(text(6).as_deref(), Some("größ [cut after 6 bytes]"));
        assert_eq!(text(3).as_deref(), Some("gr [cut after 3 bytes]"));
        assert_eq!(answer(" yes \nno".as_bytes()).expect("text"), "yes");
        assert_eq!(answer("".as_bytes()).expect("nothing"), "");
    }
}
