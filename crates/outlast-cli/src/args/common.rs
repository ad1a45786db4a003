//! The options that all commands have.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The options that all commands have. What is not given here comes from the environment or a file.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct CommonArgs {
    /// The world: `sqlite:shop.db` or `postgres://user@host/database`
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) world: Option<String>,
    /// The server, instead of a world: `http://127.0.0.1:4700`
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// A file with the access key for the server
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) access_key_file: Option<PathBuf>,
    /// The profile of the configuration file
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// How data is printed: table, json, jsonl or none
    #[arg(long, short = 'o', global = true, value_name = "FORMAT", hide_possible_values = true, conflicts_with_all = ["json", "jsonl"])]
    pub(crate) format: Option<Format>,
    /// One JSON document, as the API returns it
    #[arg(long, global = true, conflicts_with = "jsonl")]
    pub(crate) json: bool,
    /// One JSON document per line
    #[arg(long, global = true)]
    pub(crate) jsonl: bool,
    /// When to use colours: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", hide_possible_values = true)]
    pub(crate) color: Option<ColorChoice>,
    /// Show times in UTC
    #[arg(long, global = true)]
    pub(crate) utc: bool,
    /// How long the command may take, such as `30s`
    #[arg(long, global = true, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    /// Print no messages, only data and errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Say more about what is done; twice for the log of the library
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// How data is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table or a page for people.
    #[default]
    Table,
    /// One document.
    Json,
    /// One document per line.
    Jsonl,
    /// Nothing.
    None,
}

/// When output has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}
