use outlast_core::Timestamp;

use super::*;
use crate::read::page::page;

fn file() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    crate::schema::migrate::make_schema(&connection).unwrap();
    connection
}

/// How SQLite would read the parts of the list: to find the edge, and to read it.
fn plans(connection: &Connection, query: &RunQuery) -> Vec<String> {
    let place = Place::of(connection, query).unwrap().unwrap();
    let mut plans = Vec::new();
    for part in Part::all(query) {
        for (sql, looks) in [(sql::RUNS_EDGE, &[][..]), (&*sql::RUNS_PAGE, &part.looks)] {
            let sql = part.statement(sql, &place, looks);
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let values = vec![Value::Null; statement.parameter_count()];
            let steps = statement.query_map(params_from_iter(values), |row| row.get(3)).unwrap();
            plans.push(steps.collect::<Result<Vec<String>, _>>().unwrap().join("; "));
        }
    }
    plans
}

#[test]
fn every_list_comes_in_the_order_of_its_index() {
    let connection = file();
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
        (few.clone(), "INDEX runs_by_status (status=? AND id>? AND id<?)"),
        (RunQuery { statuses: Vec::new(), ..few }, "INDEX runs_by_workflow (workflow=? AND id>? AND id<?)"),
        (
            RunQuery { workflow: Some("w".into()), ..text },
            "INDEX runs_by_workflow (workflow=? AND id>? AND id<?)",
        ),
    ];
    for (query, index) in cases {
        if index.is_empty() {
            assert!(Place::of(&connection, &query).unwrap().is_none());
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

/// The runs of a list, page by page, and how many pages that took.
fn walk(connection: &Connection, mut query: RunQuery, is_forward: bool) -> (Vec<u128>, usize) {
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        pages += 1;
        let page = page(connection, &query).map_err(|refusal| refusal.into_world("x".as_ref())).unwrap();
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
fn what_is_rare_is_found_a_part_at_a_time_in_both_directions() {
    let connection = file();
    let rare: Vec<u128> = vec![3, 7_000, 7_001, 14_000];
    let transaction = connection.unchecked_transaction().unwrap();
    for run in 1..=14_000 {
        insert(&connection, run, if rare.contains(&run) { "rare" } else { "usual" });
    }
    transaction.commit().unwrap();
    let backwards: Vec<u128> = rare.iter().rev().copied().collect();
    let query = RunQuery { text: Some("RARE".into()), limit: 10, ..RunQuery::default() };
    assert_eq!(walk(&connection, query.clone(), true), (backwards.clone(), 3));
    let status = RunQuery { statuses: vec![Status::Pending], workflow: Some("rare".into()), ..query.clone() };
    assert_eq!(walk(&connection, status, true), (backwards, 3));
    let last = Some(RunId::from_bits(1));
    assert_eq!(walk(&connection, RunQuery { before: last, ..query.clone() }, false), (rare, 3));
    let nothing = RunQuery { text: Some("none".into()), ..query };
    assert_eq!(walk(&connection, nothing, true), (vec![], 3));
}

#[test]
fn a_page_is_full_as_long_as_there_is_enough() {
    let connection = file();
    let transaction = connection.unchecked_transaction().unwrap();
    (1..=6_000).for_each(|run| insert(&connection, run, "usual"));
    transaction.commit().unwrap();
    let query = RunQuery { text: Some("usual".into()), limit: 1_000, ..RunQuery::default() };
    let (found, pages) = walk(&connection, query, true);
    assert_eq!((found.len(), pages), (6_000, 6));
    assert!(found.is_sorted_by(|one, other| one > other));
}
