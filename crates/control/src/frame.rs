//! Frames: a 32-bit length, most significant byte first, then that many bytes of JSON. A length above the
//! limit is rejected before anything is allocated for it; memory grows only with the bytes received.

use crate::message::Message;

/// Largest content of a frame in bytes. A host report of a large server is some hundred KiB, captures are cut into
/// chunks of at most 256 KiB, and an interval of 1024 flows, the most, has 1.5 MB.
pub(crate) const FRAME_LIMIT: usize = 4 << 20;

/// Largest content of the first frame, a `Hello`, in bytes: bounds what an unauthenticated peer can make us
/// hold.
pub(crate) const HELLO_LIMIT: usize = 16 << 10;

/// Maximum text in bytes skipped by a controller in front of the first frame: start-up files of a remote
/// shell print a screen or two.
const TEXT_LIMIT: usize = 64 << 10;

/// Bytes of skipped text that are kept for error messages.
const TEXT_KEPT: usize = 400;
/// Characters of it that are shown.
const TEXT_SHOWN: usize = 80;

const HEADER: usize = 4;

/// A frame that cannot be sent or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length in the header is above the limit.
    #[error("a frame of {length} bytes was announced, the limit is {limit}{}", printed(.start))]
    Oversize {
        /// Bytes announced.
        length: usize,
        /// Bytes allowed here.
        limit: usize,
        /// The first bytes received, when they are printable text and thus not a frame.
        start: Option<String>,
    },
    /// Text in front of the first frame exceeds the limit.
    #[error(
        "more than {TEXT_LIMIT} bytes of text were received instead (\"{start}\"): does a shell start-up file print it?"
    )]
    Text {
        /// Its first line.
        start: String,
    },
    /// A message of our own does not fit.
    #[error("a message of {length} bytes does not fit into a frame of {FRAME_LIMIT} bytes")]
    TooLong {
        /// Bytes of the message.
        length: usize,
    },
    /// A message of our own cannot be written as JSON.
    #[error("a message could not be written as JSON: {0}")]
    Encode(String),
}

fn printed(start: &Option<String>) -> String {
    match start {
        Some(text) => format!(
            "; the remote host wrote text instead (\"{text}\"): does a shell start-up file print something?"
        ),
        None => String::new(),
    }
}

/// One message as the bytes of one frame.
pub fn encode(message: &Message) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; HEADER];
    serde_json::to_writer(&mut bytes, message).map_err(|error| FrameError::Encode(error.to_string()))?;
    let length = bytes.len() - HEADER;
    if length > FRAME_LIMIT {
        return Err(FrameError::TooLong { length });
    }
    let header = u32::try_from(length).map_err(|_| FrameError::TooLong { length })?.to_be_bytes();
    for (place, byte) in bytes.iter_mut().zip(header) {
        *place = byte;
    }
    Ok(bytes)
}

/// Cuts a stream of bytes into the contents of frames.
#[derive(Debug)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
    /// Bytes at the head of `buffer` already consumed.
    taken: usize,
    limit: usize,
    /// Text in front of the first frame is skipped.
    skips_text: bool,
    text_bytes: usize,
    /// Start of the text that was skipped.
    text: Vec<u8>,
}

impl Decoder {
    /// A decoder for frames of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), taken: 0, limit, skips_text: false, text_bytes: 0, text: Vec::new() }
    }

    /// Changes the limit for frames not yet returned.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Skips text in front of the first frame, up to [`TEXT_LIMIT`]: what a remote
    /// shell's start-up files print before the program that ssh was to start.
    pub(crate) fn skip_text(&mut self) {
        self.skips_text = true;
    }

    /// First line of the text that was skipped, if there was any.
    pub(crate) fn skipped_text(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.text);
        let first = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(first.chars().filter(|letter| !letter.is_control()).take(TEXT_SHOWN).collect())
    }

    /// Appends received bytes. Calling [`Decoder::next_frame`] until it returns `None` keeps the memory held
    /// below one frame.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the content of the next complete frame.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        if self.skips_text {
            self.pass_text()?;
        }
        let rest = self.rest();
        let Some((header, body)) = rest.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*header)).unwrap_or(usize::MAX);
        if length > self.limit {
            return Err(FrameError::Oversize { length, limit: self.limit, start: text_start(rest) });
        }
        let Some(frame) = body.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.taken += HEADER + length;
        self.skips_text = false;
        Ok(Some(frame))
    }

    /// What is not consumed yet.
    fn rest(&self) -> &[u8] {
        let (_, rest) = self.buffer.split_at(self.taken);
        rest
    }

    /// Skips what precedes the first zero byte. The length of a first frame is at most [`HELLO_LIMIT`], so
    /// that its header begins with two of them, and text has none.
    fn pass_text(&mut self) -> Result<(), FrameError> {
        let (_, rest) = self.buffer.split_at(self.taken);
        let length = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        let kept = length.min(TEXT_KEPT - self.text.len());
        self.text.extend(rest.iter().take(kept));
        self.taken += length;
        self.text_bytes += length;
        if self.text_bytes > TEXT_LIMIT {
            return Err(FrameError::Text { start: self.skipped_text().unwrap_or_default() });
        }
        Ok(())
    }

    /// True when no incomplete frame is buffered.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.len() == self.taken
    }
}

/// Returns the first line of the received bytes when they are text. Any printable ASCII header is a length of
/// at least 512 MiB, so text never passes for a frame.
fn text_start(bytes: &[u8]) -> Option<String> {
    let text: String =
        bytes.iter().take(80).map_while(|b| matches!(b, 0x20..=0x7e).then_some(char::from(*b))).collect();
    (text.len() >= HEADER).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(decoder: &mut Decoder) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| decoder.next_frame().unwrap()).collect()
    }

    #[test]
    fn header_is_the_length_in_network_order() {
        let bytes = encode(&Message::KeepAlive).unwrap();
        assert_eq!(bytes, b"\0\0\0\x0c\"keep-alive\"");
    }

    #[test]
    fn oversize_is_rejected_from_the_header_alone() {
        let mut decoder = Decoder::new(FRAME_LIMIT);
        decoder.push(&(FRAME_LIMIT as u32 + 1).to_be_bytes());
        assert_eq!(
            decoder.next_frame(),
            Err(FrameError::Oversize { length: FRAME_LIMIT + 1, limit: FRAME_LIMIT, start: None })
        );
        let mut decoder = Decoder::new(FRAME_LIMIT);
        decoder.push(&(FRAME_LIMIT as u32).to_be_bytes());
        assert_eq!(decoder.next_frame(), Ok(None), "the limit itself is allowed");
        assert!(decoder.buffer.capacity() < 1024, "nothing was allocated for what has not arrived");
    }

    #[test]
    fn text_from_a_login_shell_is_shown() {
        let mut decoder = Decoder::new(FRAME_LIMIT);
        decoder.push(b"Welcome to dtn2!\nhave fun");
        let message = decoder.next_frame().unwrap_err().to_string();
        assert!(message.contains("\"Welcome to dtn2!\"") && message.contains("start-up file"), "{message}");
    }

    #[test]
    fn text_before_the_first_frame_is_skipped_and_named() {
        let stream =
            [b"\r\n  Welcome to dtn2!\x1b[0m\nhave fun\n".as_slice(), &encode(&Message::KeepAlive).unwrap()];
        let stream = stream.concat();
        for cut in 0..stream.len() {
            let mut decoder = Decoder::new(HELLO_LIMIT);
            decoder.skip_text();
            decoder.push(&stream[..cut]);
            assert_eq!(drain(&mut decoder).len(), 0, "{cut}");
            decoder.push(&stream[cut..]);
            assert_eq!(drain(&mut decoder), [b"\"keep-alive\"".to_vec()], "{cut}");
            assert_eq!(decoder.skipped_text().as_deref(), Some("Welcome to dtn2![0m"));
            // After the first frame text is an error.
            decoder.push(b"text");
            assert!(matches!(decoder.next_frame(), Err(FrameError::Oversize { .. })));
        }
    }

    #[test]
    fn text_without_end_is_rejected() {
        let mut decoder = Decoder::new(HELLO_LIMIT);
        decoder.skip_text();
        let mut count = 0;
        let error = loop {
            decoder.push(b"menu> ");
            match decoder.next_frame() {
                Ok(frame) => assert_eq!(frame, None),
                Err(error) => break error,
            }
            count += 6;
            assert!(count <= TEXT_LIMIT);
        };
        assert!(error.to_string().contains("menu> menu>"), "{error}");
        assert!(decoder.buffer.capacity() < 1024, "nothing of it is kept");
    }

    #[test]
    fn oversize_message_is_not_sent() {
        let message = Message::Goodbye { reason: "x".repeat(FRAME_LIMIT), kind: None };
        assert!(matches!(encode(&message), Err(FrameError::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_frames(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let mut stream = Vec::new();
            for frame in &frames {
                stream.extend_from_slice(&(frame.len() as u32).to_be_bytes());
                stream.extend_from_slice(frame);
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let mut decoder = Decoder::new(FRAME_LIMIT);
            let mut read = Vec::new();
            for pair in cuts.windows(2) {
                decoder.push(&stream[pair[0]..pair[1]]);
                read.extend(drain(&mut decoder));
            }
            prop_assert_eq!(read, frames);
            prop_assert!(decoder.is_empty());
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut decoder = Decoder::new(64);
            decoder.push(&bytes);
            while let Ok(Some(frame)) = decoder.next_frame() {
                prop_assert!(frame.len() <= 64);
            }
        }
    }
}
