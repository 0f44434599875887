//! The C functions of `extras/mpi/library/ranks.c`, loaded at run time with `dlopen(3)`: a program that was
//! linked with one MPI would not start on hosts with another.

use std::{
    ffi::{CStr, c_int, c_void},
    path::Path,
};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Version of the functions below.
const INTERFACE_VERSION: c_int = 2;
const NAME_BYTES: usize = 256;
/// Of `clearstream_mpi_init`: MPI gives less than MPI_THREAD_SERIALIZED.
const FEW_THREADS: c_int = -1;

/// What MPI reports.
pub type MpiResult<T> = Result<T, String>;

type Send = unsafe extern "C" fn(*const c_void, c_int, c_int, c_int) -> c_int;
type Probe = unsafe extern "C" fn(c_int, *mut c_int, *mut c_int, *mut c_int) -> c_int;
type Receive = unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int) -> c_int;
type ErrorText = unsafe extern "C" fn(c_int, *mut u8, usize) -> c_int;

/// This process as a rank of an MPI job. It may be used by any thread, by one at a time: the library asks MPI for
/// MPI_THREAD_SERIALIZED, or does not start.
pub struct MpiProcess {
    rank: usize,
    size: usize,
    library_name: String,
    host: String,
    send: Send,
    probe: Probe,
    receive: Receive,
    error_text: ErrorText,
    finalize: unsafe extern "C" fn() -> c_int,
    abort: unsafe extern "C" fn(c_int),
    is_done: bool,
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
    pub fn start(path: &Path) -> MpiResult<Self> {
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
        let init =
            function!(library, "clearstream_mpi_init", unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int);
        let names = function!(
            library,
            "clearstream_mpi_names",
            unsafe extern "C" fn(*mut u8, *mut u8, usize) -> c_int
        );
        let mut process = Self {
            rank: 0,
            size: 0,
            library_name: String::new(),
            host: String::new(),
            send: function!(library, "clearstream_mpi_send", Send),
            probe: function!(library, "clearstream_mpi_probe", Probe),
            receive: function!(library, "clearstream_mpi_receive", Receive),
            error_text: function!(library, "clearstream_mpi_error", ErrorText),
            finalize: function!(library, "clearstream_mpi_finalize", unsafe extern "C" fn() -> c_int),
            abort: function!(library, "clearstream_mpi_abort", unsafe extern "C" fn(c_int)),
            is_done: true,
        };
        let (mut rank, mut size) = (0, 0);
        // SAFETY: both point to live integers.
        let code = unsafe { init(&raw mut rank, &raw mut size) };
        match code {
            0 => {}
            FEW_THREADS => {
                return Err("this MPI lets one thread alone call it: it was built without threads".to_owned());
            }
            code => return Err(format!("MPI cannot be initialised (error {code})")),
        }
        process.is_done = false;
        let (mut library_name, mut host) = ([0; NAME_BYTES], [0; NAME_BYTES]);
        // SAFETY: both have NAME_BYTES bytes, and the function leaves the last one alone.
        let code = unsafe { names(library_name.as_mut_ptr(), host.as_mut_ptr(), NAME_BYTES) };
        process.check(code)?;
        process.library_name = text(&library_name);
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

    /// Name and version of the MPI.
    pub fn library_name(&self) -> &str {
        &self.library_name
    }

    /// Name of this rank's host.
    pub fn host(&self) -> &str {
        &self.host
    }

    fn check(&self, code: c_int) -> MpiResult<()> {
        if code == 0 {
            return Ok(());
        }
        let mut message = [0; 512];
        // SAFETY: the buffer has as many bytes as it is told, and its last one stays zero.
        unsafe { (self.error_text)(code, message.as_mut_ptr(), message.len()) };
        Err(text(&message))
    }

    /// Starts to send a copy of `bytes`.
    ///
    /// # Errors
    /// As MPI reports them.
    pub fn send(&mut self, bytes: &[u8], to: usize, tag: u8) -> MpiResult<()> {
        let (count, to) = (c_int::try_from(bytes.len()), c_int::try_from(to));
        let (count, to) = count.and_then(|count| Ok((count, to?))).map_err(|error| error.to_string())?;
        // SAFETY: the function copies `count` bytes before it returns.
        let code = unsafe { (self.send)(bytes.as_ptr().cast(), count, to, c_int::from(tag)) };
        self.check(code)
    }

    /// Receives a message of this tag into `bytes` if one has arrived; the rank that sent it.
    ///
    /// # Errors
    /// As MPI reports them.
    pub fn receive(&mut self, tag: u8, bytes: &mut Vec<u8>) -> MpiResult<Option<usize>> {
        let (mut found, mut from, mut count) = (0, 0, 0);
        // SAFETY: all three point to live integers.
        let code = unsafe { (self.probe)(c_int::from(tag), &raw mut found, &raw mut from, &raw mut count) };
        self.check(code)?;
        if found == 0 {
            return Ok(None);
        }
        bytes.clear();
        bytes.resize(usize::try_from(count).map_err(|error| error.to_string())?, 0);
        // SAFETY: the buffer has `count` bytes, which is what the probed message has.
        let code = unsafe { (self.receive)(bytes.as_mut_ptr().cast(), count, from, c_int::from(tag)) };
        self.check(code)?;
        usize::try_from(from).map(Some).map_err(|error| error.to_string())
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

fn text(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes)
        .map(|text| text.to_string_lossy().replace('\t', " "))
        .unwrap_or_default()
}
