//! The report of measurements that nobody made.

use super::*;
use crate::workload::Target;

static FAST: Row = Row {
    id: "B1",
    what: "many steps; x R100",
    unit: "steps/s",
    target: Target::AtLeast(0.2).but_on_postgres(Target::AtLeast(0.5)),
};
static LATE: Row =
    Row { id: "B5 p99", what: "start to result", unit: "us", target: Target::AtMost(30.0).everywhere() };
static TOLD: Row = Row { id: "BW", what: "commits", unit: "commits", target: Target::Unlimited.everywhere() };

fn finding(row: &'static Row, rounds: &[(f64, f64)]) -> RowResults {
    let rounds = rounds.iter().map(|(value, ratio)| Measurement::relative(*value, *ratio)).collect();
    RowResults { row, rounds }
}

fn report(findings: &[RowResults]) -> Report {
    let machine = Machine {
        cpu: "Abacus".into(),
        cores: 2,
        memory_gib: 24.0,
        kernel: "6.1".into(),
        filesystem: "ext4".into(),
        load: 0.5,
        rustc: "rustc 1.95.0",
        store: "SQLite 3.51.3".into(),
        build: "release",
    };
    let settings = Settings { rounds: 3, folder: "/data".into(), sync: "full", machine };
    Report::new(WorldKind::Sqlite, settings, RawLimits { c1_us: 130.0, r100_rows_s: 250_000.0 }, findings)
}

#[test]
fn the_medians_of_value_and_ratio_are_taken_apart() {
    let entry = finding(&FAST, &[(10.0, 0.1), (30.0, 0.3), (20.0, 0.4)]).entry(WorldKind::Sqlite);
    assert_eq!((entry.value, entry.ratio, entry.target, entry.ok), (20.0, 0.3, Some(0.2), true));
}

#[test]
fn each_world_has_its_own_target_and_some_figures_have_none() {
    let entry = finding(&FAST, &[(10.0, 0.3)]).entry(WorldKind::Postgres);
    assert_eq!((entry.target, entry.ok, entry.wanted.as_str()), (Some(0.5), false, ">= 0.5"));
    let row_without_target = finding(&TOLD, &[(10.0, 10.0)]).entry(WorldKind::Postgres);
    assert_eq!(
        (
            row_without_target.target,
            row_without_target.ok,
            row_without_target.verdict,
            row_without_target.wanted.as_str()
        ),
        (None, true, "", "")
    );
}

#[test]
fn a_missed_target_and_a_wrong_result_are_told_apart() {
    let missed = finding(&LATE, &[(9_000.0, 69.0)]).entry(WorldKind::Sqlite);
    assert_eq!((missed.ok, missed.verdict), (false, "MISS"));
    let mut wrong = finding(&LATE, &[(1.0, 1.0), (1.0, 1.0)]);
    wrong.rounds[1].faults.push("a step was lost".into());
    let wrong = wrong.entry(WorldKind::Sqlite);
    assert_eq!((wrong.ok, wrong.verdict), (false, "WRONG"));
}

#[test]
fn the_json_is_one_object_of_the_promised_shape() {
    let json = report(&[finding(&FAST, &[(50_000.0, 0.25)])]).to_json().unwrap();
    assert!(!json.contains('\n'));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&json), ["raw", "results", "settings", "world"]);
    assert_eq!(json["world"], "sqlite");
    assert_eq!(json["settings"]["sync"], "full");
    assert_eq!(json["settings"]["cpu"], "Abacus");
    assert_eq!(json["raw"], serde_json::json!({ "c1_us": 130.0, "r100_rows_s": 250_000.0 }));
    let result = serde_json::json!({
        "id": "B1", "what": "many steps; x R100", "value": 50_000.0, "unit": "steps/s",
        "ratio": 0.25, "target": 0.2, "ok": true,
    });
    assert_eq!(json["results"], serde_json::json!([result]));
}

#[test]
fn the_table_is_aligned_and_names_the_machine() {
    let table = report(&[finding(&FAST, &[(51_234.5, 0.21)]), finding(&LATE, &[(9_000.0, 69.0)])]).to_table();
    let expected = "\
Abacus, 2 cores, 24 GiB, Linux 6.1, ext4, load 0.5
rustc 1.95.0, release, SQLite 3.51.3, mimalloc
world sqlite, sync full, in /data
median of 3 round(s); raw limits of the disk: C1 130 us, R100 250,000 rows/s

id      what                         value  ratio  target
B1      many steps; x R100  51,234 steps/s   0.21  >= 0.2  ok
B5 p99  start to result           9,000 us     69  <= 30   MISS
";
    assert_eq!(table, expected);
}

#[test]
fn numbers_are_short_and_grouped() {
    let cases = [
        (0.2, "0.2"),
        (0.0, "0"),
        (0.2149, "0.215"),
        (1.604, "1.6"),
        (12.34, "12.3"),
        (123.4, "123"),
        (999.6, "1,000"),
        (1_234_567.0, "1,234,567"),
        (-1_234.0, "-1,234"),
        (-123.0, "-123"),
    ];
    for (value, text) in cases {
        assert_eq!(number(value), text);
    }
}
