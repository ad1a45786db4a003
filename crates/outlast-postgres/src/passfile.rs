//! The password file of libpq: `~/.pgpass`, or the one that `PGPASSFILE` names.

use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// The password for this connection, if the file has one. A file that others may read is not used.
pub(crate) fn password(config: &Config, named: Option<String>) -> Option<String> {
    let path = match named {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".pgpass"),
    };
    let text = std::fs::read_to_string(&path).ok()?;
    if is_open_to_others(&path) {
        tracing::warn!(path = %path.display(), "the password file is not used, since others may read it; \
            run `chmod 600` on it");
        return None;
    }
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(_)) => "localhost".into(),
        None => config.get_hostaddrs().first()?.to_string(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    find(&text, [&host, &port, config.get_dbname()?, config.get_user()?])
}

/// The password of the first line that fits `host:port:database:user`.
fn find(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line).into_iter();
        let fits =
            wanted.iter().all(|wanted| fields.next().is_some_and(|field| field == "*" || field == *wanted));
        fields.next().filter(|_| fits)
    })
}

/// The fields of a line; `\` takes the next character as it is.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let escaped = if letter == '\\' { letters.next() } else { None };
        match (letter, escaped) {
            (':', _) => fields.push(String::new()),
            (letter, escaped) => {
                if let Some(field) = fields.last_mut() {
                    field.push(escaped.unwrap_or(letter));
                }
            }
        }
    }
    fields
}

#[cfg(unix)]
fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open_to_others(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let text = "# host:port:database:user:password\n\
            db:5432:shop:ada:one\n\
            db:5432:*:ada:tw\\:o\n\
            *:*:*:*:three";
        let find = |database, user| find(text, ["db", "5432", database, user]);
        assert_eq!(find("shop", "ada").as_deref(), Some("one"));
        assert_eq!(find("other", "ada").as_deref(), Some("tw:o"));
        assert_eq!(find("other", "bob").as_deref(), Some("three"));
        assert_eq!(super::find("db:5432:shop:ada:one", ["db", "5432", "shop", "bob"]), None);
    }
}
