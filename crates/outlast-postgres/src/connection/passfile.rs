//! The password file of libpq: `~/.pgpass`, or the one that `PGPASSFILE` names.

use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// The password for this connection, if the file has one. As in libpq, a file that other users may read is not used.
pub(crate) fn password(config: &Config, configured_path: Option<String>) -> Option<String> {
    let path = match configured_path {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".pgpass"),
    };
    let text = std::fs::read_to_string(&path).ok()?;
    if is_readable_by_others(&path) {
        tracing::warn!(path = %path.display(), "the password file is ignored, since other users may read it; \
            run `chmod 600` on it");
        return None;
    }
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(_)) => "localhost".into(),
        None => config.get_hostaddrs().first()?.to_string(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    find_password(&text, [&host, &port, config.get_dbname()?, config.get_user()?])
}

/// The password of the first line that matches `host:port:database:user`.
fn find_password(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line).into_iter();
        let matches =
            wanted.iter().all(|wanted| fields.next().is_some_and(|field| field == "*" || field == *wanted));
        fields.next().filter(|_| matches)
    })
}

/// The fields of a line; `\` escapes the next character.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let escaped = if character == '\\' { characters.next() } else { None };
        match (character, escaped) {
            (':', _) => fields.push(String::new()),
            (character, escaped) => {
                if let Some(field) = fields.last_mut() {
                    field.push(escaped.unwrap_or(character));
                }
            }
        }
    }
    fields
}

#[cfg(unix)]
fn is_readable_by_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_readable_by_others(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::find_password;

    #[test]
    fn the_first_matching_line_has_the_password() {
        let text = "# host:port:database:user:password\n\
            db:5432:shop:ada:one\n\
            db:5432:*:ada:tw\\:o\n\
            *:*:*:*:three";
        let find_password = |database, user| find_password(text, ["db", "5432", database, user]);
        assert_eq!(find_password("shop", "ada").as_deref(), Some("one"));
        assert_eq!(find_password("other", "ada").as_deref(), Some("tw:o"));
        assert_eq!(find_password("other", "bob").as_deref(), Some("three"));
        assert_eq!(super::find_password("db:5432:shop:ada:one", ["db", "5432", "shop", "bob"]), None);
    }
}
