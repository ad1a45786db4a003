//! The addresses of all screens, for the tests with and without a browser.

use outlast::RunId;

/// The screens that need no run.
const SCREENS: [&str; 23] = [
    "/runs",
    "/runs?status=failed",
    "/runs?open=true",
    "/runs?text=nothing",
    "/runs?status=failed&tag=customer:ada",
    "/runs/new",
    "/runs/bulk?bulk=pause&workflow=approval",
    "/failures",
    "/failures?tab=stuck",
    "/workflows",
    "/workflows/checkout",
    "/schedules",
    "/schedules/new",
    "/schedules/hourly",
    "/schedules/hourly/edit",
    "/schedules/hourly/pause",
    "/hooks",
    "/queues",
    "/queues/default",
    "/workers",
    "/audit",
    "/settings",
    "/settings/prune",
];

/// The schedule that some of them show.
pub(crate) const SCHEDULE: &str = "hourly";

/// The screens of a run, after its address.
const OF_RUN: [&str; 11] = [
    "",
    "?op=0",
    "?view=table",
    "?axis=linear",
    "/events",
    "/data",
    "/children",
    "/ops/0",
    "/fork",
    "/cancel",
    "/restart",
];

/// The screens of a run.
#[allow(dead_code, reason = "not every test binary uses it")]
pub(crate) fn of_run(run: RunId) -> impl Iterator<Item = String> {
    OF_RUN.into_iter().map(move |rest| format!("/runs/{run}{rest}"))
}

/// All screens, and those of these runs.
pub(crate) fn paths(runs: &[RunId]) -> Vec<String> {
    let of_run = |run: &RunId| {
        let selected = format!("/runs/selected?action=restart&run={run}");
        OF_RUN.map(|rest| format!("/runs/{run}{rest}")).into_iter().chain([selected]).collect::<Vec<_>>()
    };
    SCREENS.map(str::to_owned).into_iter().chain(runs.iter().flat_map(of_run)).collect()
}
