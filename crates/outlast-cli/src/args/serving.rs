//! The arguments of commands that keep running, and of `new`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use outlast_api::Role;

use crate::commands::BasePath;

/// A server for development.
#[derive(Clone, Debug, Args)]
pub(crate) struct DevArgs {
    /// The port; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 4700)]
    pub(crate) port: u16,
    /// Delete the world of the folder first, and begin with an empty one
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Open the dashboard in a browser; BROWSER in the environment names the program
    #[arg(long)]
    pub(crate) open: bool,
    /// A program that is started with OUTLAST_WORLD, and again when it fails
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// A server.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// The address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4700")]
    pub(crate) listen: std::net::SocketAddr,
    /// Listen on a Unix socket instead; its permissions decide who can connect
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    pub(crate) socket: Option<PathBuf>,
    /// A file with the digests of access keys
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,
    /// The header in which a proxy names the person, instead of access keys
    #[arg(long, value_name = "HEADER", conflicts_with = "keys", requires = "trusted_proxy")]
    pub(crate) identity_header: Option<String>,
    /// The address of the proxy whose header is believed; may be repeated
    #[arg(long, value_name = "ADDRESS", requires = "identity_header")]
    pub(crate) trusted_proxy: Vec<std::net::IpAddr>,
    /// What the people that the proxy names may do
    #[arg(long, value_name = "ROLE", default_value = "read", requires = "identity_header")]
    pub(crate) identity_role: Role,
    /// A host name that requests may be made for; may be repeated
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// The address under which people reach the server
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// The path below which people reach the server, such as /ops/outlast; the proxy may remove it or pass it on
    #[arg(long, value_name = "PATH")]
    pub(crate) base_path: Option<BasePath>,
    /// The name of the environment, which every page of the dashboard shows
    #[arg(long, value_name = "NAME")]
    pub(crate) environment: Option<String>,
    /// Serve the API without the dashboard
    #[arg(long)]
    pub(crate) no_dashboard: bool,
    /// Serve the dashboard without the API
    #[arg(long)]
    pub(crate) no_api: bool,
    /// Do not serve /metrics
    #[arg(long)]
    pub(crate) no_metrics: bool,
    /// Refuse all changes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Who sees inputs, outputs and other payloads: this role and higher ones
    #[arg(long, value_name = "ROLE", default_value = "read")]
    pub(crate) payload_role: Role,
    /// A secret for the signatures of webhooks, by its name: a file with one secret per line, the newest first; may be
    /// repeated
    #[arg(long, value_name = "NAME=FILE")]
    pub(crate) webhook_secret_file: Vec<String>,
    /// Do not accept requests to webhooks
    #[arg(long)]
    pub(crate) no_webhooks: bool,
    /// Let everybody who can connect do everything
    #[arg(long)]
    pub(crate) insecure_no_auth: bool,
    /// Send access keys over connections that are not encrypted
    #[arg(long)]
    pub(crate) insecure_no_tls: bool,
}

/// A worker, or commands on workers.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    pub(crate) command: Option<WorkerCommand>,
    /// A queue to serve, instead of `default`; may be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) queue: Vec<String>,
    /// Execute what is ready, and stop
    #[arg(long)]
    pub(crate) until_idle: bool,
    /// Answer probes and serve metrics on this address, to everybody: `/livez`, `/readyz`, `/metrics`
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) probes: Option<std::net::SocketAddr>,
    /// Where a server can be reached from outside, with which the URLs of webhooks begin [env: OUTLAST_PUBLIC_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// Create the tables of the world if they are missing or outdated
    #[arg(long)]
    pub(crate) migrate: bool,
}

/// Commands on workers.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List the joined workers
    List,
    /// Show a joined worker
    Show {
        /// Its session, or host:pid as `worker list` shows it
        worker: String,
    },
}

/// A server for assistants.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct McpArgs {
    /// Offer tools that start runs, send to hooks and cancel runs
    #[arg(long)]
    pub(crate) allow_actions: bool,
}

/// A check before a deploy.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CheckArgs {
    /// Print progress while runs are checked
    #[arg(long)]
    pub(crate) progress: bool,
}

/// A new project.
#[derive(Clone, Debug, Args)]
pub(crate) struct NewArgs {
    /// The folder; its name becomes the name of the package
    pub(crate) folder: PathBuf,
    /// Depend on a checkout of Outlast in this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) path: Option<PathBuf>,
}

/// Examples of `dev`.
pub(super) const DEV_EXAMPLES: &str = "\
Examples:
  outlast dev                          a world in .outlast/, its dashboard and its API
  outlast dev -- cargo run             and your worker, which finds the world in OUTLAST_WORLD
  outlast dev --fresh --port 0         an empty world, a free port
  outlast dev --open                   and the dashboard in your browser";

/// Examples of `serve`.
pub(super) const SERVE_EXAMPLES: &str = "\
Examples:
  outlast serve --world postgres://app@db/shop --keys keys.json
  outlast serve --identity-header X-Forwarded-Email --trusted-proxy 10.0.0.7
  outlast serve --keys keys.json --socket /run/outlast/outlast.sock
  outlast serve --keys keys.json --webhook-secret-file stripe=stripe.secret
  outlast serve --insecure-no-auth     on this machine only, for a test";

/// Examples of `mcp`.
pub(super) const MCP_EXAMPLES: &str = "\
Examples:
  outlast mcp --world sqlite:shop.db              what an assistant is configured to start
  outlast mcp --server https://outlast.example.com --access-key-file reader.key
  outlast mcp --allow-actions                     and lets it change runs";

/// Examples of `check`.
pub(super) const CHECK_EXAMPLES: &str = "\
Examples:
  myapp check --world postgres://reader@db/shop && deploy";
