//! `serve`: serves the HTTP API and the dashboard of a world.

mod base_path;
mod listen;
mod site;

use outlast::Client;
use outlast_api::Role;
use outlast_server::{AccessKeys, Config, TrustedProxy, router, start_built_ins};
use tokio_util::sync::CancellationToken;

use super::CommandContext;
use super::signals::stop_signal;
use crate::args::ServeArgs;
use crate::connect::{open_existing, world_url};
use crate::exit::{CommandError, Exit};
pub(crate) use base_path::BasePath;
pub(super) use listen::{OpenSocket, bind};
pub(super) use site::{Callers, PageOptions};

/// What is served, and to whom. It contains secrets, so it has no debug text.
#[derive(Clone)]
pub(super) struct ServerPlan {
    pub(super) callers: Callers,
    /// What the pages show; without it there are none.
    pub(super) pages: Option<PageOptions>,
    pub(super) is_read_only: bool,
    /// Who sees payloads.
    pub(super) payload_role: Role,
    pub(super) allowed_hosts: Vec<String>,
    /// The secrets of webhooks with their names; without it requests to webhooks are not accepted.
    pub(super) webhooks: Option<Vec<(String, String)>>,
    pub(super) has_api: bool,
    pub(super) has_metrics: bool,
    pub(super) base_path: Option<BasePath>,
}

impl ServerPlan {
    /// Everything, for this machine.
    pub(super) fn local() -> Self {
        Self {
            callers: Callers::Local,
            pages: Some(PageOptions::default()),
            is_read_only: false,
            payload_role: Role::Read,
            allowed_hosts: Vec::new(),
            webhooks: Some(Vec::new()),
            has_api: true,
            has_metrics: true,
            base_path: None,
        }
    }

    /// The configuration of the API.
    fn api_config(&self) -> Config {
        let mut config = self.callers.api_config().payload_role(self.payload_role);
        for host in &self.allowed_hosts {
            config = config.allow_host(host);
        }
        config = match &self.webhooks {
            Some(secrets) => {
                secrets.iter().fold(config, |config, (name, secret)| config.webhook_secret(name, secret))
            }
            None => config.without_webhooks(),
        };
        config = if self.has_api { config } else { config.without_api() };
        config = if self.has_metrics { config } else { config.without_metrics() };
        if self.is_read_only { config.read_only() } else { config }
    }
}

/// Serves until the process is asked to stop.
pub(super) async fn serve(context: &CommandContext, args: &ServeArgs) -> Result<Exit, CommandError> {
    let plan = plan(args)?;
    let url = world_url(&context.settings, &context.console, "a server")?;
    let client = Client::new(open_existing(&url).await?);
    let client = match &context.codec {
        Some(codec) => client.with_codec(codec.clone()),
        None => client,
    };
    context.console.message(format!("world      {}", client.world().describe().place));
    let socket = match &args.socket {
        Some(path) => {
            let socket = OpenSocket::unix(path, !matches!(plan.callers, Callers::Local))?;
            context.console.message(format!("socket     {}", path.display()));
            socket
        }
        None => {
            let (socket, address) = OpenSocket::tcp(args.listen).await?;
            let address = format!("{address}{}", plan.base_path.as_ref().map_or("", BasePath::as_str));
            if plan.pages.is_some() {
                context.console.message(format!("dashboard  http://{address}/"));
            }
            match plan.has_api {
                true => context.console.message(format!("api        http://{address}/api")),
                false => context.console.message(format!("probes     http://{address}/readyz")),
            }
            socket
        }
    };
    serve_until_signal(client, plan, socket).await?;
    Ok(Exit::Done)
}

/// Serves on a socket until the process is asked to stop.
pub(super) async fn serve_until_signal(
    client: Client,
    plan: ServerPlan,
    socket: OpenSocket,
) -> Result<(), CommandError> {
    let shutdown = CancellationToken::new();
    let worker = match plan.is_read_only {
        true => None,
        false => Some(start_built_ins(&client).await?),
    };
    let config = plan.api_config().shutdown(shutdown.clone());
    let app = match plan.pages {
        Some(options) => site::site(client, config, plan.callers, options),
        None => router(client, config),
    };
    let app = match plan.base_path {
        Some(path) => path.below(app),
        None => app,
    };
    let stop = async {
        stop_signal().await;
        shutdown.cancel();
        stop_signal().await;
    };
    tokio::select! {
        served = socket.serve(app, shutdown.clone()) => served?,
        () = stop => return Err(CommandError::Interrupted),
    }
    if let Some(worker) = worker {
        worker.stop().await?;
    }
    Ok(())
}

/// What is served and who may call, before a socket is opened.
fn plan(args: &ServeArgs) -> Result<ServerPlan, CommandError> {
    let is_local = args.socket.is_some() || args.listen.ip().is_loopback();
    let callers = callers(args, is_local)?;
    let is_encrypted = args.base_url.as_ref().is_some_and(|url| url.starts_with("https://"));
    if !is_local && !is_encrypted && !args.insecure_no_tls {
        return Err(CommandError::usage(
            "access keys would be sent without encryption; put a proxy with TLS in front and give \
             `--base-url https://…`, or accept it with `--insecure-no-tls`",
        ));
    }
    let from_url = args.base_url.as_deref().and_then(host_of);
    let hosts = args.allow_host.iter().map(String::as_str).chain(from_url);
    let allowed_hosts: Vec<String> = hosts.map(str::to_owned).collect();
    let pages = PageOptions {
        environment: args.environment.clone(),
        is_read_only: args.read_only,
        payload_role: args.payload_role,
        is_https: is_encrypted,
        allowed_hosts: allowed_hosts.clone(),
    };
    let pages = (!args.no_dashboard).then_some(pages);
    let mut secrets = Vec::new();
    for named in &args.webhook_secret_file {
        let (name, of_name) = read_secrets(named)?;
        secrets.extend(of_name.into_iter().map(|secret| (name.to_owned(), secret)));
    }
    let webhooks = (!args.no_webhooks).then_some(secrets);
    let (has_api, has_metrics) = (!args.no_api, !args.no_metrics);
    Ok(ServerPlan {
        callers,
        pages,
        is_read_only: args.read_only,
        payload_role: args.payload_role,
        allowed_hosts,
        webhooks,
        has_api,
        has_metrics,
        base_path: args.base_path.clone(),
    })
}

/// Who may call.
fn callers(args: &ServeArgs, is_local: bool) -> Result<Callers, CommandError> {
    match (&args.keys, &args.identity_header) {
        (Some(file), _) => Ok(Callers::Keys(AccessKeys::from_file(file)?)),
        (None, Some(header)) => {
            let proxy = TrustedProxy::new(header, args.trusted_proxy.iter().copied())?;
            Ok(Callers::Proxy(proxy.role(args.identity_role)))
        }
        (None, None) if args.insecure_no_auth && is_local => Ok(Callers::Local),
        (None, None) if args.insecure_no_auth => Err(CommandError::usage(format!(
            "without access keys the server answers only this machine; listen on 127.0.0.1:{} or give `--keys`",
            args.listen.port()
        ))),
        (None, None) => Err(CommandError::usage(
            "a server needs access keys: give `--keys FILE` (see `outlast access create`), or \
             `--insecure-no-auth` on this machine only",
        )),
    }
}

/// The name and the secrets of an argument `NAME=FILE`. The file has one secret per line.
fn read_secrets(named: &str) -> Result<(&str, Vec<String>), CommandError> {
    let Some((name, file)) =
        named.split_once('=').filter(|(name, file)| !name.is_empty() && !file.is_empty())
    else {
        // The argument may be a secret.
        return Err(CommandError::usage(
            "`--webhook-secret-file` needs NAME=FILE, such as `stripe=stripe.secret`",
        ));
    };
    let text = std::fs::read_to_string(file)
        .map_err(|error| CommandError::usage(format!("the file {file} cannot be read: {error}")))?;
    let secrets: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(Into::into).collect();
    match secrets.is_empty() {
        true => Err(CommandError::usage(format!("the file {file} has no secret; write one per line"))),
        false => Ok((name, secrets)),
    }
}

/// The host of a URL, without its port.
fn host_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(listen: &str) -> ServeArgs {
        ServeArgs {
            listen: listen.parse().unwrap(),
            socket: None,
            keys: None,
            identity_header: None,
            trusted_proxy: Vec::new(),
            identity_role: outlast_api::Role::Read,
            environment: None,
            no_dashboard: false,
            no_api: false,
            no_metrics: false,
            allow_host: Vec::new(),
            base_url: None,
            base_path: None,
            read_only: false,
            payload_role: Role::Read,
            webhook_secret_file: Vec::new(),
            no_webhooks: false,
            insecure_no_auth: false,
            insecure_no_tls: false,
        }
    }

    #[test]
    fn a_server_without_keys_is_refused() {
        let exit = |args: &ServeArgs| plan(args).map_err(|error| error.exit().code()).err();
        assert_eq!(exit(&args("0.0.0.0:4700")), Some(2));
        assert_eq!(exit(&args("127.0.0.1:4700")), Some(2));
        assert_eq!(exit(&ServeArgs { insecure_no_auth: true, ..args("127.0.0.1:4700") }), None);
        assert_eq!(exit(&ServeArgs { insecure_no_auth: true, ..args("0.0.0.0:4700") }), Some(2));
    }

    #[test]
    fn secrets_are_read_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bank.secret");
        std::fs::write(&file, "new\n\n old \n").unwrap();
        let named = format!("bank={}", file.display());
        let (name, secrets) = read_secrets(&named).unwrap();
        assert_eq!((name, secrets), ("bank", vec!["new".to_owned(), "old".to_owned()]));
        std::fs::write(&file, "\n").unwrap();
        for wrong in [&*named, "bank", "=file", "bank=/no/such/file"] {
            assert_eq!(read_secrets(wrong).unwrap_err().exit().code(), 2, "{wrong}");
        }
    }

    #[test]
    fn keys_are_not_accepted_without_encryption() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys.json");
        std::fs::write(&file, "[]").unwrap();
        let with_keys = ServeArgs { keys: Some(file), ..args("0.0.0.0:4700") };
        assert!(plan(&with_keys).is_err());
        let behind_proxy = ServeArgs { base_url: Some("https://outlast.example".into()), ..with_keys };
        assert!(plan(&behind_proxy).is_ok());
        assert_eq!(host_of("https://outlast.example:8443/a"), Some("outlast.example"));
    }
}
