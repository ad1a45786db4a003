use std::collections::BTreeMap;
use std::time::Duration;

use outlast::core::SessionId;
use outlast_api::{CountsJson, RunJson, WorkerJson, WorkflowCodeJson, WorldJson};

use super::checks;
use super::{DoctorFinding, Severity};
use crate::fixtures::{now, run};

fn counts(counts: &[(&str, u64)], marks: &[(&str, u64)]) -> CountsJson {
    let map =
        |pairs: &[(&str, u64)]| pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    CountsJson { counts: map(counts), marks: map(marks), flags: BTreeMap::new(), as_of: now().into() }
}

fn worker(build: &str, library: &str) -> WorkerJson {
    WorkerJson {
        session: SessionId::from_bits(1),
        host: "host".into(),
        pid: 7,
        build: build.into(),
        library: Some(library.into()),
        status: "working".into(),
        joined_at: now().into(),
        beat_at: now().into(),
        expires_at: now().plus(Duration::from_secs(10)).into(),
        queues: vec!["default".into()],
        workflows: vec![WorkflowCodeJson { workflow: "checkout".into(), version: 1 }],
        held: 0,
        live: 0,
        attempts: 0,
        steps: BTreeMap::new(),
        turns: 0,
        replays: 0,
        completed: 0,
        failed: 0,
    }
}

fn pending(workflow: &str, queue: &str) -> RunJson {
    RunJson { workflow: workflow.into(), queue: queue.into(), ..run("pending") }
}

fn severities(findings: &[DoctorFinding]) -> Vec<(&str, Severity)> {
    findings.iter().map(|finding| (finding.check, finding.severity)).collect()
}

#[test]
fn a_clock_that_differs_is_found() {
    let end = now().plus(Duration::from_millis(20));
    let check = |world| checks::of_clock(now(), end, world).severity;
    assert_eq!(check(now().plus(Duration::from_millis(10))), Severity::Good);
    assert_eq!(check(now().minus(Duration::from_secs(1))), Severity::Good);
    assert_eq!(check(now().minus(Duration::from_secs(5))), Severity::Warning);
    assert_eq!(check(now().plus(Duration::from_secs(5))), Severity::Warning);
    assert_eq!(checks::of_latency(Duration::from_secs(1)).severity, Severity::Warning);
}

#[test]
fn a_world_that_may_lose_commits_is_found() {
    let world = |durability: &str| WorldJson {
        kind: "sqlite".into(),
        place: "shop.db".into(),
        durability: durability.into(),
        hints: String::new(),
        now: now().into(),
        library: String::new(),
    };
    let weak = "a power failure may lose the last commits";
    assert_eq!(checks::of_durability(&world(weak)).severity, Severity::Warning);
    assert_eq!(checks::of_durability(&world("a power failure")).severity, Severity::Good);
}

#[test]
fn missing_workers_and_mixed_builds_are_found() {
    let version = env!("CARGO_PKG_VERSION");
    let found = |workers: &[WorkerJson], open| {
        let findings = checks::of_workers(now(), workers, &counts(&[("pending", open)], &[]));
        severities(&findings)
            .iter()
            .map(|(check, severity)| (check.to_string(), *severity))
            .collect::<Vec<_>>()
    };
    let one = |check: &str, severity| (check.to_owned(), severity);
    assert_eq!(found(&[], 0), [one("workers", Severity::Warning)]);
    assert_eq!(found(&[], 3), [one("workers", Severity::Bad)]);
    assert_eq!(found(&[worker("a", version)], 3), [one("workers", Severity::Good)]);
    let mixed = found(&[worker("a", version), worker("b", "0.0.1")], 0);
    let expected = ["workers", "builds", "versions"];
    assert_eq!(mixed.iter().map(|(check, _)| check.as_str()).collect::<Vec<_>>(), expected);
}

#[test]
fn runs_that_nobody_would_take_are_found() {
    let workers = [worker("a", "0.1.0")];
    let found = |runs: &[RunJson]| {
        let findings = checks::unserved_runs(runs, &workers);
        findings.iter().map(|finding| finding.check).collect::<Vec<_>>()
    };
    assert!(found(&[pending("checkout", "default")]).is_empty());
    assert_eq!(found(&[pending("checkout", "reports")]), ["queues"]);
    assert_eq!(found(&[pending("import", "default"), pending("import", "default")]), ["code"]);
}

#[test]
fn stuck_and_paused_runs_are_found() {
    let findings = checks::of_runs(&counts(&[("stuck", 2)], &[("paused", 1)]));
    assert_eq!(severities(&findings), [("runs", Severity::Bad), ("runs", Severity::Warning)]);
}

#[cfg(unix)]
#[test]
fn a_file_that_everybody_may_write_is_found() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    std::fs::write(&file, "x").unwrap();
    let check = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        checks::of_file(&format!("sqlite:{}", file.display())).unwrap().severity
    };
    assert_eq!(check(0o600), Severity::Good);
    assert_eq!(check(0o666), Severity::Warning);
    assert_eq!(check(0o444), Severity::Bad);
}

#[test]
fn a_full_disk_and_a_network_file_system_are_found() {
    let folder = std::path::Path::new("/data");
    let severity = |megabytes: u64| super::place::of_space(folder, megabytes << 20).severity;
    assert_eq!(
        (severity(10), severity(1_000), severity(9_000)),
        (Severity::Bad, Severity::Warning, Severity::Good)
    );
    assert!(super::place::of_file_system(folder, 0x6969).unwrap().message.contains("Postgres"));
    // The number may be negative where it has 32 bits.
    assert!(super::place::of_file_system(folder, 0xffff_ffff_ff53_4d42).is_some());
    assert!(super::place::of_file_system(folder, 0xef53).is_none(), "ext4");
}

#[test]
fn a_key_that_is_sent_without_encryption_is_found() {
    let found = |server: &str| super::place::of_server(server, true).is_some();
    assert!(found("http://outlast.example:4700/ops") && found("http://10.0.0.7"));
    assert!(!found("http://127.0.0.1:4700") && !found("http://localhost") && !found("http://[::1]:4700"));
    assert!(!found("https://outlast.example"));
    assert!(super::place::of_server("http://10.0.0.7", false).is_none());
}
