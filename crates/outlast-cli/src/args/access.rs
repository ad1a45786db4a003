//! The arguments of commands on access keys.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use outlast_api::Role;

/// What can be done with the file of access keys.
#[derive(Debug, Subcommand)]
pub(crate) enum AccessCommand {
    /// Make an access key, and print it once
    #[command(after_help = CREATE_EXAMPLES)]
    Create(AccessCreateArgs),
    /// List access keys, without their secrets
    #[command(visible_alias = "ls")]
    List {
        /// The file of access keys
        #[arg(long, value_name = "FILE")]
        keys: PathBuf,
    },
    /// Revoke an access key. Servers that run refuse it within 10 s
    Revoke {
        /// The id, as `access list` shows it
        id: String,
        /// The file of access keys
        #[arg(long, value_name = "FILE")]
        keys: PathBuf,
    },
}

/// A new access key.
#[derive(Clone, Debug, Args)]
pub(crate) struct AccessCreateArgs {
    /// Who gets it. Histories show the name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: String,
    /// What its holder may do: metrics, read, operate or admin
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Role,
    /// After which time it expires, such as `90d`
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires: Option<String>,
    /// The file of access keys, which is created if it does not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: PathBuf,
}

const CREATE_EXAMPLES: &str = "\
Examples:
  outlast access create --name ci --role operate --expires 90d --keys keys.json
  outlast serve --keys keys.json --base-url https://outlast.example";
