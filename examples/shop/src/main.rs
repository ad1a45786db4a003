//! A shop on SQLite: a worker, a small load of orders, and the dashboard that shows them.
//!
//! ```text
//! cargo run -p shop
//! ```

mod load;
mod workflows;

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use outlast::prelude::*;
use outlast_dashboard::{DashboardConfig, Service};
use tokio::net::TcpListener;

const HELP: &str = "\
Usage: cargo run -p shop -- [FILE] [--port PORT]
  FILE         the SQLite file in which runs are stored (default: shop.db)
  --port PORT  the port of the dashboard (default: 4700, or a free one if that is taken)";

/// The arguments of the program.
struct Arguments {
    file: String,
    port: Option<u16>,
}

impl Arguments {
    /// The arguments, or `None` if they ask for help.
    fn parse() -> Result<Option<Self>, Error> {
        let (mut file, mut port) = ("shop.db".to_owned(), None);
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--port" => {
                    let number = words.next().and_then(|number| number.parse().ok());
                    port = Some(number.ok_or_else(|| Error::msg("--port: a number is missing"))?);
                }
                option if option.starts_with('-') => {
                    return Err(Error::msg(format!("{option}: there is no such option; see --help")));
                }
                _ => file = word,
            }
        }
        Ok(Some(Self { file, port }))
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
    let listener = listen(arguments.port).await?;
    let world = outlast::open(&format!("sqlite:{}", arguments.file)).await?;
    let client = Client::new(world.clone());
    load::start_with_old_input(&client).await?;
    let worker = workflows::worker(world).retention("1h").start().await?;
    load::start_one_of_each(&client).await?;
    say(&format!(
        "dashboard  http://{}/\nworld      sqlite:{}; stop with Ctrl-C and start again: all runs continue",
        listener.local_addr()?,
        arguments.file
    ));

    let config = DashboardConfig::local().environment("shop");
    let pages = outlast_dashboard::router(Service::new(client.clone()), config)
        .into_make_service_with_connect_info::<SocketAddr>();
    let stopped = async {
        tokio::select! {
            served = axum::serve(listener, pages).into_future() => served.map_err(Error::from),
            sold = load::sell(client) => sold,
            interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Error::from),
        }
    };
    stopped.await?;
    worker.stop().await
}
