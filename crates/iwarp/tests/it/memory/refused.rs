//! The kernel refuses io_uring: before memory is held, for one registration, and while connections use what is held. Each
//! case has a process of its own, which the kernel refuses it.
#![cfg(not(miri))]

use std::{
    env, fs, io,
    os::fd::{AsFd, AsRawFd},
    process::{Command, Stdio},
    ptr,
};

use clearstream_iwarp::{
    memory::{
        AccessError, MemoryTable, Piece, Span,
        raw::{self, Keeping},
        receive, send,
    },
    stag::{DomainId, Stag},
    verbs::{
        AcceptOptions, Access, ConnectOptions, Listener, ProtectionDomain, Region, Rnic, RnicOptions, State,
        raw::{
            CompletionQueue, Data, Operation, QueuePair, QueuePairOptions, ReceiveRequest, Segment,
            SendRequest,
        },
    },
    work::{Completion, Remote, Status},
};
use clearstream_testkit::again::{assert_passed, one_test};

use crate::{
    memory::{all, sockets::tcp, table},
    rnic::sides::{TIMEOUT, all_modes, any_port, until},
};

const LENGTH: usize = 256 << 10;
/// A user without processes.
const NOBODY: libc::uid_t = 61_234;

/// The case that this process is for. The test's own starts one for each, and has nothing else to do.
fn alone(test: &str, cases: &[&str]) -> Option<String> {
    const MARK: &str = "CLEARSTREAM_TEST_CASE";
    if let Ok(case) = env::var(MARK) {
        return Some(case);
    }
    for case in cases {
        let [program, options @ ..] = one_test(module_path!(), test);
        let mut command = Command::new(program);
        command.args(options).env(MARK, case).stdin(Stdio::null());
        assert_passed(&command.output().unwrap());
    }
    None
}

/// Sets a limit of this process.
fn limit(of: libc::__rlimit_resource_t, to: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
    // SAFETY: a limit.
    assert_eq!(unsafe { libc::setrlimit(of, &raw const limit) }, 0, "{}", io::Error::last_os_error());
}

/// Makes the kernel refuse a system call of all threads of this process, with EPERM (seccomp(2)).
fn refuse(call: libc::c_long) {
    let step = |code: u32, yes: u8, k: u32| libc::sock_filter { code: code as u16, jt: yes, jf: 0, k };
    let mut filter = [
        // The number of the call, which is the first field of `seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, u32::try_from(call).unwrap()),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: a flag of this process, and a filter that the kernel copies.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) == 0
    };
    assert!(refused, "{}", io::Error::last_os_error());
}

/// Ends what is held in the middle of a run: the kernel takes no more requests, or the program has closed descriptors that
/// are not its own, and others have their numbers.
fn end_rings(case: &str) {
    if case == "enter" {
        return refuse(libc::SYS_io_uring_enter);
    }
    let null = fs::File::open("/dev/null").unwrap();
    let descriptors: Vec<_> = fs::read_dir("/proc/self/fd").unwrap().flatten().collect();
    let is_ring = |entry: &&fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|of| of.as_os_str() == "anon_inode:[io_uring]")
    };
    let mut ended = 0;
    for entry in descriptors.iter().filter(is_ring) {
        let ring: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: what a program may do; the ring's owner closes the new one.
        assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), ring) }, ring);
        ended += 1;
    }
    assert!(ended > 0, "there are rings");
}

/// Memory of a program, until the test ends.
fn mapped(at: *mut u8) -> *mut u8 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    // SAFETY: a new mapping, or one in the place of another of this function.
    let base = unsafe { libc::mmap(at.cast(), LENGTH, rights, kind, -1, 0) };
    assert_ne!(base, libc::MAP_FAILED);
    // All of a huge page would be held.
    // SAFETY: advice about that mapping.
    unsafe { libc::madvise(base, LENGTH, libc::MADV_NOHUGEPAGE) };
    base.cast()
}

fn bytes(of: *mut u8) -> Vec<u8> {
    // SAFETY: of `mapped`, and no request is on its way.
    unsafe { std::slice::from_raw_parts(of, LENGTH) }.to_vec()
}

/// Registers the first bytes of memory to be held; why they are not.
fn registered(
    table: &MemoryTable,
    domain: DomainId,
    base: *mut u8,
    length: usize,
) -> (Stag, Option<io::Error>) {
    raw::register_untrusted(table, domain, base, length, base.addr() as u64, all(), Keeping::Held).unwrap()
}

fn span(table: &MemoryTable, domain: DomainId, (base, stag): (*mut u8, Stag)) -> Span {
    let segment = Segment { stag, address: base.addr() as u64, length: LENGTH as u32 };
    table.local(domain, segment, true).unwrap()
}

#[test]
fn memory_is_checked_where_there_is_no_ring() {
    let cases = ["setup", "register", "enter"];
    let Some(case) = alone("memory_is_checked_where_there_is_no_ring", &cases) else { return };
    refuse(match case.as_str() {
        "setup" => libc::SYS_io_uring_setup,
        "register" => libc::SYS_io_uring_register,
        _ => libc::SYS_io_uring_enter,
    });
    let (table, domain) = table();
    let memory = mapped(ptr::null_mut());
    let (stag, why) = registered(&table, domain, memory, LENGTH);
    assert_eq!(why.and_then(|why| why.raw_os_error()), Some(libc::EPERM));
    let span = span(&table, domain, (memory, stag));
    span.write(100, b"checked").unwrap();
    assert_eq!(&bytes(memory)[100..107], b"checked");
    // SAFETY: of `mapped`; nothing in this program refers to it.
    assert_eq!(unsafe { libc::munmap(memory.cast(), LENGTH) }, 0);
    assert_eq!(span.write(100, b"gone"), Err(AccessError::InvalidStag));
}

#[test]
fn one_ring_is_enough_where_there_are_descriptors_for_no_more() {
    let test = "one_ring_is_enough_where_there_are_descriptors_for_no_more";
    let Some(_) = alone(test, &["descriptors"]) else { return };
    let next = fs::File::open("/dev/null").unwrap().as_raw_fd();
    // A ring has four.
    limit(libc::RLIMIT_NOFILE, next as libc::rlim_t + 6);
    let (table, domain) = table();
    let memory = mapped(ptr::null_mut());
    let (stag, why) = registered(&table, domain, memory, LENGTH);
    assert!(why.is_none(), "{why:?}");
    span(&table, domain, (memory, stag)).write(100, b"held").unwrap();
    assert_eq!(&bytes(memory)[100..104], b"held");
}

#[test]
fn registrations_beyond_the_limit_of_locked_memory_are_checked_and_take_no_place() {
    let test = "registrations_beyond_the_limit_of_locked_memory_are_checked_and_take_no_place";
    let Some(_) = alone(test, &["limit"]) else { return };
    limit(libc::RLIMIT_MEMLOCK, 64 << 10);
    // The limit is of all processes of a user, and none of root's.
    // SAFETY: the user of this process.
    unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) };
    let (table, domain) = table();
    let (one, other) = (mapped(ptr::null_mut()), mapped(ptr::null_mut()));
    let hold = || registered(&table, domain, one, 32 << 10);
    let (held, why) = hold();
    assert!(why.is_none(), "{why:?}");
    // More than the table of held memory has entries.
    for _ in 0..(1 << 14) + 10 {
        let (checked, why) = registered(&table, domain, other, LENGTH);
        assert_eq!(why.and_then(|why| why.raw_os_error()), Some(libc::ENOMEM));
        table.deregister(checked).unwrap();
    }
    // What is given up is not counted any more.
    table.deregister(held).unwrap();
    let (held, why) = hold();
    assert!(why.is_none(), "{why:?}");
    let segment = Segment { stag: held, address: one.addr() as u64, length: 10 };
    table.local(domain, segment, true).unwrap().write(0, b"held again").unwrap();
    assert_eq!(&bytes(one)[..10], b"held again");
}

/// What is held is not reached any more: not by its address either, where other memory may be. What is registered from
/// then on is checked.
#[test]
fn held_memory_fails_when_the_kernel_takes_no_more_requests_and_new_memory_is_checked() {
    let test = "held_memory_fails_when_the_kernel_takes_no_more_requests_and_new_memory_is_checked";
    let Some(case) = alone(test, &["enter", "descriptors"]) else { return };
    let (table, domain) = table();
    let (kept, given_up) = (mapped(ptr::null_mut()), mapped(ptr::null_mut()));
    let [kept_stag, given_up_stag] = [kept, given_up].map(|memory| {
        let (stag, why) = registered(&table, domain, memory, LENGTH);
        assert!(why.is_none(), "{why:?}");
        stag
    });
    let spans = [(kept, kept_stag), (given_up, given_up_stag)].map(|memory| span(&table, domain, memory));
    for span in &spans {
        span.write(0, b"before").unwrap();
    }
    mapped(given_up);
    end_rings(&case);

    let gone = Err(AccessError::InvalidStag);
    let mut read = [0; 6];
    // More often than there are rings.
    for _ in 0..10 {
        for span in &spans {
            assert_eq!((span.write(0, b"after"), span.read(0, &mut read)), (gone, gone));
            assert_eq!(span.slice(0, 8).fetch_add(1, 0), Err(AccessError::InvalidStag));
        }
    }
    assert_eq!(&bytes(kept)[..6], b"before");
    assert_eq!(bytes(given_up), [0; LENGTH], "what is at the address now");

    let (here, there) = tcp();
    io::Write::write_all(&mut (&here), &[9; 100]).unwrap();
    let mut staging = [0; 100];
    for span in &spans {
        let span = span.slice(0, 50);
        let refused = receive(there.as_fd(), std::slice::from_ref(&span), &mut staging).unwrap_err();
        // As of memory that is gone: it is no error of the socket.
        assert_eq!((refused.kind(), refused.raw_os_error()), (io::ErrorKind::PermissionDenied, None));
        let refused = send(there.as_fd(), &[Piece::Bytes(b"x"), Piece::Pages(&span)], false).unwrap_err();
        assert_eq!((refused.kind(), refused.raw_os_error()), (io::ErrorKind::PermissionDenied, None));
    }
    let received = receive(there.as_fd(), &[], &mut staging).unwrap();
    assert_eq!((received.staged, staging), (100, [9; 100]), "nothing of the stream is lost");
    // What a program sends itself goes by its address, as before.
    assert_eq!(send(there.as_fd(), &[Piece::Memory(&spans[0])], false).unwrap(), LENGTH);

    let memory = mapped(ptr::null_mut());
    let (stag, why) = registered(&table, domain, memory, LENGTH);
    assert!(why.is_some(), "it is not held");
    span(&table, domain, (memory, stag)).write(0, b"checked").unwrap();
    assert_eq!(&bytes(memory)[..7], b"checked");
    for stag in [stag, kept_stag, given_up_stag] {
        table.deregister(stag).unwrap();
    }
    assert_eq!(table.tag_count(), 0);
}

/// One end of a connection.
struct End {
    rnic: Rnic,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    queue_pair: QueuePair,
}

impl End {
    fn of(rnic: &Rnic) -> Self {
        let completions = CompletionQueue::new(rnic, 64, 0, None).unwrap();
        let domain = ProtectionDomain::new(rnic);
        let queue_pair = QueuePair::new(&domain, &QueuePairOptions::new(&completions)).unwrap();
        Self { rnic: rnic.clone(), domain, completions, queue_pair }
    }

    /// Two connected ends of two RNICs.
    fn pair([one, other]: &[Rnic; 2]) -> [Self; 2] {
        let (near, far) = (Self::of(one), Self::of(other));
        let listener = Listener::bind(other, any_port()).unwrap();
        let address = listener.local_address();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
                far.queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
            });
            // Long messages are received straight into their memory.
            let options = ConnectOptions { crc: false, ..ConnectOptions::default() };
            near.queue_pair.connect(address, &options).unwrap();
        });
        [near, far]
    }

    fn post_send(&self, operation: Operation) {
        self.queue_pair.post_send(SendRequest { id: 1, operation, signaled: true, fence: false }).unwrap();
    }

    fn post_receive(&self, segment: Segment) {
        let segments = [segment].into_iter().collect();
        self.queue_pair.post_receive(ReceiveRequest { id: 2, segments }).unwrap();
    }
}

/// The completions of two ends, until both have one or are in the error state.
fn completed([near, far]: &[End; 2]) -> [Option<Completion>; 2] {
    let mut found = [None, None];
    until("the request ends", || {
        for (end, found) in [near, far].into_iter().zip(&mut found) {
            if found.is_none() {
                *found = end.completions.poll_one().unwrap();
            }
        }
        let is_over =
            |end: &End, found: &Option<Completion>| found.is_some() || end.queue_pair.state() == State::Error;
        is_over(near, &found[0]) && is_over(far, &found[1])
    });
    found
}

/// The far end's memory is held; the near end's is its RNIC's.
struct Conversation {
    ends: [End; 2],
    near: Region,
    far: (*mut u8, Stag),
}

impl Conversation {
    fn new(rnics: &[Rnic; 2]) -> (Self, Option<io::Error>) {
        let ends = End::pair(rnics);
        let near = Region::new(&ends[0].domain, LENGTH, Access::LOCAL_WRITE).unwrap();
        near.write(0, &[7; LENGTH]);
        let memory = mapped(ptr::null_mut());
        let (stag, why) = registered(ends[1].rnic.memory(), ends[1].domain.id(), memory, LENGTH);
        (Self { ends, near, far: (memory, stag) }, why)
    }

    /// Sends, writes or reads so many bytes.
    fn starts(&self, operation: &str, length: usize) {
        let near = self.near.segment(0, length as u32);
        let data = || Data::Gather([near].into_iter().collect());
        let remote = Remote { stag: self.far.1, address: self.far.0.addr() as u64 };
        self.ends[0].post_send(match operation {
            "send" => {
                let memory = Segment { stag: remote.stag, address: remote.address, length: LENGTH as u32 };
                self.ends[1].post_receive(memory);
                Operation::Send { data: data(), solicited: false, invalidate: None }
            }
            "write" => Operation::Write { data: data(), remote },
            _ => Operation::Read { sink: near, remote, invalidate: false },
        });
    }
}

/// Each access of a peer ends its connection, as that to memory that is gone. Others go on, and new ones are served.
#[test]
fn connections_that_use_held_memory_end_and_others_go_on() {
    let test = "connections_that_use_held_memory_end_and_others_go_on";
    let cases = ["enter", "descriptors"];
    let Some(case) = alone(test, &cases) else { return };
    let rnics: Vec<[Rnic; 2]> = all_modes().into_iter().map(open_two).collect();
    let accesses =
        [("send", 100), ("send", LENGTH), ("write", 100), ("write", LENGTH), ("read", 100), ("read", LENGTH)];
    let mut conversations = Vec::new();
    for rnics in &rnics {
        for access in accesses {
            let (conversation, why) = Conversation::new(rnics);
            assert!(why.is_none(), "{why:?}");
            conversations.push((access, conversation));
        }
    }
    // One of each RNIC uses memory of its own.
    let others: Vec<([End; 2], Region)> = rnics
        .iter()
        .map(|rnics| {
            let ends = End::pair(rnics);
            let region = Region::new(&ends[1].domain, LENGTH, Access::LOCAL_WRITE).unwrap();
            (ends, region)
        })
        .collect();
    end_rings(&case);

    for ((operation, length), conversation) in &conversations {
        let what = format!("{case}, {operation} of {length}");
        conversation.starts(operation, *length);
        let [near, far] = completed(&conversation.ends);
        if *operation == "send" {
            assert_eq!(far.map(|far| far.status), Some(Status::LocalProtection), "{what}");
        }
        if *operation == "read" {
            assert_ne!(near.map(|near| near.status), Some(Status::Success), "{what}");
        }
        until(&format!("{what}: both ends know"), || {
            let error = |end: &End| {
                end.completions.progress();
                end.queue_pair.state() == State::Error
            };
            conversation.ends.iter().all(error)
        });
        assert_eq!(bytes(conversation.far.0), [0; LENGTH], "{what}");
    }
    for (ends, region) in &others {
        ends[1].post_receive(region.segment(0, LENGTH as u32));
        let data = Data::Inline([5; 50].into_iter().collect());
        ends[0].post_send(Operation::Send { data, solicited: false, invalidate: None });
        let [near, far] = completed(ends);
        assert_eq!([near, far].map(|one| one.unwrap().status), [Status::Success; 2]);
    }
    for rnics in &rnics {
        let (conversation, why) = Conversation::new(rnics);
        assert!(why.is_some(), "it is not held");
        conversation.starts("send", LENGTH);
        let [near, far] = completed(&conversation.ends);
        assert_eq!([near, far].map(|one| one.unwrap().status), [Status::Success; 2]);
        assert_eq!(bytes(conversation.far.0), [7; LENGTH]);
    }
}

fn open_two(options: RnicOptions) -> [Rnic; 2] {
    [options.clone(), options].map(|options| Rnic::open(options).unwrap())
}
