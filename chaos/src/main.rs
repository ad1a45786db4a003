//! Injects failures into Outlast, and checks that nothing is lost, duplicated or out of order.
//!
//! * The kill loop: three workers on one file transfer money in an external bank, and are killed and frozen
//!   repeatedly. At the end every run has ended, and every effect has happened once.
//! * The power cut: the possible states of the disk after a power failure, at random times under load.
//! * The cut connections: the connection to Postgres ends after every byte of a call.
//! * The soak test: mixed load for a long time, and a check of resources that must not grow.
//!
//! `cargo xtask chaos --help` and `cargo xtask soak --help` list the options.

#[cfg(target_os = "linux")]
mod program;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    program::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("error: this program requires Linux: it reads `/proc`, and its workers die with it");
    std::process::ExitCode::FAILURE
}
