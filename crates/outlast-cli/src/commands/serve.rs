//! `serve`: serves the HTTP API of a world.

use std::net::SocketAddr;

use outlast::Client;
use outlast_server::{AccessKeys, Config, router, serve as serve_app, start_built_ins};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::CommandContext;
use super::signals::stop_signal;
use crate::args::ServeArgs;
use crate::connect::{open_existing, world_url};
use crate::exit::{CommandError, Exit};

/// Serves the API until the process is asked to stop.
pub(super) async fn serve(context: &CommandContext, args: &ServeArgs) -> Result<Exit, CommandError> {
    let config = config(args)?;
    let url = world_url(&context.settings, &context.console, "a server")?;
    let client = Client::new(open_existing(&url).await?);
    let client = match &context.codec {
        Some(codec) => client.with_codec(codec.clone()),
        None => client,
    };
    let place = client.world().describe().place;
    let (listener, address) = bind(args.listen).await?;
    context.console.message(format!("world  {place}"));
    context.console.message(format!("api    http://{address}/api"));
    serve_until_signal(client, config, listener, args.read_only).await?;
    Ok(Exit::Done)
}

/// Serves on a listener until the process is asked to stop.
pub(super) async fn serve_until_signal(
    client: Client,
    config: Config,
    listener: TcpListener,
    is_read_only: bool,
) -> Result<(), CommandError> {
    let shutdown = CancellationToken::new();
    let worker = match is_read_only {
        true => None,
        false => Some(start_built_ins(&client).await?),
    };
    let app = router(client, config.shutdown(shutdown.clone()));
    let stop = async {
        stop_signal().await;
        shutdown.cancel();
        stop_signal().await;
    };
    tokio::select! {
        served = serve_app(listener, app, shutdown.clone()) => served?,
        () = stop => return Err(CommandError::Interrupted),
    }
    if let Some(worker) = worker {
        worker.stop().await?;
    }
    Ok(())
}

/// A listener on an address, and its real address.
pub(super) async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), CommandError> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| {
        CommandError::failure(format!("cannot listen on {address}: {error}; choose another port"))
    })?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Who may call, before a socket is opened.
fn config(args: &ServeArgs) -> Result<Config, CommandError> {
    let is_local = args.listen.ip().is_loopback();
    let mut config = match &args.keys {
        Some(file) => Config::keys(AccessKeys::from_file(file)?),
        None if args.insecure_no_auth && is_local => Config::local(),
        None if args.insecure_no_auth => {
            return Err(CommandError::usage(format!(
                "without access keys the server answers only this machine; listen on 127.0.0.1:{} or give `--keys`",
                args.listen.port()
            )));
        }
        None => {
            return Err(CommandError::usage(
                "a server needs access keys: give `--keys FILE` (see `outlast access create`), or `--insecure-no-auth` on this machine only",
            ));
        }
    };
    let is_encrypted = args.base_url.as_ref().is_some_and(|url| url.starts_with("https://"));
    if !is_local && !is_encrypted && !args.insecure_no_tls {
        return Err(CommandError::usage(
            "access keys would be sent without encryption; put a proxy with TLS in front and give \
             `--base-url https://…`, or accept it with `--insecure-no-tls`",
        ));
    }
    let from_url = args.base_url.as_deref().and_then(host_of);
    for host in args.allow_host.iter().map(String::as_str).chain(from_url) {
        config = config.allow_host(host);
    }
    for named in &args.webhook_secret_file {
        let (name, secrets) = read_secrets(named)?;
        config = secrets.into_iter().fold(config, |config, secret| config.webhook_secret(name, secret));
    }
    let config = if args.no_webhooks { config.without_webhooks() } else { config };
    Ok(if args.read_only { config.read_only() } else { config })
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
            keys: None,
            allow_host: Vec::new(),
            base_url: None,
            read_only: false,
            webhook_secret_file: Vec::new(),
            no_webhooks: false,
            insecure_no_auth: false,
            insecure_no_tls: false,
        }
    }

    #[test]
    fn a_server_without_keys_is_refused() {
        let exit = |args: &ServeArgs| config(args).map_err(|error| error.exit().code()).err();
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
        assert!(config(&with_keys).is_err());
        let behind_proxy = ServeArgs { base_url: Some("https://outlast.example".into()), ..with_keys };
        assert!(config(&behind_proxy).is_ok());
        assert_eq!(host_of("https://outlast.example:8443/a"), Some("outlast.example"));
    }
}
