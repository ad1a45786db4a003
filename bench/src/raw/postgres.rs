//! The raw limits of Postgres: one connection, statements prepared, every commit on the disk.

use tokio_postgres::Statement;

use super::{Limit, ROW, ROWS_PER_COMMIT};
use crate::Result;
use crate::server::{Database, Sql};

/// A table of its own in the database, dropped afterwards.
#[derive(Debug)]
pub(super) struct RawTable {
    sql: Sql,
    one: Statement,
    many: Statement,
    bodies: Vec<&'static [u8]>,
}

impl RawTable {
    pub(super) fn make(database: &Database) -> Result<Self> {
        let mut sql = Sql::connect(&database.url())?;
        sql.run(
            "CREATE TABLE raw_rows (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)",
        )?;
        let (one, many) = sql.with(async |client| {
            let one = client.prepare("INSERT INTO raw_rows (body) VALUES ($1)").await?;
            let many = client.prepare("INSERT INTO raw_rows (body) SELECT unnest($1::bytea[])").await?;
            Ok((one, many))
        })?;
        Ok(Self { sql, one, many, bodies: vec![&ROW; ROWS_PER_COMMIT] })
    }
}

impl Limit for RawTable {
    fn one_row(&mut self) -> Result<()> {
        let one = &self.one;
        self.sql.with(async |client| client.execute(one, &[&&ROW[..]]).await)?;
        Ok(())
    }

    fn many_rows(&mut self) -> Result<()> {
        let (many, bodies) = (&self.many, &self.bodies);
        self.sql.with(async |client| client.execute(many, &[bodies]).await)?;
        Ok(())
    }

    fn rows(&mut self) -> Result<i64> {
        self.sql.one("SELECT count(*) FROM raw_rows")
    }
}

impl Drop for RawTable {
    fn drop(&mut self) {
        // The database is dropped as well; this only makes room for the workload.
        let _ = self.sql.run("DROP TABLE raw_rows");
    }
}
