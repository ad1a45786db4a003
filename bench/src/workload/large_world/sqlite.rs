//! Copies in a file.

use std::ops::Range;
use std::path::Path;

use rusqlite::{Connection, params};

use super::{Big, CHILDREN_PER_PARENT, Content, Copies, Models, TAG};
use crate::Result;

/// The file, which nobody else has open.
#[derive(Debug)]
pub(super) struct File(Connection);

impl File {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        Ok(Self(connection))
    }

    /// The statement that copies the row of a run, column by column.
    fn copy_run(&self) -> Result<String> {
        let mut columns = self.0.prepare("SELECT name FROM pragma_table_info('runs') ORDER BY cid")?;
        let columns = columns.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        let values = columns.iter().map(|column| match Content::of(column) {
            Content::Id => "?1",
            Content::At => "?2",
            Content::AtIfEnded => "iif(ended_at IS NULL, NULL, ?2)",
            Content::Parent => "?3",
            Content::ParentOp | Content::ParentAwaits => "iif(?3 IS NULL, NULL, 0)",
            Content::Same => column,
        });
        let values: Vec<&str> = values.collect();
        Ok(format!("INSERT INTO runs SELECT {} FROM runs WHERE id = ?4", values.join(", ")))
    }
}

impl Copies for File {
    fn copy(&mut self, large_world: &Big, numbers: Range<usize>, models: Models) -> Result<()> {
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
                let (id, at) = (large_world.id(number).to_string(), large_world.at(number).as_micros());
                let of = if number < large_world.finished { models.ended } else { models.asleep }.to_string();
                let is_family = number.is_multiple_of(CHILDREN_PER_PARENT);
                run.execute(params![id, at, is_family.then(|| models.ended.to_string()), of])?;
                turns.execute(params![id, at, of])?;
                if is_family {
                    tag.execute(params![id, TAG.0, TAG.1])?;
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn finish(&mut self, large_world: &Big) -> Result<()> {
        for (status, runs) in [("completed", large_world.finished), ("waiting", large_world.waiting)] {
            let raise = "UPDATE counts SET n = n + ?2 WHERE status = ?1";
            self.0.execute(raise, params![status, runs as i64])?;
        }
        // The ids have exactly the time of the starts.
        self.0.execute("UPDATE skew SET lowest = min(lowest, 0), highest = max(highest, 0)", [])?;
        Ok(())
    }
}
