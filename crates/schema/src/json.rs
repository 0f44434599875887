//! Documents as JSON: the one way in and out for every type.
//!
//! The derived code of a type is compiled once for each reader and each writer that is used with it, and `serde_json`
//! alone has three readers and four writers: a quarter of the program was such copies. Here all documents are read
//! through a [`Value`] and written as text without spaces, so that each type has one copy of either. Frames of the control
//! protocol are read where they are decoded: the text of their bodies is kept as it is.

use std::io::Write;

use serde::{
    Serialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::{
    Error, Value,
    ser::{Formatter, PrettyFormatter},
};

/// Reads a document from text.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    from_slice(text.as_bytes())
}

/// Reads a document from UTF-8 bytes.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    from_value(serde_json::from_slice(bytes)?)
}

/// Reads a document that is JSON already.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    serde_json::from_value(value)
}

/// Writes a document on one line.
pub fn to_vec<T: ?Sized + Serialize>(document: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(document)
}

/// Writes a document on one line.
pub fn to_string<T: ?Sized + Serialize>(document: &T) -> Result<String, Error> {
    String::from_utf8(to_vec(document)?).map_err(Error::custom)
}

/// Makes a document the JSON that it would be written as.
pub fn to_value<T: Serialize>(document: T) -> Result<Value, Error> {
    serde_json::from_slice(&to_vec(&document)?)
}

/// Writes a document for people.
pub fn to_string_pretty<T: ?Sized + Serialize>(document: &T) -> Result<String, Error> {
    let mut text = Vec::new();
    write_with(PrettyFormatter::new(), &to_vec(document)?, &mut text)?;
    String::from_utf8(text).map_err(Error::custom)
}

/// Writes JSON in another form, its keys in the same order.
pub fn write_with<F: Formatter>(form: F, json: &[u8], out: impl Write) -> Result<(), Error> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    serde_transcode::transcode(&mut reader, &mut serde_json::Serializer::with_formatter(out, form))
}
