//! Recursive descent over the tokens of a model.

use super::{
    Channel, Effect, Expr, Model, ModelError, Operator, Parameter, Place, Process, Target, Transition,
    Variable, mistake,
    token::{Token, tokens},
};

/// Expressions may be nested this deep.
const MAX_DEPTH: usize = 100;

/// Operators of an expression. A chain of them is as deep a tree as it is long, and trees are compiled, evaluated and
/// dropped by recursion.
const MAX_OPERATORS: usize = 256;

/// Binary operators from the weakest to the strongest, as in C but for comparisons, which are one level.
const LEVELS: [&[(&str, Operator)]; 5] = [
    &[("||", Operator::Or)],
    &[("&&", Operator::And)],
    &[
        ("==", Operator::Equal),
        ("!=", Operator::Unequal),
        ("<=", Operator::AtMost),
        (">=", Operator::AtLeast),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ],
    &[("+", Operator::Plus), ("-", Operator::Minus)],
    &[("*", Operator::Times), ("/", Operator::Over), ("%", Operator::Remainder)],
];

struct Parser {
    tokens: Vec<(Token, Place)>,
    next: usize,
    depth: usize,
    /// In the outermost expression around this place.
    operators: usize,
}

/// Reads a model.
pub(crate) fn parse(text: &str) -> Result<Model, ModelError> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0, operators: 0 };
    let mut model = Model::default();
    parser.keyword("model")?;
    model.name = parser.name("the model's name")?;
    while parser.peek() != &Token::End {
        let place = parser.place();
        match parser.name("a declaration")?.as_str() {
            "parameter" => model.parameters.push(parser.parameter(place)?),
            "variable" => model.variables.push(parser.variable()?),
            "channel" => model.channels.push(parser.channel()?),
            "process" => model.processes.push(parser.process()?),
            "accepting" => {
                parser.keyword("when")?;
                if model.accepting.replace(parser.expr()?).is_some() {
                    return mistake(place, "there is an `accepting when` already: join them with ||");
                }
            }
            other => {
                return mistake(
                    place,
                    format!(
                        "`{other}` is no declaration: parameter, variable, channel, process or accepting"
                    ),
                );
            }
        }
    }
    Ok(model)
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn place(&self) -> Place {
        self.tokens[self.next].1
    }

    fn advance(&mut self) {
        self.next = (self.next + 1).min(self.tokens.len() - 1);
    }

    fn expected<T>(&self, what: &str) -> Result<T, ModelError> {
        mistake(self.place(), format!("expected {what}, found {}", self.peek().text()))
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(next) if *next == sign);
        if found {
            self.advance();
        }
        found
    }

    fn sign(&mut self, sign: &str) -> Result<(), ModelError> {
        if self.takes(sign) { Ok(()) } else { self.expected(&format!("`{sign}`")) }
    }

    fn takes_keyword(&mut self, keyword: &str) -> bool {
        let found = matches!(self.peek(), Token::Name(name) if name == keyword);
        if found {
            self.advance();
        }
        found
    }

    fn keyword(&mut self, keyword: &str) -> Result<(), ModelError> {
        if self.takes_keyword(keyword) { Ok(()) } else { self.expected(&format!("`{keyword}`")) }
    }

    fn name(&mut self, what: &str) -> Result<String, ModelError> {
        let Token::Name(name) = self.peek() else { return self.expected(what) };
        let name = name.clone();
        self.advance();
        Ok(name)
    }

    fn parameter(&mut self, place: Place) -> Result<Parameter, ModelError> {
        let name = self.name("a parameter's name")?;
        self.sign("=")?;
        Ok(Parameter { name, value: self.expr()?, place })
    }

    fn count(&mut self) -> Result<Option<Expr>, ModelError> {
        if !self.takes("[") {
            return Ok(None);
        }
        let count = self.expr()?;
        self.sign("]")?;
        Ok(Some(count))
    }

    fn range(&mut self) -> Result<(Expr, Expr), ModelError> {
        self.sign(":")?;
        let low = self.expr()?;
        self.sign("..")?;
        Ok((low, self.expr()?))
    }

    fn variable(&mut self) -> Result<Variable, ModelError> {
        let place = self.place();
        let name = self.name("a variable's name")?;
        let count = self.count()?;
        let (low, high) = self.range()?;
        let initial = if self.takes("=") { Some(self.expr()?) } else { None };
        Ok(Variable { name, count, low, high, initial, place })
    }

    fn channel(&mut self) -> Result<Channel, ModelError> {
        let place = self.place();
        let name = self.name("a channel's name")?;
        let count = self.count()?;
        self.keyword("holds")?;
        let capacity = self.expr()?;
        let (low, high) = self.range()?;
        Ok(Channel { name, count, capacity, low, high, place })
    }

    fn process(&mut self) -> Result<Process, ModelError> {
        let place = self.place();
        let name = self.name("a process's name")?;
        let count = self.count()?;
        let index = if self.takes_keyword("as") { Some(self.name("a name for its number")?) } else { None };
        let begin = self.next;
        let mut process = Process {
            name,
            count,
            index,
            variables: Vec::new(),
            states: Vec::new(),
            transitions: Vec::new(),
            token_count: 0,
            place,
        };
        self.sign("{")?;
        while !self.takes("}") {
            let place = self.place();
            match self.name("`variable`, `state` or a transition")?.as_str() {
                "variable" => process.variables.push(self.variable()?),
                "state" => {
                    process.states.push(self.name("a state's name")?);
                    while self.takes(",") {
                        process.states.push(self.name("a state's name")?);
                    }
                }
                from => {
                    let transition = self.transition(from.to_owned(), place)?;
                    process.transitions.push(transition);
                }
            }
        }
        process.token_count = self.next - begin;
        Ok(process)
    }

    fn transition(&mut self, from: String, place: Place) -> Result<Transition, ModelError> {
        self.sign("->")?;
        let to = self.name("the state that it leads to")?;
        let guard = if self.takes_keyword("when") { Some(self.expr()?) } else { None };
        let mut effects = Vec::new();
        if self.takes("{") {
            while !self.takes("}") {
                effects.push(self.effect()?);
                if !self.takes(";") {
                    self.sign("}")?;
                    break;
                }
            }
        }
        Ok(Transition { from, to, guard, effects, place })
    }

    fn effect(&mut self) -> Result<Effect, ModelError> {
        if self.takes_keyword("send") {
            let channel = self.target("a channel")?;
            return Ok(Effect::Send(channel, self.expr()?));
        }
        if self.takes_keyword("receive") {
            let channel = self.target("a channel")?;
            return Ok(Effect::Receive(channel, self.target("a variable")?));
        }
        let target = self.target("a variable, `send` or `receive`")?;
        self.sign("=")?;
        Ok(Effect::Assign(target, self.expr()?))
    }

    fn target(&mut self, what: &str) -> Result<Target, ModelError> {
        let place = self.place();
        let name = self.name(what)?;
        let index = self.count()?.map(Box::new);
        Ok(Target { name, index, place })
    }

    fn expr(&mut self) -> Result<Expr, ModelError> {
        if self.depth == 0 {
            self.operators = 0;
        }
        self.binary(0)
    }

    /// Operands with operators between them, none weaker than this level. Precedence climbing: a level has a frame on
    /// the stack only where it has an operator.
    fn binary(&mut self, weakest: usize) -> Result<Expr, ModelError> {
        let mut left = self.unary()?;
        loop {
            let place = self.place();
            let Some((level, operator)) = self.operator(weakest) else { return Ok(left) };
            self.operators += 1;
            if self.operators > MAX_OPERATORS {
                return mistake(place, format!("an expression of more than {MAX_OPERATORS} operators"));
            }
            let right = self.binary(level + 1)?;
            left = Expr::Binary(operator, Box::new(left), Box::new(right), place);
        }
    }

    fn operator(&mut self, weakest: usize) -> Option<(usize, Operator)> {
        LEVELS.iter().enumerate().skip(weakest).find_map(|(level, operators)| {
            let (_, operator) = operators.iter().find(|(sign, _)| self.takes(sign))?;
            Some((level, *operator))
        })
    }

    fn unary(&mut self) -> Result<Expr, ModelError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return mistake(self.place(), format!("nested more than {MAX_DEPTH} deep"));
        }
        let expr = if self.takes("!") {
            Expr::Not(Box::new(self.unary()?))
        } else if self.takes("-") {
            Expr::Negative(Box::new(self.unary()?))
        } else if self.takes("(") {
            let inner = self.expr()?;
            self.sign(")")?;
            inner
        } else {
            self.value()?
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn value(&mut self) -> Result<Expr, ModelError> {
        if let Token::Number(number) = *self.peek() {
            self.advance();
            return Ok(Expr::Number(number));
        }
        let target = self.target("a value")?;
        if target.index.is_none() && ["length", "first"].contains(&target.name.as_str()) && self.takes("(") {
            let channel = self.target("a channel")?;
            self.sign(")")?;
            return Ok(if target.name == "length" { Expr::Length(channel) } else { Expr::First(channel) });
        }
        if self.takes(".") {
            return Ok(Expr::InState(target, self.name("a state of that process")?));
        }
        Ok(Expr::Value(target))
    }
}
