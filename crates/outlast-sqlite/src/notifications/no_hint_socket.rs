//! The doorbell where there are no Unix sockets: none. The lookout polls.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::notifications::change_watcher::Changes;

#[derive(Debug)]
pub(crate) struct Porch;

impl Porch {
    pub(crate) fn of(_: &Path) -> io::Result<Self> {
        Ok(Self)
    }
}

/// What cannot be hung.
#[derive(Debug)]
pub(crate) enum Doorbell {}

#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) changes: Changes,
    pub(crate) is_silent: bool,
}

impl Doorbell {
    pub(crate) fn hang(_: Porch, _: Option<Duration>) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
    }

    pub(crate) fn ringer(&self) -> Arc<Ringer> {
        match *self {}
    }

    pub(crate) fn path(&self) -> &Path {
        match *self {}
    }

    pub(crate) fn hear(&mut self) -> io::Result<Heard> {
        match *self {}
    }

    pub(crate) fn ring_others(&mut self) {
        match *self {}
    }

    pub(crate) fn look_around(&mut self) {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum Ringer {}

impl Ringer {
    pub(crate) fn without_doorbell(_: &Path) -> Option<Arc<Self>> {
        None
    }

    pub(crate) fn ring(&self, _: Changes) {
        match *self {}
    }

    pub(crate) fn wake(&self) {
        match *self {}
    }
}
