//! The C functions of `extras/mpi/library/ranks.c`, loaded at run time with `dlopen(3)`: a program that was
//! linked with one MPI would not start on hosts with another.

mod requests;

use std::{
    cell::Cell,
    ffi::{CStr, c_int, c_void},
    marker::PhantomData,
    path::Path,
};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use requests::RequestFunctions;
pub use requests::Requests;

/// Version of the functions below.
const INTERFACE_VERSION: c_int = 3;
const NAME_BYTES: usize = 256;
/// Of `clearstream_mpi_init`: MPI gives less than was asked for.
const FEW_THREADS: c_int = -1;

/// What MPI reports.
pub type MpiResult<T> = Result<T, String>;

type Send = unsafe extern "C" fn(*const c_void, c_int, c_int, c_int) -> c_int;
type Probe = unsafe extern "C" fn(c_int, *mut c_int, *mut c_int, *mut c_int) -> c_int;
type Receive = unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int) -> c_int;
type ErrorText = unsafe extern "C" fn(c_int, *mut u8, usize) -> c_int;
type Init = unsafe extern "C" fn(c_int, *mut c_int, *mut c_int) -> c_int;
type Names = unsafe extern "C" fn(*mut u8, *mut u8, usize, *mut c_int, *mut c_int) -> c_int;

/// Which threads of the process there are when MPI is called (MPI 3.1, section 12.4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// The process has one thread (MPI_THREAD_SINGLE): messages cost least.
    One,
    /// Any, and one of them at a time calls MPI (MPI_THREAD_SERIALIZED).
    Serialized,
}

/// This process as a rank of an MPI job. One thread at a time uses it.
pub struct MpiProcess {
    rank: usize,
    size: usize,
    library_version: String,
    standard: String,
    host: String,
    send: Send,
    send_whole: Send,
    probe: Probe,
    receive: Receive,
    error_text: ErrorText,
    finalize: unsafe extern "C" fn() -> c_int,
    abort: unsafe extern "C" fn(c_int),
    requests: RequestFunctions,
    is_done: bool,
    /// MPI is called by one thread at a time, also by functions that change nothing here.
    _not_shared: PhantomData<Cell<()>>,
}

/// Copies a function's address out of the library, which stays loaded until the process ends.
macro_rules! function {
    ($library:expr, $name:literal, $type:ty) => {{
        // SAFETY: `ranks.c` defines the function with this type, and its version was compared.
        let symbol = unsafe { $library.get::<$type>(concat!($name, "\0").as_bytes()) };
        *symbol.map_err(|error| format!("{} is missing: {error}", $name))?
    }};
}

impl MpiProcess {
    /// Loads the library and initialises MPI; once per process.
    ///
    /// # Errors
    /// The library cannot be loaded, is of another version, or MPI cannot be initialised.
    pub fn start(path: &Path, threads: Threads) -> MpiResult<Self> {
        // Plugins of Open MPI look MPI's own symbols up among the global ones.
        // SAFETY: the library's initialisers are those of the site's MPI.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
        // MPI's threads and exit handlers outlive any use of it here.
        let library: &'static Library = Box::leak(Box::new(library.map_err(|error| error.to_string())?));
        let version = function!(library, "clearstream_mpi_version", unsafe extern "C" fn() -> c_int);
        // SAFETY: it takes nothing.
        let version = unsafe { version() };
        if version != INTERFACE_VERSION {
            return Err(format!(
                "its interface has version {version}, {INTERFACE_VERSION} is needed: rebuild it"
            ));
        }
        let init = function!(library, "clearstream_mpi_init", Init);
        let names = function!(library, "clearstream_mpi_names", Names);
        let mut process = Self {
            rank: 0,
            size: 0,
            library_version: String::new(),
            standard: String::new(),
            host: String::new(),
            send: function!(library, "clearstream_mpi_send", Send),
            send_whole: function!(library, "clearstream_mpi_send_whole", Send),
            probe: function!(library, "clearstream_mpi_probe", Probe),
            receive: function!(library, "clearstream_mpi_receive", Receive),
            error_text: function!(library, "clearstream_mpi_error", ErrorText),
            finalize: function!(library, "clearstream_mpi_finalize", unsafe extern "C" fn() -> c_int),
            abort: function!(library, "clearstream_mpi_abort", unsafe extern "C" fn(c_int)),
            requests: RequestFunctions {
                new: function!(library, "clearstream_mpi_requests", _),
                start_send: function!(library, "clearstream_mpi_start_send", _),
                start_receive: function!(library, "clearstream_mpi_start_receive", _),
                test: function!(library, "clearstream_mpi_test", _),
                wait_all: function!(library, "clearstream_mpi_wait_all", _),
                free: function!(library, "clearstream_mpi_requests_free", _),
            },
            is_done: true,
            _not_shared: PhantomData,
        };
        let (mut rank, mut size) = (0, 0);
        // SAFETY: both point to live integers.
        let code = unsafe { init((threads == Threads::Serialized).into(), &raw mut rank, &raw mut size) };
        match code {
            0 => {}
            FEW_THREADS => {
                return Err("this MPI lets one thread alone call it: it was built without threads".to_owned());
            }
            code => return Err(format!("MPI cannot be initialised (error {code})")),
        }
        process.is_done = false;
        let (mut library, mut host) = ([0; NAME_BYTES], [0; NAME_BYTES]);
        let (mut version, mut subversion) = (0, 0);
        // SAFETY: both have NAME_BYTES bytes, of which the function leaves the last one alone, and the integers live.
        let code = unsafe {
            let standard = [&raw mut version, &raw mut subversion];
            names(library.as_mut_ptr(), host.as_mut_ptr(), NAME_BYTES, standard[0], standard[1])
        };
        process.check(code)?;
        process.library_version = text(&library);
        process.standard = format!("{version}.{subversion}");
        process.host = text(&host);
        process.rank = usize::try_from(rank).map_err(|error| error.to_string())?;
        process.size = usize::try_from(size).map_err(|error| error.to_string())?;
        Ok(process)
    }

    /// Number of this rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The first line of the library's version, as it has it.
    pub fn library_version(&self) -> &str {
        &self.library_version
    }

    /// Name and version of the MPI: Open MPI adds where and when it was built.
    pub fn library_name(&self) -> &str {
        self.library_version.split(',').next().unwrap_or_default()
    }

    /// Version of the standard that it follows, as in `3.1`.
    pub fn standard(&self) -> &str {
        &self.standard
    }

    /// Name of this rank's host.
    pub fn host(&self) -> &str {
        &self.host
    }

    #[inline]
    fn check(&self, code: c_int) -> MpiResult<()> {
        if code == 0 { Ok(()) } else { Err(self.error(code)) }
    }

    #[cold]
    fn error(&self, code: c_int) -> String {
        let mut message = [0; 512];
        // SAFETY: the buffer has as many bytes as it is told, and its last one stays zero.
        unsafe { (self.error_text)(code, message.as_mut_ptr(), message.len()) };
        text(&message)
    }

    /// Sends a message, and returns when its bytes may change (`MPI_Send`).
    ///
    /// # Errors
    /// As MPI reports them.
    #[inline]
    pub fn send_whole(&self, bytes: &[u8], to: usize, tag: u8) -> MpiResult<()> {
        let (count, to) = (number(bytes.len())?, number(to)?);
        // SAFETY: the bytes live until the function has returned, and it reads `count` of them.
        let code = unsafe { (self.send_whole)(bytes.as_ptr().cast(), count, to, c_int::from(tag)) };
        self.check(code)
    }

    /// Waits for a message of at most so many bytes from a rank (`MPI_Recv`).
    ///
    /// # Errors
    /// As MPI reports them.
    #[inline]
    pub fn receive_whole(&self, bytes: &mut [u8], from: usize, tag: u8) -> MpiResult<()> {
        let (count, from) = (number(bytes.len())?, number(from)?);
        // SAFETY: the bytes live until the function has returned, and it writes at most `count` of them.
        let code = unsafe { (self.receive)(bytes.as_mut_ptr().cast(), count, from, c_int::from(tag)) };
        self.check(code)
    }

    /// Whether a message of this tag has arrived (`MPI_Iprobe`): the rank that sent it, and its length.
    ///
    /// # Errors
    /// As MPI reports them.
    pub fn probe(&self, tag: u8) -> MpiResult<Option<(usize, usize)>> {
        let (mut found, mut from, mut count) = (0, 0, 0);
        // SAFETY: all three point to live integers.
        let code = unsafe { (self.probe)(c_int::from(tag), &raw mut found, &raw mut from, &raw mut count) };
        self.check(code)?;
        let arrived =
            (found != 0).then(|| usize::try_from(from).and_then(|from| Ok((from, usize::try_from(count)?))));
        arrived.transpose().map_err(|error| error.to_string())
    }

    /// Starts to send a copy of `bytes`.
    ///
    /// # Errors
    /// As MPI reports them.
    pub fn send(&self, bytes: &[u8], to: usize, tag: u8) -> MpiResult<()> {
        let (count, to) = (number(bytes.len())?, number(to)?);
        // SAFETY: the function copies `count` bytes before it returns.
        let code = unsafe { (self.send)(bytes.as_ptr().cast(), count, to, c_int::from(tag)) };
        self.check(code)
    }

    /// Receives a message of this tag into `bytes` if one has arrived; the rank that sent it.
    ///
    /// # Errors
    /// As MPI reports them.
    pub fn receive(&self, tag: u8, bytes: &mut Vec<u8>) -> MpiResult<Option<usize>> {
        let Some((from, count)) = self.probe(tag)? else { return Ok(None) };
        bytes.clear();
        bytes.resize(count, 0);
        self.receive_whole(bytes, from, tag)?;
        Ok(Some(from))
    }

    /// Ends the processes of all ranks; the launcher is given the exit code.
    pub fn abort(mut self, exit_code: c_int) {
        self.is_done = true;
        // SAFETY: MPI is initialised.
        unsafe { (self.abort)(exit_code) };
    }

    /// Ends this rank's part; every rank calls it.
    ///
    /// # Errors
    /// As MPI reports them.
    pub fn finish(mut self) -> MpiResult<()> {
        self.is_done = true;
        // SAFETY: MPI is initialised, and not used after this.
        let code = unsafe { (self.finalize)() };
        self.check(code)
    }
}

impl Drop for MpiProcess {
    /// A rank that ends without the others takes them along, as they would wait for it.
    fn drop(&mut self) {
        if !self.is_done {
            // SAFETY: MPI is initialised.
            unsafe { (self.abort)(1) };
        }
    }
}

/// As C has it.
#[inline]
fn number(number: usize) -> MpiResult<c_int> {
    c_int::try_from(number).map_err(|error| error.to_string())
}

fn text(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes)
        .map(|text| text.to_string_lossy().replace('\t', " "))
        .unwrap_or_default()
}
