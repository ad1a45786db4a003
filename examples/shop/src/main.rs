//! A shop on SQLite: a worker, a small load of orders, and the dashboard that shows them.
//!
//! ```text
//! cargo run -p shop
//! ```

mod demo;
mod load;
mod workflows;

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use outlast::AttemptLogLayer;
use outlast::core::World;
use outlast::prelude::*;
use outlast_dashboard::{DashboardConfig, Service};
use tokio::net::TcpListener;
use tracing_subscriber::layer::SubscriberExt;

const HELP: &str = "\
Usage: cargo run -p shop -- [FILE] [--demo] [--port PORT]
  FILE         the SQLite file in which runs are stored (default: shop.db, or demo.db)
  --demo       first makes 240 runs of the last three days, with every status; takes about a minute
  --port PORT  the port of the dashboard (default: 4700, or a free one if that is taken)";

/// The arguments of the program.
struct Arguments {
    file: String,
    is_demo: bool,
    port: Option<u16>,
}

impl Arguments {
    /// The arguments, or `None` if they ask for help.
    fn parse() -> Result<Option<Self>, Error> {
        let (mut file, mut is_demo, mut port) = (None, false, None);
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--demo" => is_demo = true,
                "--port" => {
                    let number = words.next().and_then(|number| number.parse().ok());
                    port = Some(number.ok_or_else(|| Error::msg("--port: a number is missing"))?);
                }
                option if option.starts_with('-') => {
                    return Err(Error::msg(format!("{option}: there is no such option; see --help")));
                }
                _ => file = Some(word),
            }
        }
        let usual = if is_demo { "demo.db" } else { "shop.db" };
        Ok(Some(Self { file: file.unwrap_or_else(|| usual.to_owned()), is_demo, port }))
    }
}

/// Listens on the port; without one on 4700, or on a free port if that is taken.
async fn listen(port: Option<u16>) -> Result<TcpListener, Error> {
    let on = |port| TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    match port {
        Some(port) => Ok(on(port).await?),
        None => match on(4700).await {
            Ok(listener) => Ok(listener),
            Err(_) => Ok(on(0).await?),
        },
    }
}

/// Prints the text. A reader that has gone, as with `shop | head -1`, does not stop the shop.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}") {
        eprintln!("warning: the address cannot be printed: {error}");
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let Some(arguments) = Arguments::parse()? else {
        println!("{HELP}");
        return Ok(());
    };
    // What steps log is shown beside them.
    let subscriber = tracing_subscriber::registry().with(AttemptLogLayer::new());
    tracing::subscriber::set_global_default(subscriber).map_err(|error| Error::msg(error.to_string()))?;
    let listener = listen(arguments.port).await?;
    let url = format!("sqlite:{}", arguments.file);
    if arguments.is_demo {
        eprintln!("making 240 runs of the last three days; this takes about a minute");
        demo::prepare(&url).await?;
    }
    let world = outlast::open(&url).await?;
    let client = Client::new(world.clone());
    let worker = match arguments.is_demo {
        true => start_demo(world, &client).await?,
        false => start_shop(world, &client).await?,
    };
    // Executes actions on many runs, which are runs of a queue of their own.
    let built_ins = client.worker_builder().only_built_ins().start().await?;
    say(&format!(
        "dashboard  http://{}/\nworld      {url}; stop with Ctrl-C and start again: all runs continue",
        listener.local_addr()?,
    ));

    let config = DashboardConfig::local().environment(if arguments.is_demo { "demo" } else { "shop" });
    let pages = outlast_dashboard::router(Service::new(client.clone()), config)
        .into_make_service_with_connect_info::<SocketAddr>();
    let sales = async {
        match arguments.is_demo {
            true => std::future::pending().await,
            false => load::sell(client).await,
        }
    };
    let stopped = async {
        tokio::select! {
            served = axum::serve(listener, pages).into_future() => served.map_err(Error::from),
            sold = sales => sold,
            interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Error::from),
        }
    };
    stopped.await?;
    built_ins.stop().await?;
    worker.stop().await
}

/// The worker of the shop, and one run of each kind.
async fn start_shop(world: Arc<dyn World>, client: &Client) -> Result<Worker, Error> {
    load::start_with_old_input(client).await?;
    let worker = workflows::worker(world).retention("1h").start().await?;
    load::start_one_of_each(client).await?;
    Ok(worker)
}

/// The worker of the demonstration, and what is in progress while somebody looks.
async fn start_demo(world: Arc<dyn World>, client: &Client) -> Result<Worker, Error> {
    let worker = demo::worker(world).start().await?;
    demo::start_live_runs(client).await?;
    Ok(worker)
}
