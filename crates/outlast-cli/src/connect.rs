//! Connects to the world or server that the configuration names. Nothing is created.

use std::path::Path;
use std::sync::Arc;

use outlast::sqlite::SqliteUrl;
use outlast::{Client, World};

use crate::app::SharedCodec;
use crate::config::{Origin, Settings, Target, without_password};
use crate::exit::CommandError;
use crate::output::Console;
use crate::surface::{Direct, Remote, Surface};

/// Connects to a world or a server.
pub(crate) async fn connect(
    settings: &Settings,
    console: &Console,
    codec: Option<SharedCodec>,
) -> Result<Box<dyn Surface>, CommandError> {
    match target(settings, console)? {
        Target::Server(server) => {
            let key = settings.access_key()?.map(|key| key.value);
            let remote =
                Remote::new(&server.value, key).map_err(|error| CommandError::usage(error.to_string()))?;
            Ok(Box::new(remote))
        }
        Target::World(world) => {
            let client = Client::new(open_existing(&world.value).await?);
            Ok(Box::new(Direct::new(match codec {
                Some(codec) => client.with_codec(codec),
                None => client,
            })))
        }
    }
}

/// The world of the configuration, for commands that a server cannot do.
pub(crate) fn world_url(settings: &Settings, console: &Console, what: &str) -> Result<String, CommandError> {
    match target(settings, console)? {
        Target::World(world) => Ok(world.value),
        Target::Server(server) => Err(CommandError::usage(format!(
            "{what} needs a world, but the configuration names the server {}; give `--world`",
            server.value
        ))),
    }
}

/// Where to connect. A database that the environment names for other purposes is announced.
pub(crate) fn target(settings: &Settings, console: &Console) -> Result<Target, CommandError> {
    let target = settings.target()?.ok_or_else(|| {
        CommandError::usage(
            "no world is configured; give `--world sqlite:shop.db` or `--server http://…`, set OUTLAST_WORLD, \
             or begin with `outlast dev`",
        )
    })?;
    if let Target::World(world) = &target
        && world.origin == Origin::DatabaseUrl
    {
        console.message(format!("using {} (DATABASE_URL)", without_password(&world.value)));
    }
    Ok(target)
}

/// Opens a world that exists.
pub(crate) async fn open_existing(url: &str) -> Result<Arc<dyn World>, CommandError> {
    match url.split_once(':') {
        Some(("memory", _)) => Err(CommandError::usage(
            "`memory:` is a world of one process; use `sqlite:shop.db` to reach it from here",
        )),
        Some(("sqlite", _)) => {
            let path = SqliteUrl::parse(url).map_err(outlast::Error::from)?.path;
            check_file(url, &path)?;
            Ok(outlast::open(url).await?)
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            let mut options = outlast::postgres::PostgresOptions::new();
            options.migrate = outlast::postgres::Migrate::Off;
            let world = outlast::postgres::PostgresWorld::open(url, options).await;
            Ok(Arc::new(world.map_err(outlast::Error::from)?))
        }
        _ => Ok(outlast::open(url).await?),
    }
}

fn check_file(url: &str, path: &Path) -> Result<(), CommandError> {
    match std::fs::metadata(path) {
        Ok(data) if data.is_file() && data.len() > 0 => Ok(()),
        Ok(data) if data.is_file() => Err(CommandError::unavailable(format!(
            "{} is empty; create the world with `outlast world migrate --world {url}`",
            path.display()
        ))),
        Ok(_) => Err(CommandError::usage(format!("{} is not a file", path.display()))),
        Err(_) => Err(CommandError::unavailable(format!(
            "there is no world at {}; check the path, or create it with `outlast world migrate --world {url}`",
            path.display()
        ))),
    }
}
