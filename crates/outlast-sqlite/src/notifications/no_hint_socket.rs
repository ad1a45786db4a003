//! Hint sockets on systems without Unix sockets: they cannot be created, so the change watcher polls.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::notifications::change_watcher::Changes;

#[derive(Debug)]
pub(crate) struct SocketFolders;

impl SocketFolders {
    pub(crate) fn for_database(_: &Path) -> io::Result<Self> {
        Ok(Self)
    }
}

/// A type without values, because no socket can be created.
#[derive(Debug)]
pub(crate) enum HintSocket {}

#[derive(Debug)]
pub(crate) struct ReceivedHints {
    pub(crate) changes: Changes,
    pub(crate) is_timeout: bool,
}

impl HintSocket {
    pub(crate) fn open(_: SocketFolders, _: Option<Duration>) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
    }

    pub(crate) fn sender(&self) -> Arc<HintSender> {
        match *self {}
    }

    pub(crate) fn path(&self) -> &Path {
        match *self {}
    }

    pub(crate) fn receive(&mut self) -> io::Result<ReceivedHints> {
        match *self {}
    }

    pub(crate) fn send_pending(&mut self) {
        match *self {}
    }

    pub(crate) fn refresh(&mut self) {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum HintSender {}

impl HintSender {
    pub(crate) fn without_socket(_: &Path) -> Option<Arc<Self>> {
        None
    }

    pub(crate) fn send(&self, _: Changes) {
        match *self {}
    }

    pub(crate) fn wake_owner(&self) {
        match *self {}
    }
}
