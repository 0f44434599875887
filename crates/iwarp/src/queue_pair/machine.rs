//! The face of the protocol machine (signatures; the bodies follow).
//!
//! ```text
//! impl Machine {
//!   pub fn new(id: QueuePairId, domain: DomainId, memory: Arc<MemoryTable>, agreed: &Agreed,
//!              mulpdu: usize, limits: Limits, receives: Receives) -> Self;   // state Rts
//!   pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError>;
//!   pub fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError>;
//!   pub fn outgoing(&mut self) -> &Batch;      // Batch: is_empty(), len() in bytes,
//!                                              // pieces(&self, &mut SmallVec<[Piece<'_>; 64]>)
//!   pub fn sent(&mut self, bytes: usize);
//!   pub fn straight(&mut self) -> Option<(SmallVec<[Span; 4]>, usize)>;
//!   pub fn placed(&mut self, bytes: usize);
//!   pub fn consume(&mut self, staged: &[u8]);
//!   pub fn end_of_stream(&mut self);           // FIN of the peer
//!   pub fn fail(&mut self, reason: Failure);   // RST, time out, modify to error: flushes at once
//!   pub fn close(&mut self);                   // in order: sends what is posted, waits for Reads, then wants_close
//!   pub fn completions(&mut self) -> impl Iterator<Item = (Side, Completion)> + '_;
//!   pub fn events(&mut self) -> impl Iterator<Item = Event> + '_;
//!   pub fn state(&self) -> State;
//!   pub fn outstanding(&self) -> usize;        // requests of the send queue that take room in it (for a poster's
//!                                              // own count: it does not wait for the machine)
//!   pub fn wants_close(&self) -> bool;         // nothing more to send: shut the socket down for writing;
//!                                              // in state Error: close it
//! }
//! impl Limits {                                // what post_send checks beside room and state, for a poster that
//!                                              // hands requests over through a queue
//!   pub fn check(&self, request: &SendRequest, ord: u16) -> Result<(), PostError>;
//! }
//! ```
