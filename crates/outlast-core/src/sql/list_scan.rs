//! Which indexes a list of runs is read from, and which conditions are checked row by row.

use crate::id::RunId;
use crate::marks::Marks;
use crate::queue::{BUILT_IN_PREFIX, STEP_PREFIX};
use crate::run::{FlagFilter, RunQuery, Status};
use crate::time::Timestamp;

/// An index whose last column is the run's id, and the values of the columns before it: a part of a list of runs, in the
/// order of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListIndex<'q> {
    /// All runs.
    All,
    /// The runs that this one started.
    Parent(RunId),
    /// The descendants of this run. It is not one of them, and has to be read separately.
    Root(RunId),
    /// The runs with any mark.
    Marked,
    /// The runs that may have this flag.
    Flag(FlagFilter),
    /// The runs with this tag.
    Tag {
        /// Its name.
        name: &'q str,
        /// Its value.
        value: &'q str,
    },
    /// The runs in this status.
    Status(Status),
    /// The runs of this workflow.
    Workflow(&'q str),
}

/// A condition that no index supports, so that it is checked row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowFilter<'q> {
    /// The run is in one of these statuses.
    Statuses(Vec<Status>),
    /// The run is of this workflow.
    Workflow(&'q str),
    /// The run has one of these marks.
    Marks(Marks),
    /// The run belongs to this queue.
    Queue(&'q str),
    /// The name of the workflow does not begin with this.
    NotPrefix(&'static str),
    /// The run has this tag.
    Tag {
        /// Its name.
        name: &'q str,
        /// Its value.
        value: &'q str,
    },
    /// The run was started at this time or later.
    CreatedFrom(Timestamp),
    /// The run was started before this time.
    CreatedBefore(Timestamp),
    /// The run ended at this time or later.
    EndedFrom(Timestamp),
    /// The run ended before this time.
    EndedBefore(Timestamp),
    /// The run has this flag.
    Flag(FlagFilter),
    /// The id, the workflow or the key of the run contains this text, which is in lower case. A statement may let other
    /// runs pass: [`RunQuery::wants`] decides.
    Text(String),
}

/// A scan of one index, in the order of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListScan<'q> {
    /// The index.
    pub index: ListIndex<'q>,
    /// The conditions that the index does not support.
    pub row_filters: Vec<RowFilter<'q>>,
}

impl<'q> ListScan<'q> {
    /// The scans that together contain all runs of a list, except for a root. Each run is in one of them at most.
    ///
    /// A list is read from the index that selects the fewest runs: those of a parent, a root, marks, a flag or a tag
    /// contain few of all runs, those of a status or a workflow more.
    pub fn all(query: &'q RunQuery) -> Vec<Self> {
        let mut statuses = query.statuses.clone();
        statuses.sort_unstable();
        statuses.dedup();
        let (indexes, mut filters) = match (selective_index(query), &query.workflow) {
            (Some(index), workflow) => {
                let has_statuses = !statuses.is_empty();
                let statuses = has_statuses.then_some(RowFilter::Statuses(statuses));
                let workflow = workflow.as_deref().map(RowFilter::Workflow);
                (vec![index], statuses.into_iter().chain(workflow).collect())
            }
            (None, workflow) if !statuses.is_empty() => {
                let workflow = workflow.as_deref().map(RowFilter::Workflow);
                (statuses.into_iter().map(ListIndex::Status).collect(), Vec::from_iter(workflow))
            }
            (None, Some(workflow)) => (vec![ListIndex::Workflow(workflow)], Vec::new()),
            (None, None) => (vec![ListIndex::All], Vec::new()),
        };
        let is_tag_indexed = matches!(indexes[..], [ListIndex::Tag { .. }]);
        add_other_filters(query, is_tag_indexed, &mut filters);
        indexes.into_iter().map(|index| Self { index, row_filters: filters.clone() }).collect()
    }
}

fn selective_index(query: &RunQuery) -> Option<ListIndex<'_>> {
    if let Some(parent) = query.parent {
        return Some(ListIndex::Parent(parent));
    }
    if let Some(root) = query.root {
        return Some(ListIndex::Root(root));
    }
    if !query.marks.is_empty() {
        return Some(ListIndex::Marked);
    }
    if let Some(flag) = query.flag {
        return Some(ListIndex::Flag(flag));
    }
    let (name, value) = query.tags.first_key_value()?;
    Some(ListIndex::Tag { name, value })
}

/// Adds the filters that no index supports, except for that of statuses and that of the workflow.
fn add_other_filters<'q>(query: &'q RunQuery, is_tag_indexed: bool, filters: &mut Vec<RowFilter<'q>>) {
    // The index of tags selects the first one.
    let tags = query.tags.iter().skip(usize::from(is_tag_indexed));
    filters.extend(tags.map(|(name, value)| RowFilter::Tag { name, value }));
    filters.extend((!query.marks.is_empty()).then_some(RowFilter::Marks(query.marks)));
    filters.extend(query.queue.as_deref().map(RowFilter::Queue));
    filters.extend(query.leaves_out_queued_steps().then_some(RowFilter::NotPrefix(STEP_PREFIX)));
    filters.extend(query.leaves_out_built_in().then_some(RowFilter::NotPrefix(BUILT_IN_PREFIX)));
    filters.extend(query.created_from.map(RowFilter::CreatedFrom));
    filters.extend(query.created_before.map(RowFilter::CreatedBefore));
    filters.extend(query.ended_from.map(RowFilter::EndedFrom));
    filters.extend(query.ended_before.map(RowFilter::EndedBefore));
    filters.extend(query.flag.map(RowFilter::Flag));
    filters.extend(query.text.as_ref().map(|text| RowFilter::Text(text.to_lowercase())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{BuiltInRuns, QueuedSteps};

    /// A query without the filter of built-in runs.
    fn query() -> RunQuery {
        let (queued_steps, built_in) = (QueuedSteps::Listed, BuiltInRuns::Listed);
        RunQuery { queued_steps, built_in, ..RunQuery::default() }
    }

    fn indexes(query: &RunQuery) -> Vec<ListIndex<'_>> {
        ListScan::all(query).into_iter().map(|scan| scan.index).collect()
    }

    #[test]
    fn a_list_is_read_from_the_index_with_the_fewest_runs() {
        let run = RunId::from_bits(5);
        let mut query = query();
        assert_eq!(indexes(&query), [ListIndex::All]);
        query.workflow = Some("mail".into());
        assert_eq!(indexes(&query), [ListIndex::Workflow("mail")]);
        query.statuses = vec![Status::Failed, Status::Waiting, Status::Failed];
        let mut statuses = [Status::Failed, Status::Waiting];
        statuses.sort_unstable();
        assert_eq!(indexes(&query), statuses.map(ListIndex::Status));
        query.tags.insert("team".into(), "sales".into());
        assert_eq!(indexes(&query), [ListIndex::Tag { name: "team", value: "sales" }]);
        query.flag = Some(FlagFilter::Retrying);
        assert_eq!(indexes(&query), [ListIndex::Flag(FlagFilter::Retrying)]);
        query.marks = Marks::PAUSED;
        assert_eq!(indexes(&query), [ListIndex::Marked]);
        query.root = Some(run);
        assert_eq!(indexes(&query), [ListIndex::Root(run)]);
        query.parent = Some(run);
        assert_eq!(indexes(&query), [ListIndex::Parent(run)]);
    }

    #[test]
    fn what_the_index_does_not_select_is_checked_row_by_row() {
        let tags = [("a", "1"), ("b", "2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let statuses = vec![Status::Waiting];
        let query = RunQuery { statuses, workflow: Some("mail".into()), tags: tags.into(), ..query() };
        let [scan] = &ListScan::all(&query)[..] else { panic!("one index") };
        let expected = [
            RowFilter::Statuses(vec![Status::Waiting]),
            RowFilter::Workflow("mail"),
            RowFilter::Tag { name: "b", value: "2" },
        ];
        assert_eq!(scan.row_filters, expected);
        let query = RunQuery { tags: Default::default(), ..query };
        assert_eq!(ListScan::all(&query)[0].row_filters, [RowFilter::Workflow("mail")]);
        let all = RunQuery { text: Some("ADA".into()), ..RunQuery::default() };
        let prefixes = [STEP_PREFIX, BUILT_IN_PREFIX].map(RowFilter::NotPrefix);
        let expected: Vec<_> = prefixes.into_iter().chain([RowFilter::Text("ada".into())]).collect();
        assert_eq!(ListScan::all(&all)[0].row_filters, expected);
    }
}
