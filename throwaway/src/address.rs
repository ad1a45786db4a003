//! The address of a server, with credentials.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// The address of a Postgres server, or of a proxy in front of it. Displayed as a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The host's name or IP address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The role.
    pub user: String,
    /// The role's password.
    pub password: String,
    /// The database.
    pub database: String,
}

impl Address {
    /// The same database through another port of the loopback.
    #[must_use]
    pub fn through(&self, port: u16) -> Self {
        Self { host: "127.0.0.1".into(), port, ..self.clone() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, user, password, database } = self;
        write!(f, "postgres://{user}:{password}@{host}:{port}/{database}")
    }
}

impl FromStr for Address {
    type Err = Error;

    /// Parses `postgres://USER:PASSWORD@HOST:PORT/DATABASE`; parameters after `?` are ignored.
    fn from_str(url: &str) -> Result<Self, Error> {
        parse(url).ok_or_else(|| {
            Error::new("the URL is not of the form `postgres://USER:PASSWORD@HOST:PORT/DATABASE`")
        })
    }
}

fn parse(url: &str) -> Option<Address> {
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"))?;
    let rest = rest.split('?').next()?;
    let (credentials, server_and_database) = rest.rsplit_once('@')?;
    let (user, password) = credentials.split_once(':')?;
    let (server, database) = server_and_database.split_once('/')?;
    let (host, port) = server.rsplit_once(':')?;
    let owned = String::from;
    Some(Address {
        host: owned(host),
        port: port.parse().ok()?,
        user: owned(user),
        password: owned(password),
        database: owned(database),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_parsed_as_it_is_displayed() {
        let url = "postgres://ada:secret@127.0.0.1:5432/books";
        let address: Address = url.parse().unwrap();
        assert_eq!(address.to_string(), url);
        assert_eq!(format!("{url}?schema=a").parse::<Address>().unwrap(), address);
        assert_eq!(address.through(6432).to_string(), url.replace("5432", "6432"));
    }

    #[test]
    fn an_invalid_address_is_refused_with_the_expected_form() {
        for url in ["", "sqlite:runs.db", "postgres://localhost/db", "postgres://a:b@host:many/db"] {
            let error = url.parse::<Address>().unwrap_err();
            assert!(error.to_string().contains("postgres://USER:PASSWORD@HOST:PORT/DATABASE"), "{error}");
        }
    }
}
