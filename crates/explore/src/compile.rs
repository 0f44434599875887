//! From a model as written to a [`Program`]: names are looked up, parameters and numbers of
//! instances become constants, arrays become slots.

use std::collections::BTreeMap;

use clearstream_configfile::did_you_mean;

use crate::{
    language::{
        Channel, Effect, Expr, Model, ModelError, Place, Process, Target, Transition, Variable, mistake,
    },
    program::{Cell, Code, Index, Instance, Operation, Program, Queue, Slot, Step, binary},
};

/// Bounds of what a text of a few lines can make.
const MAX_SLOTS: usize = 4096;
const MAX_CAPACITY: i64 = 256;
/// Names that are known at one place: each instance has its own.
const MAX_NAMES: usize = 1024;
/// Tokens of all processes, those of an array counted for each of its instances, which are compiled one by one.
const MAX_COMPILED: usize = 500_000;
/// Slots are numbers of 32 bits.
const VALUES: std::ops::RangeInclusive<i64> = i32::MIN as i64..=i32::MAX as i64;

/// What a name stands for.
#[derive(Debug, Clone)]
enum Meaning {
    Constant(i64),
    Variable { base: usize, count: Option<usize>, low: i32, high: i32 },
    Channel { base: usize, count: Option<usize>, capacity: usize, low: i32, high: i32 },
    Process { first: usize, count: Option<usize> },
}

/// Meanings of names, those of a process over those of the model.
type Names = BTreeMap<String, Meaning>;

#[derive(Default)]
struct Compiler {
    slots: Vec<Slot>,
    instances: Vec<Instance>,
}

pub(crate) fn compile(model: Model, values: &[(String, i64)]) -> Result<Program, ModelError> {
    let mut compiler = Compiler::default();
    let mut names = Names::new();
    let mut parameters = Vec::new();
    for parameter in &model.parameters {
        let given = values.iter().rev().find(|(name, _)| *name == parameter.name).map(|(_, value)| *value);
        let value = given.map_or_else(|| constant(&parameter.value, &names), Ok)?;
        declare(&mut names, &parameter.name, Meaning::Constant(value), parameter.place)?;
        parameters.push((parameter.name.clone(), value));
    }
    if let Some((unknown, _)) = values.iter().find(|(name, _)| !parameters.iter().any(|(own, _)| own == name))
    {
        let known: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
        let hint = did_you_mean(unknown, known.iter().copied());
        let there = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let message = format!("the model has no parameter `{unknown}`{hint} (it has: {there})");
        return mistake(Place { line: 1, column: 1 }, message);
    }
    let mut compiled = 0_usize;
    for process in &model.processes {
        let instances = count(process.count.as_ref(), &names, process.place)?.unwrap_or(1);
        compiled = compiled.saturating_add(instances.saturating_mul(process.token_count));
        if compiled > MAX_COMPILED {
            let message =
                format!("the processes so far have more than {MAX_COMPILED} names, numbers and signs");
            return mistake(process.place, message + ", each instance counted");
        }
    }
    // Processes first: guards and `accepting when` may name any of them.
    let mut starts = Vec::new();
    for process in &model.processes {
        let first = compiler.control_slots(process, &mut names)?;
        starts.push(first);
    }
    for variable in &model.variables {
        compiler.variable(variable, &mut names, "")?;
    }
    for channel in &model.channels {
        compiler.channel(channel, &mut names)?;
    }
    for (process, first) in model.processes.iter().zip(starts) {
        compiler.instances_of(process, first, &names, &model.processes)?;
    }
    let scope = Scope { names: &names, processes: &model.processes };
    let accepting = model.accepting.as_ref().map(|expr| scope.code(expr)).transpose()?;
    if compiler.instances.is_empty() {
        return mistake(Place { line: 1, column: 1 }, "the model has no process");
    }
    let state_bytes = compiler.slots.iter().map(|slot| slot.width).sum();
    let Compiler { slots, instances } = compiler;
    Ok(Program { name: model.name, parameters, slots, instances, accepting, state_bytes })
}

fn declare(names: &mut Names, name: &str, meaning: Meaning, place: Place) -> Result<(), ModelError> {
    if ["length", "first", "send", "receive", "when"].contains(&name) {
        return mistake(place, format!("`{name}` has a meaning in the language: take another name"));
    }
    if names.len() == MAX_NAMES {
        return mistake(place, format!("more than {MAX_NAMES} names"));
    }
    match names.insert(name.to_owned(), meaning) {
        None => Ok(()),
        Some(_) => mistake(place, format!("`{name}` is declared twice")),
    }
}

fn constant(expr: &Expr, names: &Names) -> Result<i64, ModelError> {
    let scope = Scope { names, processes: &[] };
    match scope.code(expr)? {
        Code::Number(number) => Ok(number),
        _ => mistake(place_of(expr), "this must be a number: parameters are, variables are not"),
    }
}

fn place_of(expr: &Expr) -> Place {
    match expr {
        Expr::Value(target) | Expr::InState(target, _) | Expr::Length(target) | Expr::First(target) => {
            target.place
        }
        Expr::Not(inner) | Expr::Negative(inner) => place_of(inner),
        Expr::Binary(.., place) => *place,
        Expr::Number(_) => Place { line: 1, column: 1 },
    }
}

fn count(expr: Option<&Expr>, names: &Names, place: Place) -> Result<Option<usize>, ModelError> {
    let Some(expr) = expr else { return Ok(None) };
    let number = constant(expr, names)?;
    match usize::try_from(number) {
        Ok(count @ 1..=MAX_SLOTS) => Ok(Some(count)),
        _ => mistake(place, format!("there cannot be {number} of them: 1 to {MAX_SLOTS}")),
    }
}

fn range(low: &Expr, high: &Expr, names: &Names, place: Place) -> Result<(i32, i32), ModelError> {
    let (low, high) = (constant(low, names)?, constant(high, names)?);
    match (i32::try_from(low), i32::try_from(high)) {
        (Ok(low), Ok(high)) if low <= high => Ok((low, high)),
        _ => mistake(place, format!("{low}..{high} is no range of 32-bit numbers")),
    }
}

/// `name`, or `name[2]` of an array.
fn numbered(name: &str, count: Option<usize>, number: usize) -> String {
    count.map_or_else(|| name.to_owned(), |_| format!("{name}[{number}]"))
}

impl Compiler {
    fn slot(
        &mut self,
        name: String,
        (low, high): (i32, i32),
        initial: i32,
        place: Place,
    ) -> Result<(), ModelError> {
        if self.slots.len() == MAX_SLOTS {
            return mistake(place, format!("a state has more than {MAX_SLOTS} numbers"));
        }
        let width = match i64::from(high) - i64::from(low) {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            _ => 4,
        };
        self.slots.push(Slot { name, low, initial, width });
        Ok(())
    }

    fn control_slots(&mut self, process: &Process, names: &mut Names) -> Result<usize, ModelError> {
        let count = count(process.count.as_ref(), names, process.place)?;
        let first = self.slots.len();
        let last = i32::try_from(process.states.len()).unwrap_or(i32::MAX) - 1;
        if last < 0 {
            return mistake(
                process.place,
                format!("`{}` has no state: declare them by `state`", process.name),
            );
        }
        for number in 0..count.unwrap_or(1) {
            self.slot(numbered(&process.name, count, number), (0, last), 0, process.place)?;
        }
        declare(names, &process.name, Meaning::Process { first, count }, process.place)?;
        Ok(first)
    }

    /// `owner` is the instance's name with a dot, for people.
    fn variable(&mut self, variable: &Variable, names: &mut Names, owner: &str) -> Result<(), ModelError> {
        let place = variable.place;
        let count = count(variable.count.as_ref(), names, place)?;
        let (low, high) = range(&variable.low, &variable.high, names, place)?;
        let initial = variable.initial.as_ref().map_or(Ok(i64::from(low)), |expr| constant(expr, names))?;
        let Some(initial) = i32::try_from(initial).ok().filter(|value| (low..=high).contains(value)) else {
            return mistake(
                place,
                format!("`{}` begins with {initial}, outside {low}..{high}", variable.name),
            );
        };
        let base = self.slots.len();
        for number in 0..count.unwrap_or(1) {
            let name = format!("{owner}{}", numbered(&variable.name, count, number));
            self.slot(name, (low, high), initial, place)?;
        }
        declare(names, &variable.name, Meaning::Variable { base, count, low, high }, place)
    }

    fn channel(&mut self, channel: &Channel, names: &mut Names) -> Result<(), ModelError> {
        let place = channel.place;
        let count = count(channel.count.as_ref(), names, place)?;
        let (low, high) = range(&channel.low, &channel.high, names, place)?;
        let capacity = constant(&channel.capacity, names)?;
        if !(1..=MAX_CAPACITY).contains(&capacity) {
            return mistake(place, format!("a channel holds 1 to {MAX_CAPACITY} messages, not {capacity}"));
        }
        let base = self.slots.len();
        for number in 0..count.unwrap_or(1) {
            let name = numbered(&channel.name, count, number);
            self.slot(format!("{name}.length"), (0, capacity as i32), 0, place)?;
            for message in 0..capacity {
                self.slot(format!("{name}.{message}"), (low, high), low, place)?;
            }
        }
        let capacity = capacity as usize;
        declare(names, &channel.name, Meaning::Channel { base, count, capacity, low, high }, place)
    }

    fn instances_of(
        &mut self,
        process: &Process,
        first: usize,
        names: &Names,
        processes: &[Process],
    ) -> Result<(), ModelError> {
        let count = count(process.count.as_ref(), names, process.place)?;
        for number in 0..count.unwrap_or(1) {
            let mut names = names.clone();
            if let Some(index) = &process.index {
                declare(&mut names, index, Meaning::Constant(number as i64), process.place)?;
            }
            let name = numbered(&process.name, count, number);
            for variable in &process.variables {
                self.variable(variable, &mut names, &format!("{name}."))?;
            }
            let scope = Scope { names: &names, processes };
            let mut transitions: Vec<Vec<Step>> = process.states.iter().map(|_| Vec::new()).collect();
            for transition in &process.transitions {
                let from = state_of(process, &transition.from, transition.place)?;
                let step = scope.step(process, transition)?;
                transitions[from].extend(step);
            }
            let states = process.states.clone();
            self.instances.push(Instance { name, control: first + number, states, transitions });
        }
        Ok(())
    }
}

fn state_of(process: &Process, name: &str, place: Place) -> Result<usize, ModelError> {
    process.states.iter().position(|state| state == name).map_or_else(
        || {
            let hint = did_you_mean(name, process.states.iter().map(String::as_str));
            mistake(
                place,
                format!(
                    "`{}` has no state `{name}`{hint} (it has: {})",
                    process.name,
                    process.states.join(", ")
                ),
            )
        },
        Ok,
    )
}

/// What names mean where an expression stands.
struct Scope<'a> {
    names: &'a Names,
    processes: &'a [Process],
}

impl Scope<'_> {
    /// Nothing when its guard is never true here, as `when i > 0` in the first instance.
    fn step(&self, process: &Process, transition: &Transition) -> Result<Option<Step>, ModelError> {
        let to = state_of(process, &transition.to, transition.place)? as i32;
        let guard = transition.guard.as_ref().map(|guard| self.code(guard)).transpose()?;
        let guard = match guard {
            Some(Code::Number(0)) => return Ok(None),
            Some(Code::Number(_)) => None,
            guard => guard,
        };
        let effects =
            transition.effects.iter().map(|effect| self.operation(effect)).collect::<Result<_, _>>()?;
        Ok(Some(Step { guard, effects, to }))
    }

    fn operation(&self, effect: &Effect) -> Result<Operation, ModelError> {
        Ok(match effect {
            Effect::Assign(target, value) => Operation::Assign(self.cell(target)?, self.code(value)?),
            Effect::Send(channel, value) => Operation::Send(self.queue(channel)?, self.code(value)?),
            Effect::Receive(channel, target) => Operation::Receive(self.queue(channel)?, self.cell(target)?),
        })
    }

    fn meaning(&self, target: &Target) -> Result<&Meaning, ModelError> {
        self.names.get(&target.name).map_or_else(
            || {
                let hint = did_you_mean(&target.name, self.names.keys().map(String::as_str));
                mistake(target.place, format!("`{}` is not declared{hint}", target.name))
            },
            Ok,
        )
    }

    /// Where an element begins: a slot when the index is a number.
    fn element(
        &self,
        target: &Target,
        (base, count, stride): (usize, Option<usize>, usize),
    ) -> Result<(usize, Option<Index>), ModelError> {
        match (&target.index, count) {
            (None, None) => Ok((base, None)),
            (Some(_), None) => mistake(target.place, format!("`{}` is no array", target.name)),
            (None, Some(_)) => {
                mistake(target.place, format!("`{0}` is an array: write {0}[...]", target.name))
            }
            (Some(index), Some(count)) => match self.code(index)? {
                Code::Number(number) => match usize::try_from(number) {
                    Ok(number) if number < count => Ok((base + number * stride, None)),
                    _ => mistake(
                        target.place,
                        format!("there is no {}[{number}], only [0] to [{}]", target.name, count - 1),
                    ),
                },
                code => Ok((base, Some(Index { code: Box::new(code), count, stride }))),
            },
        }
    }

    fn cell(&self, target: &Target) -> Result<Cell, ModelError> {
        let Meaning::Variable { base, count, low, high } = *self.meaning(target)? else {
            return mistake(target.place, format!("`{}` is no variable", target.name));
        };
        let (base, index) = self.element(target, (base, count, 1))?;
        Ok(Cell { base, index, low, high, place: target.place })
    }

    fn queue(&self, target: &Target) -> Result<Queue, ModelError> {
        let Meaning::Channel { base, count, capacity, low, high } = *self.meaning(target)? else {
            return mistake(target.place, format!("`{}` is no channel", target.name));
        };
        let (base, index) = self.element(target, (base, count, 1 + capacity))?;
        Ok(Queue { base, index, capacity, low, high, place: target.place })
    }

    fn code(&self, expr: &Expr) -> Result<Code, ModelError> {
        Ok(match expr {
            Expr::Number(number) => Code::Number(*number),
            Expr::Value(target) => match self.meaning(target)? {
                Meaning::Constant(value) if target.index.is_none() => Code::Number(*value),
                Meaning::Constant(_) => {
                    return mistake(target.place, format!("`{}` is no array", target.name));
                }
                _ => {
                    let cell = self.cell(target)?;
                    if cell.index.is_none() { Code::Slot(cell.base) } else { Code::Element(Box::new(cell)) }
                }
            },
            Expr::InState(target, state) => self.in_state(target, state)?,
            Expr::Length(channel) => {
                let queue = self.queue(channel)?;
                if queue.index.is_none() { Code::Slot(queue.base) } else { Code::Length(Box::new(queue)) }
            }
            Expr::First(channel) => Code::First(Box::new(self.queue(channel)?)),
            Expr::Not(inner) => match self.code(inner)? {
                Code::Number(number) => Code::Number(i64::from(number == 0)),
                code => Code::Not(Box::new(code)),
            },
            Expr::Negative(inner) => match self.code(inner)? {
                Code::Number(number) => match number.checked_neg() {
                    Some(number) => Code::Number(number),
                    None => return mistake(place_of(expr), format!("{number} has no negative here")),
                },
                code => Code::Negative(Box::new(code)),
            },
            Expr::Binary(operator, left, right, place) => {
                use crate::language::Operator as O;
                let left = self.code(left)?;
                // As at run time: in `i > 0 && left[i - 1]` the first instance has no `left[-1]`.
                match (*operator, &left) {
                    (O::And, Code::Number(0)) => return Ok(Code::Number(0)),
                    (O::Or, Code::Number(number)) if *number != 0 => return Ok(Code::Number(1)),
                    _ => (),
                }
                match (*operator, left, self.code(right)?) {
                    (operator, Code::Number(left), Code::Number(right)) => {
                        match binary(operator, left, right).filter(|value| VALUES.contains(value)) {
                            Some(value) => Code::Number(value),
                            None => {
                                return mistake(*place, format!("{left} and {right} have no result here"));
                            }
                        }
                    }
                    (O::Equal, Code::Slot(slot), Code::Number(value)) if i32::try_from(value).is_ok() => {
                        Code::SlotIs(slot, value as i32)
                    }
                    (operator, left, right) => {
                        Code::Binary(operator, Box::new(left), Box::new(right), *place)
                    }
                }
            }
        })
    }

    fn in_state(&self, target: &Target, state: &str) -> Result<Code, ModelError> {
        let Meaning::Process { first, count } = *self.meaning(target)? else {
            return mistake(target.place, format!("`{}` is no process", target.name));
        };
        let process = self.processes.iter().find(|process| process.name == target.name);
        let Some(process) = process else {
            return mistake(target.place, "the states of processes are no numbers".to_owned());
        };
        let value = state_of(process, state, target.place)? as i32;
        let (base, index) = self.element(target, (first, count, 1))?;
        if index.is_none() {
            return Ok(Code::SlotIs(base, value));
        }
        let cell = Cell { base, index, low: 0, high: i32::MAX, place: target.place };
        let (control, value) = (Code::Element(Box::new(cell)), Code::Number(i64::from(value)));
        Ok(Code::Binary(crate::language::Operator::Equal, Box::new(control), Box::new(value), target.place))
    }
}
