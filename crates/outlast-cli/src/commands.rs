//! The commands.

mod dispatch;
mod input;

mod list;
mod mcp;
mod start;

mod explain;
mod show;
mod watch;

mod events;
mod failure;
mod family;
mod hook;
mod run_output;
mod steps;

mod bulk;
mod bulk_control;
mod control;
mod fork;
mod restart;
mod retry;
mod send;

mod schedule;
mod stream;

mod access;
mod audit;
mod dev;
mod serve;
mod signals;
mod worker;
mod workflow;

mod doctor;
mod world;

mod config;
mod new;
mod program;
mod queue;

use crate::app::SharedCodec;
use crate::config::Settings;
use crate::connect::connect;
use crate::exit::CommandError;
use crate::output::Console;
use crate::surface::Surface;

pub(crate) use self::dispatch::dispatch;
pub(crate) use self::serve::BasePath;

/// What every command knows.
pub(crate) struct CommandContext {
    /// The name of the program.
    pub(crate) name: String,
    /// The configuration.
    pub(crate) settings: Settings,
    /// Where to print.
    pub(crate) console: Console,
    /// The codec of payloads.
    pub(crate) codec: Option<SharedCodec>,
}

impl CommandContext {
    /// Connects to the world or server of the configuration.
    pub(crate) async fn surface(&self) -> Result<Box<dyn Surface>, CommandError> {
        connect(&self.settings, &self.console, self.codec.clone()).await
    }
}
