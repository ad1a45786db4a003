//! The checks of `doctor`.

use std::collections::BTreeSet;
use std::time::Duration;

use outlast::sqlite::SqliteUrl;
use outlast::{Status, Timestamp};
use outlast_api::{
    CountsJson, PageRequest, Problem, RunFilter, RunJson, RunListOrder, WorkerJson, WorldJson,
};

use super::DoctorFinding;
use crate::output::times;
use crate::surface::Surface;

/// Clocks may differ by this much.
const SKEW_MAX: Duration = Duration::from_secs(2);

/// An answer that takes longer is worth a warning.
const LATENCY_MAX: Duration = Duration::from_millis(500);

/// The number of pending runs that are looked at.
const PENDING_MAX: usize = 200;

/// A SQLite file: may others write to it?
pub(super) fn of_file(url: &str) -> Option<DoctorFinding> {
    let path = SqliteUrl::parse(url).ok().filter(|_| url.starts_with("sqlite:"))?.path;
    let data = std::fs::metadata(&path).ok()?;
    if data.permissions().readonly() {
        return Some(DoctorFinding::bad(
            "permissions",
            format!("{} is read-only; workers need to write", path.display()),
        ));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if data.permissions().mode() & 0o002 != 0 {
            let text = format!("everybody may write to {}; run `chmod o-w {0}`", path.display());
            return Some(DoctorFinding::warning("permissions", text));
        }
    }
    Some(DoctorFinding::good("permissions", format!("{} is writable", path.display())))
}

/// How long an answer takes.
pub(super) fn of_latency(took: Duration) -> DoctorFinding {
    let text = format!("answers in {}", times::duration(took));
    if took > LATENCY_MAX {
        return DoctorFinding::warning(
            "connection",
            format!("{text}; each step of a run waits for such calls"),
        );
    }
    DoctorFinding::good("connection", text)
}

/// The difference between the clocks of this machine and the world.
pub(super) fn of_clock(begin: Timestamp, end: Timestamp, world: Timestamp) -> DoctorFinding {
    let difference = match world {
        world if world < begin => begin.since(world),
        world if world > end => world.since(end),
        _ => Duration::ZERO,
    };
    if difference > SKEW_MAX {
        let text = format!(
            "the clock of the world differs by {}; synchronise both with NTP",
            times::duration(difference)
        );
        return DoctorFinding::warning("clock", text);
    }
    DoctorFinding::good("clock", "the clocks agree")
}

/// What an acknowledged change survives.
pub(super) fn of_durability(world: &WorldJson) -> DoctorFinding {
    let text = &world.durability;
    let is_weak = world.kind == "memory" || text.contains("may lose");
    if is_weak {
        return DoctorFinding::warning(
            "durability",
            format!("{text}; remove `sync=normal` from the URL for production"),
        );
    }
    DoctorFinding::good("durability", text.clone())
}

/// The workers and their builds.
pub(super) fn of_workers(now: Timestamp, workers: &[WorkerJson], counts: &CountsJson) -> Vec<DoctorFinding> {
    let open: u64 = ["pending", "running"].iter().filter_map(|status| counts.counts.get(*status)).sum();
    if workers.is_empty() {
        return vec![match open {
            0 => DoctorFinding::warning("workers", "no worker has joined; start your program"),
            _ => DoctorFinding::bad(
                "workers",
                format!("no worker has joined, but {open} runs want one; start your program"),
            ),
        }];
    }
    let mut findings = vec![DoctorFinding::good("workers", format!("{} joined", workers.len()))];
    let builds: BTreeSet<_> = workers.iter().map(|worker| worker.build.as_str()).collect();
    if builds.len() > 1 {
        let text = format!("{} builds work at the same time; finish the rollout", builds.len());
        findings.push(DoctorFinding::warning("builds", text));
    }
    // A world may add to the version, as in `0.1.0, schema 10`.
    let libraries = workers.iter().filter_map(|worker| worker.library.as_deref()?.split(',').next());
    let libraries: BTreeSet<_> = libraries.map(str::trim).collect();
    if libraries.iter().any(|version| *version != env!("CARGO_PKG_VERSION")) {
        let text = format!("workers use Outlast {libraries:?}, this program {}", env!("CARGO_PKG_VERSION"));
        findings.push(DoctorFinding::warning("versions", text));
    }
    for worker in workers.iter().filter(|worker| worker.expires_at.0 < now) {
        let text = format!(
            "{}:{} has not beaten since {}",
            worker.host,
            worker.pid,
            times::ago(now, worker.beat_at.0)
        );
        findings.push(DoctorFinding::warning("workers", text));
    }
    findings
}

/// Runs that need somebody.
pub(super) fn of_runs(counts: &CountsJson) -> Vec<DoctorFinding> {
    let count = |status: &str| counts.counts.get(status).copied().unwrap_or(0);
    let mut findings = Vec::new();
    match count("stuck") {
        0 => findings.push(DoctorFinding::good("runs", "none is stuck")),
        stuck => {
            let runs = if stuck == 1 { "1 run is".into() } else { format!("{stuck} runs are") };
            let text = format!("{runs} stuck; see `outlast list -s stuck`, and deploy a fix");
            findings.push(DoctorFinding::bad("runs", text));
        }
    }
    let paused = counts.marks.get("paused").copied().unwrap_or(0);
    if paused > 0 {
        let runs = if paused == 1 { "1 run is".into() } else { format!("{paused} runs are") };
        let text = format!("{runs} paused; see `outlast list --mark paused`");
        findings.push(DoctorFinding::warning("runs", text));
    }
    findings
}

/// Pending runs that no joined worker would take: of the oldest ones.
pub(super) async fn unserved(
    surface: &dyn Surface,
    workers: &[WorkerJson],
) -> Result<Vec<DoctorFinding>, Problem> {
    if workers.is_empty() {
        return Ok(Vec::new());
    }
    let filter = RunFilter {
        statuses: vec![Status::Pending],
        order: RunListOrder::OldestFirst,
        page: PageRequest { limit: Some(PENDING_MAX), cursor: None },
        ..RunFilter::default()
    };
    Ok(unserved_runs(&surface.runs(&filter).await?.items, workers))
}

pub(super) fn unserved_runs(pending: &[RunJson], workers: &[WorkerJson]) -> Vec<DoctorFinding> {
    let mut queues = BTreeSet::new();
    let mut codes = BTreeSet::new();
    for run in pending {
        let serving: Vec<_> = workers.iter().filter(|worker| worker.queues.contains(&run.queue)).collect();
        let has_code = |worker: &&&WorkerJson| {
            worker.workflows.iter().any(|code| code.workflow == run.workflow && code.version == run.version)
        };
        if serving.is_empty() {
            queues.insert(run.queue.clone());
        } else if serving.iter().find(has_code).is_none() {
            codes.insert(format!("{} v{}", run.workflow, run.version));
        }
    }
    let queues = queues.into_iter().map(|queue| {
        DoctorFinding::bad(
            "queues",
            format!("nobody serves queue {queue}, and runs wait in it; start a worker with it"),
        )
    });
    let codes = codes.into_iter().map(|code| {
        DoctorFinding::bad(
            "code",
            format!("no worker has code for {code}, and runs of it wait; deploy a build with it"),
        )
    });
    queues.chain(codes).collect()
}
