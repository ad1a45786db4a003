//! A file layer (VFS) for SQLite that records writes and syncs.
//!
//! It is the default layer with another `xOpen`: recorded files get a copy of their method table, in which write,
//! truncate, sync and close call this module. All other methods, such as locks and shared memory, are unchanged.

#![allow(unsafe_code, reason = "a file layer for SQLite is a table of C functions")]

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;
use rusqlite::ffi;

use super::super::Result;
use super::disk::DiskOp;

/// The address of SQLite's default file layer, which is never freed.
static SYSTEM_VFS: OnceLock<usize> = OnceLock::new();

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

type Methods = &'static ffi::sqlite3_io_methods;

#[derive(Debug)]
struct Recorder {
    /// The recorded files; operations refer to them by their index.
    paths: Vec<PathBuf>,
    /// The index of each open file and its original methods, by the file's address.
    open: HashMap<usize, (usize, Methods)>,
    /// The changed method tables, by the address of the original.
    changed: HashMap<usize, Methods>,
    ops: Vec<DiskOp>,
}

/// Records the operations of this process on these files from now on. They must not be open yet.
pub(super) fn begin(paths: Vec<PathBuf>) -> Result<()> {
    register()?;
    let recorder = Recorder { paths, open: HashMap::new(), changed: HashMap::new(), ops: Vec::new() };
    *RECORDER.lock() = Some(recorder);
    Ok(())
}

/// Adds an operation that is not an operation on a recorded file.
pub(super) fn append(op: DiskOp) {
    record(|_| op);
}

/// The number of recorded operations.
pub(super) fn len() -> usize {
    RECORDER.lock().as_ref().map_or(0, |recorder| recorder.ops.len())
}

/// Takes the recorded operations. Open files stay open.
pub(super) fn take() -> Vec<DiskOp> {
    RECORDER.lock().as_mut().map(|recorder| std::mem::take(&mut recorder.ops)).unwrap_or_default()
}

fn record(op: impl FnOnce(&Recorder) -> DiskOp) {
    if let Some(recorder) = RECORDER.lock().as_mut() {
        let op = op(recorder);
        recorder.ops.push(op);
    }
}

/// Makes this the default file layer of new connections.
fn register() -> Result<()> {
    if SYSTEM_VFS.get().is_some() {
        return Ok(());
    }
    // SAFETY: without a name, the answer is the default layer, which lives for ever, or null.
    let system = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
    // SAFETY: it is null or points to a layer that nobody changes.
    let mut changed = *unsafe { system.as_ref() }.ok_or("SQLite has no file layer")?;
    SYSTEM_VFS.get_or_init(|| system as usize);
    changed.zName = c"outlast-recorder".as_ptr();
    changed.pNext = std::ptr::null_mut();
    changed.xOpen = Some(open);
    // SAFETY: the layer is leaked, so it lives as long as SQLite may use it.
    match unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(changed)), 1) } {
        ffi::SQLITE_OK => Ok(()),
        code => Err(format!("SQLite refuses the file layer with code {code}").into()),
    }
}

unsafe extern "C" fn open(
    _layer: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let Some(system) = SYSTEM_VFS.get().map(|address| *address as *mut ffi::sqlite3_vfs) else {
        return ffi::SQLITE_MISUSE;
    };
    // SAFETY: the system's layer lives for ever.
    let Some(open) = (unsafe { (*system).xOpen }) else { return ffi::SQLITE_MISUSE };
    // SAFETY: the arguments are those that SQLite gave for this very call; files of both layers have the same size.
    let code = unsafe { open(system, name, file, flags, out) };
    if code == ffi::SQLITE_OK && !name.is_null() {
        // SAFETY: SQLite's names end with a zero, and live as long as the file.
        let path = unsafe { CStr::from_ptr(name) };
        // SAFETY: the file was opened just now.
        path.to_str().ok().and_then(|path| unsafe { record_file(file, Path::new(path)) });
    }
    code
}

/// Replaces the methods of a recorded file.
///
/// # Safety
///
/// `file` is open, and a file of the system's layer.
unsafe fn record_file(file: *mut ffi::sqlite3_file, path: &Path) -> Option<()> {
    let mut recorder = RECORDER.lock();
    let recorder = recorder.as_mut()?;
    let number = recorder.paths.iter().position(|recorded| recorded == path)?;
    // SAFETY: by the contract of this function; the tables of the system's layer are static.
    let methods: Methods = unsafe { (*file).pMethods.as_ref() }?;
    let changed = recorder.changed.entry(std::ptr::from_ref(methods) as usize).or_insert_with(|| {
        let mut changed = *methods;
        changed.xWrite = Some(write);
        changed.xTruncate = Some(truncate);
        changed.xSync = Some(sync);
        changed.xClose = Some(close);
        Box::leak(Box::new(changed))
    });
    // SAFETY: as above; the changed table is leaked, and so outlives the file.
    unsafe { (*file).pMethods = *changed };
    recorder.open.insert(file as usize, (number, methods));
    Some(())
}

fn look_up(file: *mut ffi::sqlite3_file) -> Option<(usize, Methods)> {
    RECORDER.lock().as_ref()?.open.get(&(file as usize)).copied()
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    bytes: *const c_void,
    amount: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    let Some((number, Some(write))) = look_up(file).map(|(number, methods)| (number, methods.xWrite)) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    // SAFETY: the arguments are SQLite's own, and the method is the file's own.
    let code = unsafe { write(file, bytes, amount, at) };
    if code == ffi::SQLITE_OK {
        let (length, at) = (usize::try_from(amount).unwrap_or(0), u64::try_from(at).unwrap_or(0));
        // SAFETY: SQLite promises this many bytes there until this call returns.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
        record(|_| DiskOp::Wrote { file: number, at, bytes: bytes.into() });
    }
    code
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    let Some((number, Some(truncate))) = look_up(file).map(|(number, methods)| (number, methods.xTruncate))
    else {
        return ffi::SQLITE_IOERR_TRUNCATE;
    };
    // SAFETY: the arguments are SQLite's own, and the method is the file's own.
    let code = unsafe { truncate(file, size) };
    if code == ffi::SQLITE_OK {
        record(|_| DiskOp::Truncated { file: number, size: u64::try_from(size).unwrap_or(0) });
    }
    code
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let Some((number, Some(sync))) = look_up(file).map(|(number, methods)| (number, methods.xSync)) else {
        return ffi::SQLITE_IOERR_FSYNC;
    };
    // Writes of other threads during the sync need not be part of it.
    let upto = len();
    // SAFETY: the arguments are SQLite's own, and the method is the file's own.
    let code = unsafe { sync(file, flags) };
    if code == ffi::SQLITE_OK {
        record(|_| DiskOp::Synced { file: number, upto });
    }
    code
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let opened = RECORDER.lock().as_mut().and_then(|recorder| recorder.open.remove(&(file as usize)));
    match opened.and_then(|(_, methods)| methods.xClose) {
        // SAFETY: the method is the file's own.
        Some(close) => unsafe { close(file) },
        None => ffi::SQLITE_IOERR_CLOSE,
    }
}
