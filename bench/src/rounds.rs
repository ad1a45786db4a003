//! The rounds: raw, then engine, again and again, so that both meet the same weather.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::Result;
use crate::against::Other;
use crate::cli::Plan;
use crate::env::{Env, WorldKind};
use crate::machine::Machine;
use crate::raw::Raw;
use crate::report::{Finding, Report, Settings, number};
use crate::server::Server;
use crate::workload::{ALL, Measurement, Workload};

/// Measures what the plan asks for, and prints the report.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    let folder = make_folder(plan.folder.as_deref())?;
    let server = match plan.world {
        // Beside the folder of the rounds, into which only this user may look.
        WorldKind::Postgres => Some(Server::start(parent(folder.path()))?),
        WorldKind::Sqlite | WorldKind::Memory => None,
    };
    let store = match &server {
        Some(server) => server.version()?,
        None => format!("SQLite {}", rusqlite::version()),
    };
    let machine = Machine::look(folder.path(), store);
    say_what_matters(plan, &machine);
    let mut other = plan.against.as_deref().map(Other::new);
    let (raw, findings) = measure(plan, folder.path(), server.as_ref(), other.as_mut())?;
    let settings = Settings {
        rounds: plan.rounds,
        folder: parent(folder.path()).display().to_string(),
        sync: plan.world.sync(),
        machine,
    };
    let report = Report::new(plan.world, settings, raw, &findings).against(other.as_ref());
    for finding in &findings {
        finding.tell_faults();
    }
    if plan.json {
        println!("{}", report.to_json()?)
    } else {
        print!("{}", report.to_table())
    }
    Ok(())
}

fn measure(
    plan: &Plan,
    folder: &Path,
    server: Option<&Server>,
    mut other: Option<&mut Other>,
) -> Result<(Raw, Vec<Finding>)> {
    let workloads = plan.workloads();
    let rows = workloads.iter().flat_map(|workload| workload.rows);
    let mut findings: Vec<Finding> = rows.map(Finding::of).collect();
    let mut raws = Vec::new();
    for round in 1..=plan.rounds {
        let mut next = findings.iter_mut();
        for workload in &workloads {
            eprint!("round {round}/{}  {:<3}", plan.rounds, workload.id);
            let (raw, measured) = measure_one(plan, workload, folder, server)
                .map_err(|error| format!("{} could not be measured: {error}", workload.id))?;
            raws.push(raw);
            for (row, measurement) in workload.rows.iter().zip(measured) {
                let (value, ratio) = (number(measurement.value), number(measurement.ratio));
                eprint!("  {value} {}, ratio {ratio}", row.unit);
                next.next().into_iter().for_each(|finding| finding.rounds.push(measurement.clone()));
            }
            eprintln!("  (C1 {} us, R100 {} rows/s)", number(raw.c1_us), number(raw.r100_rows_s));
            if let Some(other) = &mut other {
                other.measure(workload.id, plan.world, parent(folder))?;
            }
        }
    }
    Ok((Raw::median(&raws), findings))
}

/// Measures the raw limits, then the workload, in an empty folder and an empty database that are removed
/// afterwards.
fn measure_one(
    plan: &Plan,
    workload: &Workload,
    folder: &Path,
    server: Option<&Server>,
) -> Result<(Raw, Vec<Measurement>)> {
    let place = tempfile::Builder::new().prefix("round-").tempdir_in(folder)?;
    let database = server.map(Server::database).transpose()?;
    let raw = Raw::measure(place.path(), database.as_ref())?;
    let env = Env { world: plan.world, folder: place.path().into(), database, raw };
    Ok((raw, (workload.run)(&env)?))
}

/// A folder that vanishes, in the one asked for, or beside this program: that is in cargo's target
/// folder, on a disk, where the system's temporary folder may be memory.
fn make_folder(asked: Option<&Path>) -> Result<TempDir> {
    let base: PathBuf = match asked {
        Some(folder) => {
            let refused = |error| format!("the folder `{}` cannot be made: {error}", folder.display());
            std::fs::create_dir_all(folder).map_err(refused)?;
            folder.canonicalize()?
        }
        None => std::env::current_exe()?.parent().map_or_else(|| ".".into(), Path::to_path_buf),
    };
    let refused =
        |error| format!("`{}` cannot be written to: {error}; give another --folder", base.display());
    Ok(tempfile::Builder::new().prefix("outlast-bench-").tempdir_in(&base).map_err(refused)?)
}

fn parent(folder: &Path) -> &Path {
    folder.parent().unwrap_or(folder)
}

fn say_what_matters(plan: &Plan, machine: &Machine) {
    if cfg!(debug_assertions) {
        eprintln!("warning: this is a debug build, its figures mean nothing; use `cargo xtask bench`");
    }
    if machine.filesystem == "tmpfs" {
        eprintln!("warning: the folder is in memory, where a commit costs nothing; give another --folder");
    }
    if plan.world == WorldKind::Memory {
        eprintln!(
            "the targets and raw limits are those of SQLite, `{}` is only compared with them",
            plan.world
        );
    }
    let left_out = ALL.iter().filter(|workload| !workload.runs_on(plan.world) && plan.only.is_empty());
    for workload in left_out {
        eprintln!("{} makes no sense on `{}` and is left out", workload.id, plan.world);
    }
}
