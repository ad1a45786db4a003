//! The doorbell: how processes that share a file tell each other at once that something changed.
//!
//! Each has a datagram socket of its own in a folder beside the file, and sends a byte to those of the
//! others after a commit that may concern them. A ring is a hint: it may be lost, doubled or late, and
//! the lookout's slow poll stands behind it. So nothing here ever waits for a peer or fails a commit.
//!
//! A socket whose process is gone refuses datagrams, and whoever finds it so removes its file. Where no
//! socket can be made beside the file (a long path, a file system without sockets), a folder in the
//! temporary one stands in for it, named by the file's own number; everyone looks into both.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::notifications::change_watcher::Changes;

/// A datagram with this bit introduces its sender, whose path follows.
const HELLO: u8 = 0x10;

/// So many datagrams at once may be all that fitted: what did not is unknown.
const CROWD: usize = 4;

/// Tries to introduce oneself to a peer whose queue is full, with a pause of [`HELLO_PAUSE`] between them.
const HELLO_TRIES_MAX: usize = 10;
const HELLO_PAUSE: Duration = Duration::from_millis(1);

/// Tries to make a socket in a folder that another process may be removing because it is empty.
const BIND_TRIES_MAX: usize = 5;

/// Datagrams taken before the lookout is let look; more stay for the next time.
const HEARD_AT_ONCE_MAX: usize = 1_000;

/// Where the doorbells of one file are.
#[derive(Clone, Debug)]
pub(crate) struct Porch {
    beside: PathBuf,
    spare: PathBuf,
}

impl Porch {
    /// The folders for the doorbells of the database at `path`, which exists.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let file = std::path::absolute(path)?;
        let identity = file.metadata()?;
        let mut beside = file.into_os_string();
        beside.push("-bells");
        let spare = format!("outlast-{:x}-{:x}", identity.dev(), identity.ino());
        Ok(Self { beside: beside.into(), spare: std::env::temp_dir().join(spare) })
    }

    fn folders(&self) -> [&Path; 2] {
        [&self.beside, &self.spare]
    }

    /// Every doorbell there is.
    fn bells(&self) -> Vec<PathBuf> {
        let entries = self.folders().into_iter().filter_map(|folder| std::fs::read_dir(folder).ok());
        entries.flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
    }

    /// A new socket, and where it is.
    fn bind(&self) -> io::Result<(UnixDatagram, PathBuf)> {
        bind_in(&self.beside, 0o777).or_else(|beside| {
            // Whoever may read the temporary folder is not meant to ring.
            bind_in(&self.spare, 0o700).map_err(|spare| {
                let (first, second) = (self.beside.display(), self.spare.display());
                io::Error::new(beside.kind(), format!("`{first}`: {beside}; `{second}`: {spare}"))
            })
        })
    }
}

fn bind_in(folder: &Path, mode: u32) -> io::Result<(UnixDatagram, PathBuf)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let made = std::fs::DirBuilder::new().recursive(true).mode(mode).create(folder);
        let path = folder.join(format!("{:016x}", RandomState::new().hash_one(std::process::id())));
        match made.and_then(|()| UnixDatagram::bind(&path)) {
            Ok(socket) => return Ok((socket, path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < BIND_TRIES_MAX => {}
            Err(error) => return Err(error),
        }
    }
}

/// The doorbell of this world. The lookout's thread owns it, hears it, and rings those of others.
#[derive(Debug)]
pub(crate) struct Doorbell {
    porch: Porch,
    socket: UnixDatagram,
    path: PathBuf,
    voice: UnixDatagram,
    peers: HashSet<PathBuf>,
    ringer: Arc<Ringer>,
}

/// What came while the doorbell was listened to.
#[derive(Debug)]
pub(crate) struct Heard {
    /// What has changed.
    pub(crate) changes: Changes,
    /// Nothing came in time.
    pub(crate) is_silent: bool,
}

impl Doorbell {
    /// Hangs up a doorbell, and introduces it to the others.
    pub(crate) fn hang(porch: Porch, poll: Option<Duration>) -> io::Result<Self> {
        let (socket, path) = porch.bind()?;
        socket.set_read_timeout(poll)?;
        let voice = UnixDatagram::unbound()?;
        voice.set_nonblocking(true)?;
        let ringer = Arc::new(Ringer::Hung(Hung {
            kick: Mutex::new(kick(&path)?),
            owed: AtomicU8::new(0),
            has_peers: AtomicBool::new(false),
        }));
        let mut doorbell = Self { porch, socket, path, voice, peers: HashSet::new(), ringer };
        doorbell.meet();
        Ok(doorbell)
    }

    /// Rings the others for this world.
    pub(crate) fn ringer(&self) -> Arc<Ringer> {
        self.ringer.clone()
    }

    /// Where the socket is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until someone rings, this world's own writer has something to ring for, or time is up.
    pub(crate) fn hear(&mut self) -> io::Result<Heard> {
        let mut heard = Heard { changes: Changes::NONE, is_silent: false };
        let mut datagram = [0; 256];
        let mut count = 0;
        let mut newcomers = Vec::new();
        loop {
            match self.socket.recv(&mut datagram) {
                Ok(length) => {
                    heard.changes |= Changes::from_bits(datagram[0]);
                    if datagram[0] & HELLO != 0 && length > 1 {
                        newcomers
                            .push(PathBuf::from(std::ffi::OsString::from_vec(datagram[1..length].into())));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    heard.is_silent = count == 0;
                    break;
                }
                Err(error) => return Err(error),
            }
            count += 1;
            if count == 1 {
                self.socket.set_nonblocking(true)?;
            } else if count == HEARD_AT_ONCE_MAX {
                break;
            }
        }
        if count > 0 {
            self.socket.set_nonblocking(false)?;
        }
        if count >= CROWD {
            heard.changes = Changes::ALL;
            newcomers.extend(self.porch.bells());
        }
        self.welcome(newcomers);
        Ok(heard)
    }

    /// Rings the others, if the writer asked for it.
    pub(crate) fn ring_others(&mut self) {
        let changes = self.ringer.hung().map_or(Changes::NONE, Hung::take_owed);
        if changes != Changes::NONE {
            let peers: Vec<PathBuf> = self.peers.iter().cloned().collect();
            for peer in peers {
                self.send(&peer, &[changes.bits()]);
            }
        }
    }

    /// Looks who else is there, and whether the own socket is still where others look for it.
    pub(crate) fn look_around(&mut self) {
        if !self.path.exists()
            && let Err(error) = self.move_house()
        {
            tracing::debug!(%error, "the doorbell is gone and no other can be made");
        }
        let bells = self.porch.bells();
        self.welcome(bells);
    }

    /// Hangs the doorbell anew: its folder was moved or cleaned up.
    fn move_house(&mut self) -> io::Result<()> {
        let (socket, path) = self.porch.bind()?;
        socket.set_read_timeout(self.socket.read_timeout()?)?;
        if let Some(hung) = self.ringer.hung() {
            *hung.kick.lock() = kick(&path)?;
        }
        (self.socket, self.path) = (socket, path);
        self.meet();
        Ok(())
    }

    /// Introduces this doorbell to all others.
    fn meet(&mut self) {
        let mut hello = vec![HELLO];
        hello.extend_from_slice(self.path.as_os_str().as_bytes());
        for peer in self.porch.bells() {
            if peer == self.path {
                continue;
            }
            self.peers.insert(peer.clone());
            for _ in 0..HELLO_TRIES_MAX {
                if self.send(&peer, &hello) {
                    break;
                }
                std::thread::park_timeout(HELLO_PAUSE);
            }
        }
        self.count_peers();
    }

    /// Takes newcomers in. They get a ring, since they may have looked before this world knew of them.
    fn welcome(&mut self, newcomers: Vec<PathBuf>) {
        for peer in newcomers {
            if peer != self.path && self.peers.insert(peer.clone()) {
                self.send(&peer, &[Changes::ALL.bits()]);
            }
        }
        self.count_peers();
    }

    /// Sends a datagram to a peer; `false` when its queue is full. One that is gone is forgotten.
    fn send(&mut self, peer: &Path, datagram: &[u8]) -> bool {
        let Err(error) = self.voice.send_to(datagram, peer) else { return true };
        match error.kind() {
            // It has enough to hear, and will find everything changed.
            io::ErrorKind::WouldBlock => return false,
            io::ErrorKind::ConnectionRefused => drop(std::fs::remove_file(peer)),
            io::ErrorKind::NotFound => {}
            _ => tracing::debug!(%error, peer = %peer.display(), "a doorbell cannot be rung"),
        }
        self.peers.remove(peer);
        self.count_peers();
        true
    }

    fn count_peers(&self) {
        if let Some(hung) = self.ringer.hung() {
            hung.has_peers.store(!self.peers.is_empty(), Ordering::Release);
        }
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        // What stays is removed by whoever finds that nobody hears it.
        let _ = std::fs::remove_file(&self.path);
        for folder in self.porch.folders() {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// A socket that reaches the one at `path`, wherever that is moved.
fn kick(path: &Path) -> io::Result<UnixDatagram> {
    let kick = UnixDatagram::unbound()?;
    kick.connect(path)?;
    kick.set_nonblocking(true)?;
    Ok(kick)
}

/// Rings the doorbells of others, for the writer. It never waits and never fails.
#[derive(Debug)]
pub(crate) enum Ringer {
    /// The thread that hears this world's doorbell rings for it.
    Hung(Hung),
    /// There is no such thread, since no doorbell could be hung. The others can be rung all the same.
    Mute { porch: Porch, voice: UnixDatagram },
}

/// What there is to tell, for the thread that tells it.
#[derive(Debug)]
pub(crate) struct Hung {
    kick: Mutex<UnixDatagram>,
    owed: AtomicU8,
    has_peers: AtomicBool,
}

impl Ringer {
    /// Rings for a world without a doorbell of its own.
    pub(crate) fn without_doorbell(path: &Path) -> Option<Arc<Self>> {
        let voice = UnixDatagram::unbound().ok()?;
        voice.set_nonblocking(true).ok()?;
        Some(Arc::new(Self::Mute { porch: Porch::of(path).ok()?, voice }))
    }

    /// Has the others told. Rings that come together become one.
    pub(crate) fn ring(&self, changes: Changes) {
        if changes == Changes::NONE {
            return;
        }
        match self {
            Self::Hung(hung) => hung.ring(changes),
            Self::Mute { porch, voice } => {
                for change_signal in porch.bells() {
                    let _ = voice.send_to(&[changes.bits()], change_signal);
                }
            }
        }
    }

    /// Wakes the thread that hears the doorbell.
    pub(crate) fn wake(&self) {
        if let Self::Hung(hung) = self {
            hung.wake();
        }
    }

    fn hung(&self) -> Option<&Hung> {
        match self {
            Self::Hung(hung) => Some(hung),
            Self::Mute { .. } => None,
        }
    }
}

impl Hung {
    fn ring(&self, changes: Changes) {
        if self.has_peers.load(Ordering::Acquire) && self.owed.fetch_or(changes.bits(), Ordering::AcqRel) == 0
        {
            self.wake();
        }
    }

    fn wake(&self) {
        // A queue that is full wakes it too.
        let _ = self.kick.lock().send(&[0]);
    }

    fn take_owed(&self) -> Changes {
        Changes::from_bits(self.owed.swap(0, Ordering::AcqRel))
    }
}
