//! Finding a run by a part of its id, or by its key.

use outlast_core::{QueuedSteps, RunId, RunQuery, RunView};

use super::problems::of_error;
use super::{Service, convert};
use crate::problem::{Problem, ProblemCode};
use crate::runs::{ResolveJson, ResolveQuery};

/// The largest number of runs that are returned.
const CANDIDATES_MAX: usize = 10;

/// The shortest end of an id that is searched for.
const SUFFIX_MIN: usize = 4;

/// The number of pages that a search for the end of an id reads, each of a bounded number of runs.
const SUFFIX_PAGES_MAX: usize = 8;

/// The number of digits of an id.
const DIGITS: usize = 26;

impl Service {
    /// `GET /api/resolve`: the runs with an id, the beginning or end of one, or a key. The end of an id is searched for
    /// among the newest runs only.
    ///
    /// # Errors
    ///
    /// `not_found` if there is none.
    pub async fn resolve(&self, query: &ResolveQuery) -> Result<ResolveJson, Problem> {
        let text = query.q.trim();
        let mut found: Vec<RunView> = Vec::new();
        if let Ok(run) = text.parse::<RunId>() {
            found.push(self.client.run(run).await.map_err(of_error)?);
        } else {
            self.add(&mut found, RunQuery { key: Some(text.into()), ..RunQuery::default() }).await?;
            let digits = text.strip_prefix(RunId::PREFIX).unwrap_or(text).to_ascii_uppercase();
            if let Some((first, last)) = ids_with_prefix(&digits) {
                let before = first.bits().checked_sub(1).map(RunId::from_bits);
                let after = last.bits().checked_add(1).map(RunId::from_bits);
                self.add(&mut found, RunQuery { before, after, ..RunQuery::default() }).await?;
            }
            if found.is_empty() && is_suffix(&digits) {
                self.add_suffix(&mut found, &digits).await?;
            }
        }
        if found.is_empty() {
            let detail = format!("no run has the id or key `{text}`, or an id that begins or ends with it");
            return Err(Problem::new(ProblemCode::NotFound, detail));
        }
        Ok(ResolveJson { candidates: found.iter().map(convert::run).collect() })
    }

    async fn add(&self, found: &mut Vec<RunView>, query: RunQuery) -> Result<(), Problem> {
        let query = RunQuery { limit: CANDIDATES_MAX, queued_steps: QueuedSteps::Listed, ..query };
        for run in self.client.runs(query).await.map_err(of_error)?.runs {
            if found.len() < CANDIDATES_MAX && found.iter().all(|other| other.id != run.id) {
                found.push(run);
            }
        }
        Ok(())
    }

    async fn add_suffix(&self, found: &mut Vec<RunView>, digits: &str) -> Result<(), Problem> {
        let mut query = RunQuery { text: Some(digits.into()), limit: CANDIDATES_MAX, ..RunQuery::default() };
        for _ in 0..SUFFIX_PAGES_MAX {
            let page = self.client.runs(query.clone()).await.map_err(of_error)?;
            found.extend(page.runs.into_iter().filter(|run| run.id.to_string().ends_with(digits)));
            found.truncate(CANDIDATES_MAX);
            if page.next.is_none() || found.len() == CANDIDATES_MAX {
                break;
            }
            query.after = page.next;
        }
        Ok(())
    }
}

/// The lowest and the highest id that begins with these digits; `None` if they are not digits of an id.
fn ids_with_prefix(digits: &str) -> Option<(RunId, RunId)> {
    let missing = DIGITS.checked_sub(digits.len()).filter(|_| !digits.is_empty())?;
    let id = |fill: &str| format!("{}{digits}{}", RunId::PREFIX, fill.repeat(missing)).parse().ok();
    Some((id("0")?, id("Z")?))
}

/// Whether an id can end with this text.
fn is_suffix(text: &str) -> bool {
    let id = format!("{}{text:0>DIGITS$}", RunId::PREFIX);
    (SUFFIX_MIN..DIGITS).contains(&text.len()) && id.parse::<RunId>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_with_a_prefix_are_a_range() {
        let (first, last) = ids_with_prefix("01K").unwrap();
        assert!(first.to_string().starts_with("run_01K0") && last.to_string().ends_with("ZZ"));
        let whole = "01K0000000000000000000000A";
        assert_eq!(ids_with_prefix(whole).map(|(first, last)| first == last), Some(true));
        for text in ["", "8", "order-42", "01K0000000000000000000000AB"] {
            assert_eq!(ids_with_prefix(text), None, "{text}");
        }
    }

    #[test]
    fn the_end_of_an_id_may_begin_with_any_digit() {
        assert!(is_suffix("ZZZZ") && is_suffix("84AEWMC33E"));
        for text in ["", "ZZZ", "order-42", "ILOU", "01K0000000000000000000000A"] {
            assert!(!is_suffix(text), "{text}");
        }
    }
}
