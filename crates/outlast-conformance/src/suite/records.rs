//! Records: documents beside the runs, by space and id.

use outlast_core::limits::{RECORD_BYTES_MAX, RECORD_ID_BYTES_MAX, RECORDS_BATCH_MAX, RECORDS_MAX};
use outlast_core::{ListOrder, NewRecord, RecordQuery};

use super::{Case, assert_refused};

fn new(id: &str, body: &str) -> NewRecord {
    NewRecord { id: id.into(), body: body.into() }
}

async fn body(case: &Case, space: &str, id: &str) -> Option<String> {
    case.world.record(space, id).await.unwrap().map(|record| record.body)
}

/// A record is stored in its space, with the time, and replaced by another one with its id.
pub async fn a_record_is_stored_and_replaced(case: Case) {
    let long = "ü".repeat(RECORD_BYTES_MAX / 2);
    case.world.put_records("s", vec![new("a", "1"), new("b", &long)]).await.unwrap();
    let stored_at = case.clock.now();
    case.world.put_records("other", vec![new("a", "2")]).await.unwrap();
    let stored = case.world.record("s", "a").await.unwrap().unwrap();
    assert_eq!((stored.id.as_str(), stored.body.as_str(), stored.at), ("a", "1", stored_at));
    assert_eq!(body(&case, "s", "b").await, Some(long));
    case.clock.advance("1s");
    case.world.put_records("s", vec![new("a", "3")]).await.unwrap();
    let stored = case.world.record("s", "a").await.unwrap().unwrap();
    assert_eq!((stored.body.as_str(), stored.at), ("3", case.clock.now()));
    assert_eq!(body(&case, "other", "a").await.as_deref(), Some("2"));
    assert_eq!(body(&case, "s", "c").await, None);
    assert_eq!(body(&case, "none", "a").await, None);
}

/// Of several callers that store a record unless it exists, one stores it.
pub async fn a_record_is_stored_only_once_if_absent(case: Case) {
    let (first, second) = (case.world.clone(), case.other_handle().await);
    let put = |world: std::sync::Arc<dyn outlast_core::World>, text: &'static str| async move {
        world.put_record_if_absent("s", new("secret", text)).await.unwrap()
    };
    let (one, two) = futures_util::future::join(put(first, "1"), put(second, "2")).await;
    assert!(one != two, "one of them stores it");
    let expected = if one { "1" } else { "2" };
    assert_eq!(body(&case, "s", "secret").await.as_deref(), Some(expected));
}

/// A page of a space has the records behind an id, in either direction, and none of other spaces.
pub async fn records_are_listed_in_the_order_of_their_ids(case: Case) {
    for space in ["r", "s", "t"] {
        let records = ["b", "a", "ä", "B", "c"].map(|id| new(id, space));
        case.world.put_records(space, records.into()).await.unwrap();
    }
    let list = async |after: Option<&str>, order, limit| {
        let query =
            RecordQuery { after: after.map(str::to_owned), order, limit, ..RecordQuery::of_space("s") };
        let records = case.world.records(query).await.unwrap();
        assert!(records.iter().all(|record| record.body == "s"));
        records.into_iter().map(|record| record.id).collect::<Vec<_>>()
    };
    let (up, down) = (ListOrder::OldestFirst, ListOrder::NewestFirst);
    assert_eq!(list(None, up, 10).await, ["B", "a", "b", "c", "ä"]);
    assert_eq!(list(None, down, 2).await, ["ä", "c"]);
    assert_eq!(list(Some("a"), up, 2).await, ["b", "c"]);
    assert_eq!(list(Some("aa"), down, 10).await, ["a", "B"]);
    assert!(list(Some("ä"), up, 10).await.is_empty());
    assert!(list(None, up, 0).await.is_empty());
    let others = case.world.records(RecordQuery::of_space("u")).await.unwrap();
    assert_eq!(others, []);
}

/// Records are deleted, and those that do not exist are not counted.
pub async fn records_are_deleted(case: Case) {
    case.world.put_records("s", vec![new("a", "1"), new("b", "2"), new("c", "3")]).await.unwrap();
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    assert_eq!(case.world.delete_records("s", &ids(&["a", "c", "x"])).await, Ok(2));
    assert_eq!(case.world.delete_records("s", &ids(&["a"])).await, Ok(0));
    assert_eq!(case.world.delete_records("none", &ids(&["b"])).await, Ok(0));
    assert_eq!(case.world.records(RecordQuery::of_space("s")).await.unwrap().len(), 1);
    assert_refused!(
        case.world.delete_records("s", &vec!["a".to_owned(); RECORDS_BATCH_MAX + 1]).await,
        Limit
    );
}

/// A record without an id, with too large a text, or with NUL is refused, and so is its whole batch.
pub async fn a_bad_record_is_refused_and_nothing_is_stored(case: Case) {
    let put = async |space: &str, bad| case.world.put_records(space, vec![new("good", ""), bad]).await;
    assert_refused!(put("s", new("", "")).await, Invalid);
    assert_refused!(put("s", new("good", "")).await, Invalid);
    assert_refused!(put("s", new("a\0", "")).await, Invalid);
    assert_refused!(put("s", new(&"i".repeat(RECORD_ID_BYTES_MAX + 1), "")).await, Limit);
    assert_refused!(put("s", new("a", &"b".repeat(RECORD_BYTES_MAX + 1))).await, Limit);
    assert_refused!(put("", new("a", "")).await, Invalid);
    assert_refused!(case.world.put_record_if_absent("s", new("", "")).await, Invalid);
    let many = (0..=RECORDS_BATCH_MAX).map(|number| new(&number.to_string(), "")).collect();
    assert_refused!(case.world.put_records("s", many).await, Limit);
    assert_eq!(case.world.records(RecordQuery::of_space("s")).await.unwrap(), []);
}

/// A space that is full takes no new records; existing ones can be replaced, and other spaces are not affected.
pub async fn a_space_has_a_limit_of_records(case: Case) {
    for batch in 0..RECORDS_MAX / RECORDS_BATCH_MAX {
        let records = (0..RECORDS_BATCH_MAX).map(|number| new(&format!("{batch}-{number}"), ""));
        case.world.put_records("s", records.collect()).await.unwrap();
    }
    assert_refused!(case.world.put_records("s", vec![new("new", ""), new("0-0", "replaced")]).await, Limit);
    assert_refused!(case.world.put_record_if_absent("s", new("new", "")).await, Limit);
    assert_eq!(
        body(&case, "s", "0-0").await.as_deref(),
        Some(""),
        "a batch is stored as a whole or not at all"
    );
    assert_eq!(case.world.put_record_if_absent("s", new("0-0", "x")).await, Ok(false));
    case.world.put_records("s", vec![new("0-0", "replaced")]).await.unwrap();
    case.world.put_records("t", vec![new("new", "")]).await.unwrap();
    assert_eq!(case.world.delete_records("s", &["0-1".into()]).await, Ok(1));
    case.world.put_records("s", vec![new("new", "")]).await.unwrap();
}
