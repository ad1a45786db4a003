//! The rounds: raw limits and engine are measured alternately, so that both see the same load of the machine.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::Result;
use crate::baseline::ComparedPrograms;
use crate::cli::Options;
use crate::environment::{Environment, WorldKind};
use crate::machine::Machine;
use crate::raw::RawLimits;
use crate::report::{Report, RowResults, Settings, number};
use crate::server::Server;
use crate::workload::{ALL, Measurement, Workload};

/// Measures the selected workloads, and prints the report.
pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = make_folder(options.folder.as_deref())?;
    let server = match options.world {
        // Beside the folder of the rounds, which only this user may read.
        WorldKind::Postgres => Some(Server::start(parent(folder.path()))?),
        WorldKind::Sqlite | WorldKind::Memory => None,
    };
    let store = match &server {
        Some(server) => server.version()?,
        None => format!("SQLite {}", rusqlite::version()),
    };
    let machine = Machine::read_now(folder.path(), store);
    print_warnings(options, &machine);
    let mut compared = options.against.as_deref().map(ComparedPrograms::new).transpose()?;
    let (raw, findings) = measure(options, folder.path(), server.as_ref(), compared.as_mut())?;
    let settings = Settings {
        rounds: options.rounds,
        folder: parent(folder.path()).display().to_string(),
        sync: options.world.sync(),
        machine,
    };
    let report = Report::new(options.world, settings, raw, &findings).against(compared.as_ref());
    for finding in &findings {
        finding.print_faults();
    }
    if options.json {
        println!("{}", report.to_json()?)
    } else {
        print!("{}", report.to_table())
    }
    Ok(())
}

fn measure(
    options: &Options,
    folder: &Path,
    server: Option<&Server>,
    mut compared: Option<&mut ComparedPrograms>,
) -> Result<(RawLimits, Vec<RowResults>)> {
    let workloads = options.workloads();
    let rows = workloads.iter().flat_map(|workload| workload.rows);
    let mut findings: Vec<RowResults> = rows.map(RowResults::of).collect();
    let mut raws = Vec::new();
    for round in 1..=options.rounds {
        let mut next = findings.iter_mut();
        for workload in &workloads {
            eprint!("round {round}/{}  {:<3} {}", options.rounds, workload.id, workload.name);
            let (raw, measured) = measure_one(options, workload, folder, server)
                .map_err(|error| format!("{} could not be measured: {error}", workload.id))?;
            raws.push(raw);
            for (row, measurement) in workload.rows.iter().zip(measured) {
                let (value, ratio) = (number(measurement.value), number(measurement.ratio));
                eprint!("  {value} {}, ratio {ratio}", row.unit);
                next.next().into_iter().for_each(|finding| finding.rounds.push(measurement.clone()));
            }
            eprintln!("  (C1 {} us, R100 {} rows/s)", number(raw.c1_us), number(raw.r100_rows_s));
            if let Some(compared) = &mut compared {
                compared.measure(workload.id, round, options.world, parent(folder))?;
            }
        }
    }
    Ok((RawLimits::median(&raws), findings))
}

/// Measures the raw limits, then the workload, in an empty folder and an empty database that are removed
/// afterwards.
fn measure_one(
    options: &Options,
    workload: &Workload,
    folder: &Path,
    server: Option<&Server>,
) -> Result<(RawLimits, Vec<Measurement>)> {
    let place = tempfile::Builder::new().prefix("round-").tempdir_in(folder)?;
    let database = server.map(Server::database).transpose()?;
    let raw = RawLimits::measure(place.path(), database.as_ref())?;
    let env = Environment { world: options.world, folder: place.path().into(), database, raw };
    Ok((raw, (workload.run)(&env)?))
}

/// A temporary folder in `asked`, or beside this program: that is in cargo's target folder, on a disk, while the
/// system's temporary folder may be in memory.
fn make_folder(asked: Option<&Path>) -> Result<TempDir> {
    let base: PathBuf = match asked {
        Some(folder) => {
            let refused = |error| format!("the folder `{}` cannot be created: {error}", folder.display());
            std::fs::create_dir_all(folder).map_err(refused)?;
            folder.canonicalize()?
        }
        None => std::env::current_exe()?.parent().map_or_else(|| ".".into(), Path::to_path_buf),
    };
    let refused =
        |error| format!("`{}` cannot be written to: {error}; choose another --folder", base.display());
    Ok(tempfile::Builder::new().prefix("outlast-bench-").tempdir_in(&base).map_err(refused)?)
}

fn parent(folder: &Path) -> &Path {
    folder.parent().unwrap_or(folder)
}

fn print_warnings(options: &Options, machine: &Machine) {
    if cfg!(debug_assertions) {
        eprintln!("warning: the figures of this debug build are meaningless; use `cargo xtask bench`");
    }
    if machine.filesystem == "tmpfs" {
        eprintln!("warning: the folder is in memory, where commits do not wait; choose another --folder");
    }
    if options.world == WorldKind::Memory {
        eprintln!(
            "the targets and raw limits are those of SQLite, `{}` is only compared with them",
            options.world
        );
    }
    let left_out = ALL.iter().filter(|workload| !workload.runs_on(options.world) && options.only.is_empty());
    for workload in left_out {
        eprintln!("{} cannot be measured on `{}` and is skipped", workload.id, options.world);
    }
}
