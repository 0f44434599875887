//! Messages in flight (`MPI_Isend`, `MPI_Irecv`): a set of slots, whose buffers belong to MPI until they are complete.

use std::{
    ffi::{c_int, c_void},
    io,
    mem::ManuallyDrop,
    ptr::NonNull,
    slice,
};

use super::{MpiProcess, MpiResult, number};
use crate::memory::Buffer;

/// Functions of `ranks.c` for a set.
#[derive(Clone, Copy)]
pub(super) struct RequestFunctions {
    pub(super) new: unsafe extern "C" fn(c_int) -> *mut c_void,
    pub(super) start_send:
        unsafe extern "C" fn(*mut c_void, c_int, *const c_void, c_int, c_int, c_int) -> c_int,
    pub(super) start_receive:
        unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, c_int, c_int, c_int) -> c_int,
    pub(super) test: unsafe extern "C" fn(*mut c_void, c_int, *mut c_int) -> c_int,
    pub(super) wait_all: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub(super) free: unsafe extern "C" fn(*mut c_void) -> c_int,
}

/// A set of messages of one direction. Slots have a buffer each, or one for all of them.
pub struct Requests<'p> {
    process: &'p MpiProcess,
    set: NonNull<c_void>,
    /// Of all buffers, behind each other; MPI and [`Self::bytes`] reach them by `start` alone.
    memory: ManuallyDrop<Buffer>,
    start: NonNull<u8>,
    /// Of each.
    capacity: usize,
    is_shared: bool,
    in_flight: Vec<bool>,
    in_flight_count: usize,
}

impl<'p> Requests<'p> {
    /// For so many messages in flight of at most so many bytes. With one buffer for all of them, what is received
    /// cannot be told apart, as in the OSU micro-benchmarks.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(process: &'p MpiProcess, slots: usize, capacity: usize, is_shared: bool) -> io::Result<Self> {
        let out_of_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let all = capacity.checked_mul(if is_shared { 1 } else { slots }).ok_or_else(out_of_memory)?;
        let mut memory = Buffer::new(all, None)?;
        let start = NonNull::new(memory.as_mut_ptr()).ok_or_else(out_of_memory)?;
        let count = c_int::try_from(slots).map_err(|_| out_of_memory())?;
        // SAFETY: it takes a number, and allocates.
        let set = NonNull::new(unsafe { (process.requests.new)(count) }).ok_or_else(out_of_memory)?;
        let (memory, in_flight) = (ManuallyDrop::new(memory), vec![false; slots]);
        Ok(Self { process, set, memory, start, capacity, is_shared, in_flight, in_flight_count: 0 })
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.in_flight.len()
    }

    /// The buffer of a slot with this length, if it is that long and no message uses it.
    pub fn bytes(&mut self, slot: usize, length: usize) -> Option<&mut [u8]> {
        let is_used = if self.is_shared { self.in_flight_count > 0 } else { *self.in_flight.get(slot)? };
        if is_used || length > self.capacity {
            return None;
        }
        let place = self.place(slot);
        // SAFETY: the buffer lives as long as `self`, has `capacity` bytes, and no message in flight uses it; its
        // exclusive reference ends before the next one begins.
        Some(unsafe { slice::from_raw_parts_mut(place.as_ptr(), length) })
    }

    fn place(&self, slot: usize) -> NonNull<u8> {
        let offset = if self.is_shared { 0 } else { slot * self.capacity };
        // SAFETY: slots are checked against their number before, and the memory has `capacity` bytes for each.
        unsafe { self.start.add(offset) }
    }

    /// Checks that a slot is free and its buffer long enough.
    #[inline]
    fn prepare(&self, slot: usize, length: usize) -> MpiResult<(c_int, c_int)> {
        if self.in_flight.get(slot) != Some(&false) || length > self.capacity {
            return Err(format!("slot {slot} is not free for a message of {length} bytes"));
        }
        Ok((number(slot)?, number(length)?))
    }

    /// Starts to send the first bytes of a slot's buffer.
    ///
    /// # Errors
    /// As MPI reports them; the slot is in flight, or its buffer is shorter.
    #[inline]
    pub fn start_send(&mut self, slot: usize, length: usize, to: usize, tag: u8) -> MpiResult<()> {
        let ((place, count), to) = (self.prepare(slot, length)?, number(to)?);
        let bytes = self.place(slot).as_ptr().cast_const().cast();
        // SAFETY: the buffer has `count` bytes, and is neither freed nor written while the message is in flight.
        let code = unsafe {
            (self.process.requests.start_send)(self.set.as_ptr(), place, bytes, count, to, tag.into())
        };
        self.started(slot, code)
    }

    /// Starts to receive a message of at most so many bytes into a slot's buffer.
    ///
    /// # Errors
    /// As MPI reports them; the slot is in flight, or its buffer is shorter.
    #[inline]
    pub fn start_receive(&mut self, slot: usize, length: usize, from: usize, tag: u8) -> MpiResult<()> {
        let ((place, count), from) = (self.prepare(slot, length)?, number(from)?);
        let bytes = self.place(slot).as_ptr().cast();
        // SAFETY: the buffer has `count` bytes, and is neither freed nor read while the message is in flight.
        let code = unsafe {
            (self.process.requests.start_receive)(self.set.as_ptr(), place, bytes, count, from, tag.into())
        };
        self.started(slot, code)
    }

    #[inline]
    fn started(&mut self, slot: usize, code: c_int) -> MpiResult<()> {
        self.process.check(code)?;
        self.in_flight[slot] = true;
        self.in_flight_count += 1;
        Ok(())
    }

    /// Whether the message of a slot is complete, as it is where none was started.
    ///
    /// # Errors
    /// As MPI reports them; there is no such slot.
    #[inline]
    pub fn test(&mut self, slot: usize) -> MpiResult<bool> {
        match self.in_flight.get(slot) {
            Some(true) => {}
            Some(false) => return Ok(true),
            None => return Err(format!("there is no slot {slot}")),
        }
        let mut done = 0;
        // SAFETY: the set has this slot, and the integer lives.
        let code = unsafe { (self.process.requests.test)(self.set.as_ptr(), number(slot)?, &raw mut done) };
        self.process.check(code)?;
        if done != 0 {
            self.in_flight[slot] = false;
            self.in_flight_count -= 1;
        }
        Ok(done != 0)
    }

    /// Waits until all messages are complete.
    ///
    /// # Errors
    /// As MPI reports them.
    pub fn wait_all(&mut self) -> MpiResult<()> {
        // SAFETY: the set is live.
        let code = unsafe { (self.process.requests.wait_all)(self.set.as_ptr()) };
        self.process.check(code)?;
        self.in_flight.fill(false);
        self.in_flight_count = 0;
        Ok(())
    }
}

impl Drop for Requests<'_> {
    fn drop(&mut self) {
        // SAFETY: the set is live, MPI still is, and neither is used after this.
        let is_freed = unsafe { (self.process.requests.free)(self.set.as_ptr()) } != 0;
        if is_freed {
            // SAFETY: nothing uses the memory any more, and it is dropped once. Else MPI keeps it.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}
