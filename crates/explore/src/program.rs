//! A model ready to run: slots of numbers, and per process and state the transitions.
//!
//! A state is one number per slot: the state of each process instance, variables, and for each
//! channel its length and contents. Packed, a slot takes as many bytes as its range needs.

use crate::{
    compile,
    language::{self, ModelError, Place},
};

/// A model whose parameters have values.
#[derive(Debug)]
pub struct Program {
    pub(crate) name: String,
    pub(crate) parameters: Vec<(String, i64)>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) instances: Vec<Instance>,
    pub(crate) accepting: Option<Code>,
    pub(crate) state_bytes: usize,
}

/// A number of a state.
#[derive(Debug)]
pub(crate) struct Slot {
    /// For people: `fork[2]`.
    pub(crate) name: String,
    pub(crate) low: i32,
    pub(crate) initial: i32,
    /// Bytes when packed.
    pub(crate) width: usize,
}

/// A process.
#[derive(Debug)]
pub(crate) struct Instance {
    /// For people: `philosopher[2]`.
    pub(crate) name: String,
    /// Slot of its state.
    pub(crate) control: usize,
    pub(crate) states: Vec<String>,
    /// By state.
    pub(crate) transitions: Vec<Vec<Step>>,
}

/// A transition of an instance.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) guard: Option<Code>,
    pub(crate) effects: Vec<Operation>,
    pub(crate) to: i32,
}

#[derive(Debug)]
pub(crate) enum Operation {
    Assign(Cell, Code),
    Send(Queue, Code),
    Receive(Queue, Cell),
}

/// A slot, or one of an array.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) base: usize,
    pub(crate) index: Option<Index>,
    pub(crate) low: i32,
    pub(crate) high: i32,
    pub(crate) place: Place,
}

/// A channel: the slot of its length, then its contents.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) base: usize,
    pub(crate) index: Option<Index>,
    pub(crate) capacity: usize,
    pub(crate) low: i32,
    pub(crate) high: i32,
    pub(crate) place: Place,
}

/// A number computed at run time that selects one of `count`, `stride` slots apart.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) code: Box<Code>,
    pub(crate) count: usize,
    pub(crate) stride: usize,
}

/// An expression.
#[derive(Debug)]
pub(crate) enum Code {
    Number(i64),
    Slot(usize),
    /// The commonest guard.
    SlotIs(usize, i32),
    Element(Box<Cell>),
    Length(Box<Queue>),
    First(Box<Queue>),
    Not(Box<Code>),
    Negative(Box<Code>),
    Binary(language::Operator, Box<Code>, Box<Code>, Place),
}

/// A state in which the model cannot be run: a mistake of the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Fault {
    /// Where in the model's text.
    pub place: Place,
    /// What happened.
    pub message: String,
}

impl Program {
    /// Reads a model, with values for some of its parameters.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn read(text: &str, values: &[(String, i64)]) -> Result<Self, ModelError> {
        compile::compile(language::parse(text)?, values)
    }

    /// Name and parameters.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Parameters with their values, in the order of the text.
    pub fn parameters(&self) -> &[(String, i64)] {
        &self.parameters
    }

    /// Whether the model says which states are accepting.
    pub fn has_accepting(&self) -> bool {
        self.accepting.is_some()
    }

    /// Bytes of a packed state.
    pub fn state_bytes(&self) -> usize {
        self.state_bytes
    }

    pub(crate) fn initial(&self) -> Vec<i32> {
        self.slots.iter().map(|slot| slot.initial).collect()
    }

    /// Appends the packed state.
    pub(crate) fn pack(&self, state: &[i32], packed: &mut Vec<u8>) {
        for (slot, value) in self.slots.iter().zip(state) {
            let offset = value.wrapping_sub(slot.low).cast_unsigned();
            match slot.width {
                1 => packed.push(offset as u8),
                2 => packed.extend_from_slice(&(offset as u16).to_le_bytes()),
                _ => packed.extend_from_slice(&offset.to_le_bytes()),
            }
        }
    }

    pub(crate) fn unpack(&self, packed: &[u8], state: &mut Vec<i32>) {
        state.clear();
        let mut rest = packed;
        for slot in &self.slots {
            let (own, others) = rest.split_at(slot.width);
            let mut bytes = [0; 4];
            bytes[..slot.width].copy_from_slice(own);
            state.push(u32::from_le_bytes(bytes).cast_signed().wrapping_add(slot.low));
            rest = others;
        }
    }

    /// Whether the model calls this state accepting.
    ///
    /// # Errors
    /// [`Fault`] of the expression.
    pub(crate) fn is_accepting(&self, state: &[i32]) -> Result<bool, Fault> {
        self.accepting.as_ref().map_or(Ok(false), |code| Ok(code.value(state)? != 0))
    }

    /// Calls `each` with every successor; their number.
    ///
    /// # Errors
    /// [`Fault`] of a guard or an effect.
    pub(crate) fn successors(
        &self,
        state: &[i32],
        scratch: &mut Vec<i32>,
        mut each: impl FnMut(&[i32]),
    ) -> Result<usize, Fault> {
        let mut count = 0;
        for instance in &self.instances {
            let Some(steps) = instance.transitions.get(state[instance.control].cast_unsigned() as usize)
            else {
                continue;
            };
            for step in steps {
                if let Some(guard) = &step.guard
                    && guard.value(state)? == 0
                {
                    continue;
                }
                scratch.clear();
                scratch.extend_from_slice(state);
                scratch[instance.control] = step.to;
                if step.run(scratch)? {
                    count += 1;
                    each(scratch);
                }
            }
        }
        Ok(count)
    }

    /// One line: what each process and variable is.
    pub(crate) fn shown(&self, state: &[i32]) -> String {
        let control = |instance: &Instance| {
            let place = state[instance.control].cast_unsigned() as usize;
            format!("{}.{}", instance.name, instance.states.get(place).map_or("?", String::as_str))
        };
        let is_control = |place: &usize| self.instances.iter().any(|instance| instance.control == *place);
        let numbers = (0..self.slots.len()).filter(|place| !is_control(place));
        let numbers = numbers.map(|place| format!("{}={}", self.slots[place].name, state[place]));
        self.instances.iter().map(control).chain(numbers).collect::<Vec<_>>().join(" ")
    }
}

impl Step {
    /// Applies the effects; false when a channel is full or empty, which disables the transition.
    fn run(&self, state: &mut [i32]) -> Result<bool, Fault> {
        for effect in &self.effects {
            match effect {
                Operation::Assign(cell, code) => {
                    let value = code.value(state)?;
                    cell.assign(state, value)?;
                }
                Operation::Send(queue, code) => {
                    let value = code.value(state)?;
                    let base = queue.at(state)?;
                    let length = state[base].cast_unsigned() as usize;
                    if length == queue.capacity {
                        return Ok(false);
                    }
                    state[base + 1 + length] = within(value, (queue.low, queue.high), queue.place)?;
                    state[base] += 1;
                }
                Operation::Receive(queue, cell) => {
                    let base = queue.at(state)?;
                    let length = state[base].cast_unsigned() as usize;
                    if length == 0 {
                        return Ok(false);
                    }
                    let value = state[base + 1];
                    state.copy_within(base + 2..base + 1 + length, base + 1);
                    // Equal contents are equal states: unused places are all the same.
                    state[base + length] = queue.low;
                    state[base] -= 1;
                    cell.assign(state, i64::from(value))?;
                }
            }
        }
        Ok(true)
    }
}

fn within(value: i64, (low, high): (i32, i32), place: Place) -> Result<i32, Fault> {
    match i32::try_from(value) {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ => Err(Fault { place, message: format!("{value} is outside the range {low}..{high}") }),
    }
}

impl Index {
    fn offset(&self, state: &[i32], place: Place) -> Result<usize, Fault> {
        let index = self.code.value(state)?;
        match usize::try_from(index) {
            Ok(index) if index < self.count => Ok(index * self.stride),
            _ => Err(Fault {
                place,
                message: format!("there is no [{index}], only [0] to [{}]", self.count - 1),
            }),
        }
    }
}

impl Cell {
    fn at(&self, state: &[i32]) -> Result<usize, Fault> {
        self.index.as_ref().map_or(Ok(self.base), |index| Ok(self.base + index.offset(state, self.place)?))
    }

    fn assign(&self, state: &mut [i32], value: i64) -> Result<(), Fault> {
        let at = self.at(state)?;
        state[at] = within(value, (self.low, self.high), self.place)?;
        Ok(())
    }
}

impl Queue {
    fn at(&self, state: &[i32]) -> Result<usize, Fault> {
        self.index.as_ref().map_or(Ok(self.base), |index| Ok(self.base + index.offset(state, self.place)?))
    }
}

impl Code {
    pub(crate) fn value(&self, state: &[i32]) -> Result<i64, Fault> {
        use language::Operator as O;
        Ok(match self {
            Self::Number(number) => *number,
            Self::Slot(slot) => i64::from(state[*slot]),
            Self::SlotIs(slot, value) => i64::from(state[*slot] == *value),
            Self::Element(cell) => i64::from(state[cell.at(state)?]),
            Self::Length(queue) => i64::from(state[queue.at(state)?]),
            Self::First(queue) => {
                let base = queue.at(state)?;
                if state[base] == 0 {
                    let message = "the channel is empty: check its length() first".to_owned();
                    return Err(Fault { place: queue.place, message });
                }
                i64::from(state[base + 1])
            }
            Self::Not(code) => i64::from(code.value(state)? == 0),
            Self::Negative(code) => -code.value(state)?,
            Self::Binary(O::And, left, right, _) => {
                i64::from(left.value(state)? != 0 && right.value(state)? != 0)
            }
            Self::Binary(O::Or, left, right, _) => {
                i64::from(left.value(state)? != 0 || right.value(state)? != 0)
            }
            Self::Binary(operator, left, right, place) => {
                let (left, right) = (left.value(state)?, right.value(state)?);
                binary(*operator, left, right).ok_or_else(|| Fault {
                    place: *place,
                    message: format!(
                        "{left} and {right} have no result here (division by zero, or too large)"
                    ),
                })?
            }
        })
    }
}

/// Nothing where there is no result.
pub(crate) fn binary(operator: language::Operator, left: i64, right: i64) -> Option<i64> {
    use language::Operator as O;
    Some(match operator {
        O::Or => i64::from(left != 0 || right != 0),
        O::And => i64::from(left != 0 && right != 0),
        O::Equal => i64::from(left == right),
        O::Unequal => i64::from(left != right),
        O::Less => i64::from(left < right),
        O::AtMost => i64::from(left <= right),
        O::Greater => i64::from(left > right),
        O::AtLeast => i64::from(left >= right),
        O::Plus => left.checked_add(right)?,
        O::Minus => left.checked_sub(right)?,
        O::Times => left.checked_mul(right)?,
        O::Over => left.checked_div(right)?,
        O::Remainder => left.checked_rem_euclid(right)?,
    })
}
