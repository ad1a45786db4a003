//! Hint sockets: how processes that share a file tell each other immediately that something changed.
//!
//! **Messages.** Each process has a datagram socket in a folder next to the file. After a commit that may concern other
//! processes, it sends one byte, the bits of [`Changes`], to the socket of each of them. A new process *introduces*
//! itself: it sends the path of its socket to all others, so that they send hints to it from then on.
//!
//! **Guarantees.** None: a datagram is a hint, and may be lost, duplicated or late. The slow poll of the
//! [change watcher](crate::notifications::change_watcher) finds what a lost hint missed. So nothing here waits for
//! another process or fails a commit.
//!
//! **Threads.** The thread of the change watcher owns the [`HintSocket`]. The writer thread has a [`HintSender`], which
//! only records what to send and wakes the owner.
//!
//! **Cleanup.** A socket whose process is dead refuses datagrams; the process that notices this removes the file.
//!
//! **Fallback folder.** If no socket can be created next to the file (because of a long path, or a file system without
//! sockets), a folder in the system's folder for temporary files is used, named after the device and inode of the file.
//! Every process looks for sockets in both folders.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use outlast_core::Backoff;
use parking_lot::Mutex;

use crate::connection::thread::pause_before_retry;
use crate::notifications::change_watcher::Changes;

/// The bit of a datagram that introduces its sender. The path of the sender's socket follows.
const INTRODUCTION: u8 = 0x10;

/// The number of queued datagrams that may have filled the queue of the socket, so that others were lost.
const OVERFLOW_MIN: usize = 4;

/// Attempts to introduce this process to a peer whose queue is full, and the pauses between them.
const INTRODUCTION_TRIES_MAX: usize = 10;
const INTRODUCTION_BACKOFF: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(4));

/// Attempts to create a socket in a folder that another process may be removing because it is empty.
const BIND_TRIES_MAX: usize = 5;

/// The number of datagrams that one call of [`HintSocket::receive`] reads; the next call reads the rest.
const RECEIVED_MAX: usize = 1_000;

/// The folders in which the sockets of one file are.
#[derive(Clone, Debug)]
pub(crate) struct SocketFolders {
    /// The folder next to the file.
    primary: PathBuf,
    /// The folder among the temporary files.
    fallback: PathBuf,
}

impl SocketFolders {
    /// The folders for the database at `path`, which must exist.
    pub(crate) fn for_database(path: &Path) -> io::Result<Self> {
        let file = std::path::absolute(path)?;
        let identity = file.metadata()?;
        let mut primary = file.into_os_string();
        primary.push("-bells");
        let fallback = format!("outlast-{:x}-{:x}", identity.dev(), identity.ino());
        Ok(Self { primary: primary.into(), fallback: std::env::temp_dir().join(fallback) })
    }

    fn folders(&self) -> [&Path; 2] {
        [&self.primary, &self.fallback]
    }

    /// The paths of all sockets of the file.
    fn sockets(&self) -> Vec<PathBuf> {
        let entries = self.folders().into_iter().filter_map(|folder| std::fs::read_dir(folder).ok());
        entries.flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
    }

    /// Creates a socket, and returns it with its path.
    fn bind(&self) -> io::Result<(UnixDatagram, PathBuf)> {
        bind_in(&self.primary, 0o777).or_else(|primary| {
            // Everybody can read the folder of temporary files, but other users must not send hints.
            bind_in(&self.fallback, 0o700).map_err(|fallback| {
                let (first, second) = (self.primary.display(), self.fallback.display());
                io::Error::new(primary.kind(), format!("`{first}`: {primary}; `{second}`: {fallback}"))
            })
        })
    }
}

/// Creates the folder, if necessary with this mode, and a socket with a random name in it.
fn bind_in(folder: &Path, mode: u32) -> io::Result<(UnixDatagram, PathBuf)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let created = std::fs::DirBuilder::new().recursive(true).mode(mode).create(folder);
        let path = folder.join(format!("{:016x}", RandomState::new().hash_one(std::process::id())));
        match created.and_then(|()| UnixDatagram::bind(&path)) {
            Ok(socket) => return Ok((socket, path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < BIND_TRIES_MAX => {}
            Err(error) => return Err(error),
        }
    }
}

/// The socket of this world. The thread of the change watcher owns it, and sends the hints to other processes.
#[derive(Debug)]
pub(crate) struct HintSocket {
    folders: SocketFolders,
    receiving: UnixDatagram,
    /// The path of the receiving socket.
    path: PathBuf,
    sending: UnixDatagram,
    /// The sockets of other processes.
    peers: HashSet<PathBuf>,
    sender: Arc<HintSender>,
}

/// The hints that one call of [`HintSocket::receive`] has read.
#[derive(Debug)]
pub(crate) struct ReceivedHints {
    /// What has changed.
    pub(crate) changes: Changes,
    /// Whether nothing arrived until the timeout.
    pub(crate) is_timeout: bool,
}

impl HintSocket {
    /// Creates the socket, and introduces it to the other processes. `poll_interval` is the timeout of
    /// [`HintSocket::receive`].
    pub(crate) fn open(folders: SocketFolders, poll_interval: Option<Duration>) -> io::Result<Self> {
        let (receiving, path) = folders.bind()?;
        receiving.set_read_timeout(poll_interval)?;
        let sending = UnixDatagram::unbound()?;
        sending.set_nonblocking(true)?;
        let sender = Arc::new(HintSender::ThroughOwner(PendingHints {
            wake_socket: Mutex::new(connect_wake_socket(&path)?),
            changes: AtomicU8::new(0),
            has_peers: AtomicBool::new(false),
        }));
        let mut socket = Self { folders, receiving, path, sending, peers: HashSet::new(), sender };
        socket.introduce();
        Ok(socket)
    }

    /// Sends hints to the other processes on behalf of this world.
    pub(crate) fn sender(&self) -> Arc<HintSender> {
        self.sender.clone()
    }

    /// The path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for hints from other processes, for a hint that this world's writer wants to send, or for the timeout.
    pub(crate) fn receive(&mut self) -> io::Result<ReceivedHints> {
        let mut received = ReceivedHints { changes: Changes::NONE, is_timeout: false };
        let mut datagram = [0; 256];
        let mut count = 0;
        let mut new_peers = Vec::new();
        loop {
            match self.receiving.recv(&mut datagram) {
                Ok(length) => {
                    received.changes |= Changes::from_bits(datagram[0]);
                    if datagram[0] & INTRODUCTION != 0 && length > 1 {
                        new_peers
                            .push(PathBuf::from(std::ffi::OsString::from_vec(datagram[1..length].into())));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    received.is_timeout = count == 0;
                    break;
                }
                Err(error) => return Err(error),
            }
            count += 1;
            if count == 1 {
                self.receiving.set_nonblocking(true)?;
            } else if count == RECEIVED_MAX {
                break;
            }
        }
        if count > 0 {
            self.receiving.set_nonblocking(false)?;
        }
        if count >= OVERFLOW_MIN {
            received.changes = Changes::ALL;
            new_peers.extend(self.folders.sockets());
        }
        self.add_peers(new_peers);
        Ok(received)
    }

    /// Sends the pending hints of the writer to the other processes.
    pub(crate) fn send_pending(&mut self) {
        let changes = self.sender.pending().map_or(Changes::NONE, PendingHints::take);
        if changes != Changes::NONE {
            let peers: Vec<PathBuf> = self.peers.iter().cloned().collect();
            for peer in peers {
                self.send(&peer, &[changes.bits()]);
            }
        }
    }

    /// Searches for new peers, and creates the own socket again if its file was removed or moved.
    pub(crate) fn refresh(&mut self) {
        if !self.path.exists()
            && let Err(error) = self.rebind()
        {
            tracing::debug!(%error, "the hint socket was removed, and no other can be created");
        }
        let sockets = self.folders.sockets();
        self.add_peers(sockets);
    }

    /// Creates the socket again, because its folder was moved or removed.
    fn rebind(&mut self) -> io::Result<()> {
        let (receiving, path) = self.folders.bind()?;
        receiving.set_read_timeout(self.receiving.read_timeout()?)?;
        if let Some(pending) = self.sender.pending() {
            *pending.wake_socket.lock() = connect_wake_socket(&path)?;
        }
        (self.receiving, self.path) = (receiving, path);
        self.introduce();
        Ok(())
    }

    /// Introduces this process to all others.
    fn introduce(&mut self) {
        let mut introduction = vec![INTRODUCTION];
        introduction.extend_from_slice(self.path.as_os_str().as_bytes());
        for peer in self.folders.sockets() {
            if peer == self.path {
                continue;
            }
            self.peers.insert(peer.clone());
            let mut backoff = INTRODUCTION_BACKOFF;
            for _ in 0..INTRODUCTION_TRIES_MAX {
                if self.send(&peer, &introduction) {
                    break;
                }
                pause_before_retry(&mut backoff);
            }
        }
        self.publish_has_peers();
    }

    /// Adds peers. A new peer gets a hint that everything may have changed, because it may have missed earlier hints.
    fn add_peers(&mut self, peers: Vec<PathBuf>) {
        for peer in peers {
            if peer != self.path && self.peers.insert(peer.clone()) {
                self.send(&peer, &[Changes::ALL.bits()]);
            }
        }
        self.publish_has_peers();
    }

    /// Sends a datagram to a peer; `false` if its queue is full. A peer that is dead is removed.
    fn send(&mut self, peer: &Path, datagram: &[u8]) -> bool {
        let Err(error) = self.sending.send_to(datagram, peer) else { return true };
        match error.kind() {
            // The peer has a full queue, so it will assume that everything has changed.
            io::ErrorKind::WouldBlock => return false,
            io::ErrorKind::ConnectionRefused => remove_dead_socket(peer),
            io::ErrorKind::NotFound => {}
            _ => tracing::debug!(%error, peer = %peer.display(), "a hint cannot be sent"),
        }
        self.peers.remove(peer);
        self.publish_has_peers();
        true
    }

    /// Tells the writer whether there is anyone to send hints to.
    fn publish_has_peers(&self) {
        if let Some(pending) = self.sender.pending() {
            pending.has_peers.store(!self.peers.is_empty(), Ordering::Release);
        }
    }
}

impl Drop for HintSocket {
    fn drop(&mut self) {
        // If this fails, another process removes the file when it finds that nobody receives its datagrams.
        let _ = std::fs::remove_file(&self.path);
        for folder in self.folders.folders() {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Removes the socket of a dead process. A file of another kind refuses datagrams too, and is kept.
fn remove_dead_socket(path: &Path) {
    if path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket()) {
        // If this fails, the next process tries again.
        let _ = std::fs::remove_file(path);
    }
}

/// Connects a socket to the one at `path`. It stays connected if the file is moved.
fn connect_wake_socket(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sends hints to other processes for the writer. It never waits and never fails.
#[derive(Debug)]
pub(crate) enum HintSender {
    /// The thread that owns the socket of this world sends the hints.
    ThroughOwner(PendingHints),
    /// This world has no socket of its own, so the writer sends the hints itself.
    Direct { folders: SocketFolders, sending: UnixDatagram },
}

/// The hints that the writer wants to send, for the thread that owns the socket.
#[derive(Debug)]
pub(crate) struct PendingHints {
    /// Wakes the owner of the hint socket.
    wake_socket: Mutex<UnixDatagram>,
    /// The bits of the changes to send.
    changes: AtomicU8,
    has_peers: AtomicBool,
}

impl HintSender {
    /// The sender of a world without a socket of its own.
    pub(crate) fn without_socket(path: &Path) -> Option<Arc<Self>> {
        let sending = UnixDatagram::unbound().ok()?;
        sending.set_nonblocking(true).ok()?;
        Some(Arc::new(Self::Direct { folders: SocketFolders::for_database(path).ok()?, sending }))
    }

    /// Sends a hint to the other processes. Hints in quick succession are combined.
    pub(crate) fn send(&self, changes: Changes) {
        if changes == Changes::NONE {
            return;
        }
        match self {
            Self::ThroughOwner(pending) => pending.add(changes),
            Self::Direct { folders, sending } => {
                for socket in folders.sockets() {
                    let _ = sending.send_to(&[changes.bits()], socket);
                }
            }
        }
    }

    /// Wakes the thread that owns the socket.
    pub(crate) fn wake_owner(&self) {
        if let Self::ThroughOwner(pending) = self {
            pending.wake_owner();
        }
    }

    /// The pending hints, if the owner of the socket sends them.
    fn pending(&self) -> Option<&PendingHints> {
        match self {
            Self::ThroughOwner(pending) => Some(pending),
            Self::Direct { .. } => None,
        }
    }
}

impl PendingHints {
    /// Adds changes. If none were pending, the owner is woken to send them.
    fn add(&self, changes: Changes) {
        if self.has_peers.load(Ordering::Acquire)
            && self.changes.fetch_or(changes.bits(), Ordering::AcqRel) == 0
        {
            self.wake_owner();
        }
    }

    fn wake_owner(&self) {
        // An error means that the queue is full, and then the owner wakes up anyway.
        let _ = self.wake_socket.lock().send(&[0]);
    }

    /// Returns the pending changes, and clears them.
    fn take(&self) -> Changes {
        Changes::from_bits(self.changes.swap(0, Ordering::AcqRel))
    }
}
