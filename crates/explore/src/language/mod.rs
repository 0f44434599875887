//! The language of models: processes with states, variables of bounded ranges and bounded
//! channels. `docs/guide/explore.md` describes it for people.

mod parser;
mod token;

use std::fmt;

pub(crate) use parser::parse;

/// Where something stands in a model's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A mistake in a model's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct ModelError {
    /// Where.
    pub place: Place,
    /// What is wrong there.
    pub message: String,
}

/// An error at a place.
pub(crate) fn mistake<T>(place: Place, message: impl Into<String>) -> Result<T, ModelError> {
    Err(ModelError { place, message: message.into() })
}

/// A model as written.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) processes: Vec<Process>,
    pub(crate) accepting: Option<Expr>,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) value: Expr,
    pub(crate) place: Place,
}

#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) count: Option<Expr>,
    pub(crate) low: Expr,
    pub(crate) high: Expr,
    pub(crate) initial: Option<Expr>,
    pub(crate) place: Place,
}

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: String,
    pub(crate) count: Option<Expr>,
    pub(crate) capacity: Expr,
    pub(crate) low: Expr,
    pub(crate) high: Expr,
    pub(crate) place: Place,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) count: Option<Expr>,
    /// Name of the instance's number.
    pub(crate) index: Option<String>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) states: Vec<String>,
    pub(crate) transitions: Vec<Transition>,
    /// Length of its text in tokens.
    pub(crate) token_count: usize,
    pub(crate) place: Place,
}

#[derive(Debug)]
pub(crate) struct Transition {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) guard: Option<Expr>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) place: Place,
}

#[derive(Debug)]
pub(crate) enum Effect {
    Assign(Target, Expr),
    Send(Target, Expr),
    Receive(Target, Target),
}

/// A variable or a channel, or one of an array.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) index: Option<Box<Expr>>,
    pub(crate) place: Place,
}

#[derive(Debug)]
pub(crate) enum Expr {
    Number(i64),
    Value(Target),
    /// `process[index].state`
    InState(Target, String),
    /// `length(channel)`
    Length(Target),
    /// `first(channel)`
    First(Target),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Binary(Operator, Box<Expr>, Box<Expr>, Place),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Plus,
    Minus,
    Times,
    Over,
    Remainder,
}
