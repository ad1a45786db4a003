//! The URL of a world: parameters of the world, and parameters of the connection.

use std::time::Duration;

use outlast_core::WorldError;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::connection::passfile;
use crate::options::{Migrate, PostgresOptions};

/// The connect timeout, unless the URL gives another.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long sent data may stay unacknowledged before the connection counts as lost.
const TCP_TIMEOUT: Duration = Duration::from_secs(20);

/// The parameters of a URL that are for the world.
const WORLD_PARAMETERS: &[&str] =
    &["schema", "pool", "transactions", "timeout", "migrate", "sslmode", "sslrootcert", "passfile"];

/// The parameters that are for the connection, named as in libpq.
const CONNECTION_PARAMETERS: &[&str] = &[
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "options",
    "password",
    "port",
    "sslnegotiation",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// Where to connect to, from a URL and the environment.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionTarget {
    pub(crate) config: Config,
    pub(crate) root_cert: Option<String>,
    /// Host, database and schema, for error messages; without the password.
    pub(crate) place: String,
}

/// Parses a URL such as `postgres://shop@db/shop?schema=outlast&pool=8`. Parameters of the world are stored in
/// `options`.
pub(crate) fn parse(url: &str, options: &mut PostgresOptions) -> Result<ConnectionTarget, WorldError> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let mut rest = Vec::new();
    let mut root_cert = env("PGSSLROOTCERT");
    let mut mode = env("PGSSLMODE");
    let mut pass_file = env("PGPASSFILE");
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            "schema" => options.schema = percent_decoded(value),
            "pool" => options.pool = number(name, value, 1..=1_000)?,
            "transactions" => options.transactions = number(name, value, 1..=1_000)?,
            "timeout" => options.timeout = seconds(name, value)?,
            "migrate" => options.migrate = migrate(value)?,
            "sslrootcert" => root_cert = Some(percent_decoded(value)),
            "sslmode" => mode = Some(value.to_owned()),
            "passfile" => pass_file = Some(percent_decoded(value)),
            name if CONNECTION_PARAMETERS.contains(&name) => rest.push(parameter),
            _ => return Err(unknown_parameter_error(name)),
        }
    }
    let text = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    let mut config: Config = text.parse().map_err(|error: tokio_postgres::Error| {
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        WorldError::invalid(format!(
            "the Postgres URL is malformed ({why}); write for example \
             `postgres://user@host:5432/database?schema=outlast`"
        ))
    })?;
    // The host is not part of the error: it may be a part of a password.
    if config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(name) if name.contains(['@', '#']))) {
        return Err(WorldError::Invalid(
            "the user or password in the Postgres URL contains a reserved character; write `%40` for `@`, `%23` for \
             `#`, `%3A` for `:` and `%2F` for `/` there"
                .into(),
        ));
    }
    if let Some(mode) = mode {
        config.ssl_mode(ssl_mode(&mode)?);
    }
    fill_from_environment(&mut config)?;
    if config.get_password().is_none()
        && let Some(password) = env("PGPASSWORD").or_else(|| passfile::password(&config, pass_file))
    {
        config.password(password);
    }
    let place = place(&config, &options.schema);
    Ok(ConnectionTarget { config, root_cert, place })
}

/// Every mode but `disable` and `prefer` checks the server's certificate.
fn ssl_mode(value: &str) -> Result<SslMode, WorldError> {
    match value {
        "disable" => Ok(SslMode::Disable),
        "allow" | "prefer" => Ok(SslMode::Prefer),
        "require" | "verify-ca" | "verify-full" => Ok(SslMode::Require),
        other => Err(WorldError::invalid(format!(
            "`sslmode={other}` is unknown; write `disable`, `prefer` or `require` in the URL or in PGSSLMODE"
        ))),
    }
}

fn migrate(value: &str) -> Result<Migrate, WorldError> {
    match value {
        "auto" => Ok(Migrate::Auto),
        "off" => Ok(Migrate::Off),
        other => Err(WorldError::invalid(format!(
            "`migrate={other}` in the URL is unknown; write `migrate=auto` or `migrate=off`"
        ))),
    }
}

fn number(name: &str, value: &str, range: std::ops::RangeInclusive<usize>) -> Result<usize, WorldError> {
    value.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        WorldError::invalid(format!(
            "`{name}={value}` is invalid; write a number from {} to {}",
            range.start(),
            range.end()
        ))
    })
}

fn seconds(name: &str, value: &str) -> Result<Duration, WorldError> {
    let seconds = value.parse().ok().filter(|seconds| (1..=3_600).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        WorldError::invalid(format!(
            "`{name}={value}` is invalid; write seconds as a number from 1 to 3600, without a unit: `{name}=30`"
        ))
    })
}

/// The error for an unknown parameter. It does not show the value, which may be a secret.
fn unknown_parameter_error(name: &str) -> WorldError {
    let known: Vec<&str> = WORLD_PARAMETERS.iter().chain(CONNECTION_PARAMETERS).copied().collect();
    let nearest = known.iter().map(|known| (edit_distance(name, known), *known)).min();
    let suggestion = match nearest {
        Some((distance, known)) if distance <= 2 => format!(" (did you mean `{known}`?)"),
        _ => String::new(),
    };
    WorldError::invalid(format!(
        "the parameter `{name}` in the Postgres URL is unknown{suggestion}; the known ones are: {}",
        known.join(", ")
    ))
}

/// The Levenshtein distance: how many characters must be changed, added or removed to turn one text into the other.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, left_char) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, right_char) in right.iter().enumerate() {
            let changed = diagonal + usize::from(left_char != *right_char);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

/// Fills parts that the URL leaves out from the environment variables of libpq, and sets all timeouts.
fn fill_from_environment(config: &mut Config) -> Result<(), WorldError> {
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        config.host(env("PGHOST").unwrap_or_else(|| "localhost".into()));
        if let Some(address) = env("PGHOSTADDR") {
            config.hostaddr(address.parse().map_err(|_| {
                WorldError::invalid(format!(
                    "`PGHOSTADDR={address}` is not an IP address; write for example 10.0.0.7"
                ))
            })?);
        }
    }
    if config.get_ports().is_empty()
        && let Some(port) = env("PGPORT")
    {
        config.port(number("PGPORT", &port, 1..=65_535)? as u16);
    }
    if config.get_user().is_none() {
        config.user(env("PGUSER").or_else(|| env("USER")).unwrap_or_else(|| "postgres".into()));
    }
    if config.get_dbname().is_none() {
        let user = config.get_user().unwrap_or("postgres").to_owned();
        config.dbname(env("PGDATABASE").unwrap_or(user));
    }
    if config.get_application_name().is_none() {
        config.application_name(env("PGAPPNAME").unwrap_or_else(|| "outlast".into()));
    }
    if config.get_options().is_none()
        && let Some(options) = env("PGOPTIONS")
    {
        config.options(options);
    }
    fill_session_attributes(config)?;
    fill_timeouts(config)
}

/// Takes the required kind of server from the environment.
fn fill_session_attributes(config: &mut Config) -> Result<(), WorldError> {
    let Some(attributes) = env("PGTARGETSESSIONATTRS") else { return Ok(()) };
    if config.get_target_session_attrs() != TargetSessionAttrs::Any {
        return Ok(());
    }
    config.target_session_attrs(match &*attributes {
        "any" => TargetSessionAttrs::Any,
        "read-write" | "primary" => TargetSessionAttrs::ReadWrite,
        other => {
            return Err(WorldError::invalid(format!(
                "`PGTARGETSESSIONATTRS={other}` cannot be used, since a world needs to write; write `read-write`"
            )));
        }
    });
    Ok(())
}

fn fill_timeouts(config: &mut Config) -> Result<(), WorldError> {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(match env("PGCONNECT_TIMEOUT") {
            Some(value) => seconds("PGCONNECT_TIMEOUT", &value)?,
            None => CONNECT_TIMEOUT,
        });
    }
    config
        .keepalives(true)
        .keepalives_idle(TCP_TIMEOUT)
        .keepalives_interval(TCP_TIMEOUT / 4)
        .keepalives_retries(3);
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TCP_TIMEOUT);
    }
    Ok(())
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn place(config: &Config, schema: &str) -> String {
    let host = config.get_hosts().first().map_or_else(
        || config.get_hostaddrs().first().map_or_else(String::new, ToString::to_string),
        |host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        },
    );
    let port = config.get_ports().first().copied().unwrap_or(5432);
    format!("{host}:{port}/{}?schema={schema}", config.get_dbname().unwrap_or_default())
}

/// A parameter's value with percent-encoded characters (`%20`) decoded.
fn percent_decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = tail
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        rest = match escaped {
            Some(byte) => {
                bytes.push(byte);
                &tail[2..]
            }
            None => {
                bytes.push(*first);
                tail
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_the_world_are_separated_from_those_of_the_connection() {
        let mut options = PostgresOptions::new();
        let url =
            "postgres://a:secret@db:5433/shop?schema=my%20shop&pool=3&migrate=off&sslmode=require&timeout=7";
        let target = parse(url, &mut options).unwrap();
        assert_eq!((&*options.schema, options.pool, options.migrate), ("my shop", 3, Migrate::Off));
        assert_eq!(options.timeout, Duration::from_secs(7));
        assert_eq!(target.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(target.place, "db:5433/shop?schema=my shop");
        assert!(!format!("{target:?}").contains("secret"), "{target:?}");
    }

    #[test]
    fn errors_name_the_invalid_parameter_and_never_show_the_password() {
        for (url, named) in [
            ("postgres://a@b/c?pool=0", "pool=0"),
            ("postgres://a@b/c?migrate=maybe", "migrate=maybe"),
            (
                "postgres://a@b/c?colour=red",
                "`colour` in the Postgres URL is unknown; the known ones are: schema, pool",
            ),
            ("postgres://a@b/c?shema=x", "`shema` in the Postgres URL is unknown (did you mean `schema`?)"),
            ("postgres://a@b/c?conect_timeout=5", "(did you mean `connect_timeout`?)"),
            (
                "postgres://a@b/c?timeout=5s",
                "seconds as a number from 1 to 3600, without a unit: `timeout=30`",
            ),
            ("postgres://a@b/c?timeout=0", "timeout=0"),
            ("postgres://a@b/c?sslmode=perhaps", "sslmode=perhaps"),
            ("postgres://a@b:port/c", "port"),
            ("postgres://a:se@cret@b/c", "%40"),
        ] {
            let refused = parse(url, &mut PostgresOptions::new()).unwrap_err().to_string();
            assert!(refused.contains(named) && !refused.contains("cret"), "{url}: {refused}");
        }
    }
}
