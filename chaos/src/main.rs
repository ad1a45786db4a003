//! Breaks Outlast on purpose, and checks that nothing is lost, doubled or out of order.
//!
//! * The kill loop: three workers on one file move money in an outside bank, and are killed and frozen
//!   again and again. In the end every run has ended, and every effect has happened once.
//! * The power cut: what the disk may hold after the power went, at any instant of a life under load.
//! * The soak: mixed load for as long as one likes, and a verdict on what grew.
//!
//! `cargo xtask chaos --help` and `cargo xtask soak --help` say how.

#[cfg(target_os = "linux")]
mod program;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    program::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("error: this program needs Linux: it looks into `/proc`, and its workers die with it");
    std::process::ExitCode::FAILURE
}
