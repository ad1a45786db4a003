//! Copies in a file.

use std::ops::Range;
use std::path::Path;

use rusqlite::{Connection, params};

use super::{CHILD_EVERY, ColumnContent, LargeWorldShape, ModelRuns, RowCopier, TAG};
use crate::Result;

/// The file, which nobody else has open.
#[derive(Debug)]
pub(super) struct SqliteFile(Connection);

impl SqliteFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        Ok(Self(connection))
    }

    /// The statement that copies the row of a run, column by column.
    fn copy_run(&self) -> Result<String> {
        let mut columns = self.0.prepare("SELECT name FROM pragma_table_info('runs') ORDER BY cid")?;
        let columns = columns.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        let values = columns.iter().map(|column| match ColumnContent::of(column) {
            ColumnContent::Id => "?1",
            ColumnContent::At => "?2",
            ColumnContent::AtIfEnded => "iif(ended_at IS NULL, NULL, ?2)",
            ColumnContent::Parent => "?3",
            ColumnContent::ParentOp | ColumnContent::ParentAwaits => "iif(?3 IS NULL, NULL, 0)",
            ColumnContent::Same => column,
        });
        let values: Vec<&str> = values.collect();
        Ok(format!("INSERT INTO runs SELECT {} FROM runs WHERE id = ?4", values.join(", ")))
    }
}

impl RowCopier for SqliteFile {
    fn copy(&mut self, shape: &LargeWorldShape, numbers: Range<usize>, models: ModelRuns) -> Result<()> {
        let transaction = self.0.unchecked_transaction()?;
        {
            let mut run = transaction.prepare_cached(&self.copy_run()?)?;
            let mut turns = transaction.prepare_cached(
                "INSERT INTO turns (run, seq, id, at, build, events) \
                 SELECT ?1, seq, id, ?2, build, events FROM turns WHERE run = ?3 ORDER BY seq",
            )?;
            let mut tag =
                transaction.prepare_cached("INSERT INTO tags (run, name, value) VALUES (?1, ?2, ?3)")?;
            for number in numbers {
                let (id, at) = (shape.id(number).to_string(), shape.at(number).as_micros());
                let of = if number < shape.finished { models.ended } else { models.asleep }.to_string();
                let is_child = number.is_multiple_of(CHILD_EVERY);
                run.execute(params![id, at, is_child.then(|| models.ended.to_string()), of])?;
                turns.execute(params![id, at, of])?;
                if is_child {
                    tag.execute(params![id, TAG.0, TAG.1])?;
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn finish(&mut self, shape: &LargeWorldShape) -> Result<()> {
        for (status, runs) in [("completed", shape.finished), ("waiting", shape.waiting)] {
            let raise = "UPDATE counts SET n = n + ?2 WHERE status = ?1";
            self.0.execute(raise, params![status, runs as i64])?;
        }
        // The ids have exactly the time of the starts.
        self.0.execute("UPDATE skew SET lowest = min(lowest, 0), highest = max(highest, 0)", [])?;
        Ok(())
    }
}
