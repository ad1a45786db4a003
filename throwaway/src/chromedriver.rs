//! ChromeDriver, which drives a Chromium without a window.

use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use crate::account::Account;
use crate::apt;
use crate::error::{Error, Result};
use crate::folder::TempFolder;
use crate::guarded_process::GuardedProcess;
use crate::random;
use crate::wait::wait_for;
use crate::{port, programs};

/// How long it may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The arguments of every browser: without a window, a sandbox (which root does not have) and traffic of its own.
const BROWSER_ARGUMENTS: [&str; 9] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--lang=en-US",
];

/// A ChromeDriver on a free port. It and its browsers end when this is dropped and also when the process dies.
#[derive(Debug)]
pub struct ChromeDriver {
    _process: GuardedProcess,
    folder: TempFolder,
    port: u16,
}

impl ChromeDriver {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// When the program is missing, with the remedy; or when it fails, with its output.
    pub fn start() -> Result<Self> {
        let program = find()?;
        let folder = TempFolder::make(&std::env::temp_dir(), "chromedriver", Account::Caller)?;
        let port = port::free()?;
        let log = folder.path().join("chromedriver.log");
        let arguments = [format!("--port={port}")];
        let mut process = GuardedProcess::spawn(&program, &arguments, Account::Caller, folder.path(), &log)?;
        let ready = wait_for(START_TIMEOUT, || {
            let listens = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
            (listens || process.ended().is_some()).then_some(listens)
        });
        if ready != Some(true) {
            let output = std::fs::read_to_string(&log).unwrap_or_default();
            let message =
                format!("ChromeDriver does not start; its output ends with:\n{}", output.trim_end());
            return Err(Error::new(message));
        }
        Ok(Self { _process: process, folder, port })
    }

    /// The address of the WebDriver protocol.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The arguments of a browser with a new profile.
    pub fn browser_arguments(&self) -> Vec<String> {
        let profile = self.folder.path().join(format!("profile-{}", &random::word()[..8]));
        let own = [format!("--user-data-dir={}", profile.display())];
        BROWSER_ARGUMENTS.into_iter().map(str::to_owned).chain(own).collect()
    }
}

/// Makes sure that Chromium and ChromeDriver are installed: on Debian, root installs them if needed.
///
/// # Errors
///
/// When they are missing and cannot be installed, with the remedy.
pub fn require() -> Result<()> {
    if find().is_err() && apt::is_possible() {
        eprintln!("    no ChromeDriver: installing it with Chromium");
        apt::install(&["chromium", "chromium-driver", "fonts-inter"], || find().is_ok())?;
    }
    find().map(drop)
}

/// Why tests have no browser, with the remedy.
pub fn missing_for_tests() -> Option<String> {
    find().err().map(|error| error.to_string())
}

fn find() -> Result<PathBuf> {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let browser = browsers.into_iter().find_map(programs::on_path);
    let driver = programs::on_path("chromedriver");
    driver.filter(|_| browser.is_some()).ok_or_else(|| {
        let remedy = match std::env::consts::OS {
            "linux" if apt::is_debian() => {
                "run `sudo apt-get update && sudo apt-get install -y chromium chromium-driver fonts-inter`"
            }
            _ => "install Chromium and the ChromeDriver of the same version, so that `chromedriver` is on the path",
        };
        Error::new(format!("there is no Chromium with a ChromeDriver on this machine; {remedy}"))
    })
}

/// Skips a test where there is no browser.
#[macro_export]
macro_rules! needs_browser {
    () => {
        if let Some(reason) = $crate::chromedriver::missing_for_tests() {
            fn here() {}
            $crate::skipped::report(std::any::type_name_of_val(&here), &reason);
            return;
        }
    };
}
