//! `cargo xtask sim`: simulates seeds, each twice, and prints violated rules.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use outlast_conformance::simulation::{Statistics, check_seed, simulate};
use parking_lot::Mutex;

struct Options {
    seeds: u64,
    from: u64,
    threads: usize,
    shows_trace: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options { seeds: 1_000, from: 0, threads: 1, shows_trace: false };
    let mut rest = std::env::args().skip(1);
    while let Some(name) = rest.next() {
        let mut number = || {
            let text = rest.next().ok_or_else(|| format!("`{name}` needs a number"))?;
            text.replace('_', "").parse::<u64>().map_err(|_| format!("`{text}` is not a number"))
        };
        match name.as_str() {
            "--seeds" => options.seeds = number()?,
            "--from" => options.from = number()?,
            "--threads" => options.threads = number()?.max(1) as usize,
            "--trace" => options.shows_trace = true,
            _ => {
                return Err(format!(
                    "unknown option `{name}`; known options: --seeds, --from, --threads, --trace"
                ));
            }
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    if options.shows_trace {
        for seed in options.from..options.from + options.seeds {
            let report = simulate(seed, true);
            println!("{}", report.trace.join("\n"));
            println!("seed {seed}: {}\n{}", report.statistics, report.violations.join("\n"));
        }
        return ExitCode::SUCCESS;
    }
    let failed = run(&options);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all seeds, and returns how many failed.
fn run(options: &Options) -> u64 {
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let total = Mutex::new(Statistics::default());
    let work = || loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= options.seeds {
            return;
        }
        match check_seed(options.from + index) {
            Ok(statistics) => total.lock().add(&statistics),
            Err(report) => {
                failed.fetch_add(1, Ordering::Relaxed);
                println!("{report}\n");
            }
        }
        if (index + 1).is_multiple_of(1_000) {
            println!("{} seeds, {} failed: {}", index + 1, failed.load(Ordering::Relaxed), total.lock());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner();
    let total = total.into_inner();
    println!("{} seeds from {}, each twice; {failed} failed: {}", options.seeds, options.from, total);
    println!("situations:\n{}", total.coverage);
    failed
}
