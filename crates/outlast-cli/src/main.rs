//! The program `outlast`.

use std::process::ExitCode;

fn main() -> ExitCode {
    outlast_cli::App::new().main()
}
