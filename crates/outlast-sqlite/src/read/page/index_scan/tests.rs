use outlast_core::{Status, Timestamp};

use super::*;
use crate::read::page::{id_range, page};

fn open_in_memory() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    crate::schema::migrate::create_schema(&connection).unwrap();
    connection
}

/// The query plans of all statements for the list: those that find the end of the scan, and those that read it.
fn plans(connection: &Connection, query: &RunQuery) -> Vec<String> {
    let range = id_range(connection, query).unwrap().unwrap();
    let mut plans = Vec::new();
    for scan in IndexScan::all(query) {
        for (sql, filters) in [(sql::RUNS_SCAN_END, &[][..]), (&*sql::RUNS_PAGE, &scan.row_filters)] {
            let sql = scan.statement(sql, &range, filters);
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let values = vec![Value::Null; statement.parameter_count()];
            let steps = statement.query_map(params_from_iter(values), |row| row.get(3)).unwrap();
            plans.push(steps.collect::<Result<Vec<String>, _>>().unwrap().join("; "));
        }
    }
    plans
}

#[test]
fn every_list_is_read_in_the_order_of_its_index() {
    let connection = open_in_memory();
    let run = Some(RunId::from_bits(1 << 100));
    let tags: outlast_core::Tags = [("a".into(), "1".into()), ("b".into(), "2".into())].into();
    let statuses = vec![Status::Waiting, Status::Completed];
    let few = RunQuery { statuses, workflow: Some("w".into()), after: run, ..RunQuery::default() };
    let text = RunQuery { text: Some("x".into()), ..RunQuery::default() };
    let day = Some(Timestamp::from_micros(86_400_000_000));
    let cases = [
        (RunQuery { before: run, ..RunQuery::default() }, "runs USING PRIMARY KEY (id>? AND id<?)"),
        (RunQuery { before: run, after: run, ..RunQuery::default() }, ""),
        (RunQuery { after: run, ..text.clone() }, "runs USING PRIMARY KEY (id>? AND id<?)"),
        (RunQuery { created_from: day, after: run, ..RunQuery::default() }, "PRIMARY KEY (id>? AND id<?)"),
        (RunQuery { parent: run, ..few.clone() }, "INDEX runs_by_parent (parent=? AND id>? AND id<?)"),
        (RunQuery { root: run, ..few.clone() }, "INDEX runs_by_root (root=? AND id>? AND id<?)"),
        (RunQuery { tags, ..few.clone() }, "INDEX tags_by_value (name=? AND value=? AND run>? AND run<?)"),
        (RunQuery { flag: Some(FlagFilter::Retrying), ..few.clone() }, "INDEX runs_retrying (id>? AND id<?)"),
        (
            RunQuery { flag: Some(FlagFilter::Cancelling), ..few.clone() },
            "INDEX runs_cancelling (id>? AND id<?)",
        ),
        (RunQuery { ended_before: day, ..RunQuery::default() }, "PRIMARY KEY (id>? AND id<?)"),
        (few.clone(), "INDEX runs_by_status (status=? AND id>? AND id<?)"),
        (RunQuery { statuses: Vec::new(), ..few }, "INDEX runs_by_workflow (workflow=? AND id>? AND id<?)"),
        (
            RunQuery { workflow: Some("w".into()), ..text },
            "INDEX runs_by_workflow (workflow=? AND id>? AND id<?)",
        ),
    ];
    for (query, index) in cases {
        if index.is_empty() {
            assert!(id_range(&connection, &query).unwrap().is_none());
            continue;
        }
        for plan in plans(&connection, &query) {
            assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{query:?}: {plan}");
        }
    }
}

fn insert(connection: &Connection, run: u128, workflow: &str) {
    let sql = "INSERT INTO runs (queue, priority, id, workflow, version, format, status, turn, next_seq, turn_at, created_at, \
               updated_at) VALUES ('default', 0, ?1, ?2, 1, 1, 'pending', 'turn_00000000000000000000000000', 1, 0, 0, 0)";
    connection.execute(sql, [RunId::from_bits(run).to_string(), workflow.into()]).unwrap();
}

/// Reads all pages of a list. Returns its runs, and the number of pages.
fn read_pages(connection: &Connection, mut query: RunQuery, is_forward: bool) -> (Vec<u128>, usize) {
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        pages += 1;
        let page =
            page(connection, &query).map_err(|refusal| refusal.into_world_error("x".as_ref())).unwrap();
        let ids = page.runs.iter().map(|run| run.id.bits());
        let next = if is_forward {
            found.extend(ids);
            query.after = page.next;
            page.next
        } else {
            found.extend(ids.rev());
            query.before = page.prev;
            page.prev
        };
        if next.is_none() {
            return (found, pages);
        }
    }
}

#[test]
fn rare_runs_are_found_in_several_pages_in_both_directions() {
    let connection = open_in_memory();
    let rare: Vec<u128> = vec![3, 7_000, 7_001, 14_000];
    let transaction = connection.unchecked_transaction().unwrap();
    for run in 1..=14_000 {
        insert(&connection, run, if rare.contains(&run) { "rare" } else { "usual" });
    }
    transaction.commit().unwrap();
    let backwards: Vec<u128> = rare.iter().rev().copied().collect();
    let query = RunQuery { text: Some("RARE".into()), limit: 10, ..RunQuery::default() };
    assert_eq!(read_pages(&connection, query.clone(), true), (backwards.clone(), 3));
    let status = RunQuery { statuses: vec![Status::Pending], workflow: Some("rare".into()), ..query.clone() };
    assert_eq!(read_pages(&connection, status, true), (backwards, 3));
    let last = Some(RunId::from_bits(1));
    assert_eq!(read_pages(&connection, RunQuery { before: last, ..query.clone() }, false), (rare, 3));
    let nothing = RunQuery { text: Some("none".into()), ..query };
    assert_eq!(read_pages(&connection, nothing, true), (vec![], 3));
}

#[test]
fn a_page_is_full_while_enough_runs_match() {
    let connection = open_in_memory();
    let transaction = connection.unchecked_transaction().unwrap();
    (1..=6_000).for_each(|run| insert(&connection, run, "usual"));
    transaction.commit().unwrap();
    let query = RunQuery { text: Some("usual".into()), limit: 1_000, ..RunQuery::default() };
    let (found, pages) = read_pages(&connection, query, true);
    assert_eq!((found.len(), pages), (6_000, 6));
    assert!(found.is_sorted_by(|one, other| one > other));
}
