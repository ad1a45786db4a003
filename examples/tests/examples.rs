//! The examples print what they promise, also after they were killed.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use outlast::prelude::*;
use outlast::{Status, Wait};
use tempfile::TempDir;

#[test]
fn quickstart_sells_an_order_and_remembers_it() {
    let folder = TempDir::new().unwrap();
    let first = stdout(quickstart(folder.path(), &["--pause", "10ms"]).output().unwrap());
    assert_lines(
        &first,
        &[
            "start it again: the order continues",
            "42 is new",
            "attempt 1: the bank does not respond",
            "attempt 2: 42 EUR charged",
        ],
    );
    assert_lines(&first, &["42 EUR charged", "receipt  parcel of order 42, payment run_", "sqlite3 shop.db"]);
    assert!(first.contains("the parcel is on its way") && first.contains("mail sent"), "{first}");

    let second = stdout(quickstart(folder.path(), &["--pause", "10ms"]).output().unwrap());
    assert_lines(&second, &["42 is known", "charge   is recorded", "receipt  parcel of order 42"]);
    assert!(!second.contains("attempt") && !second.contains("mail sent"), "{second}");

    let other = stdout(quickstart(folder.path(), &["--pause", "10ms", "--order", "43"]).output().unwrap());
    assert_lines(&other, &["43 is new", "EUR charged", "receipt  parcel of order 43"]);
}

#[test]
fn a_killed_quickstart_goes_on_and_charges_once() {
    let folder = TempDir::new().unwrap();
    let (file, printed) = (folder.path().join("orders.db"), folder.path().join("printed.txt"));
    let arguments = ["orders.db", "--order", "7", "--pause", "3s"];
    let output = std::fs::File::create(&printed).unwrap();
    let mut child = quickstart(folder.path(), &arguments).stdout(output).spawn().unwrap();
    let asleep = until_asleep(&mut child, &printed, &file);
    child.kill().unwrap(); // SIGKILL
    assert!(!child.wait().unwrap().success());
    asleep.unwrap();
    let before = std::fs::read_to_string(&printed).unwrap();
    assert!(!before.contains("receipt"), "{before}");

    let after = stdout(quickstart(folder.path(), &arguments).output().unwrap());
    assert_lines(
        &after,
        &["7 is known", "charge   is recorded and does not run again", "receipt  parcel of order 7"],
    );
    let both = before + &after;
    for effect in ["EUR charged", "the parcel is on its way", "mail sent"] {
        assert_eq!(both.matches(effect).count(), 1, "{effect}:\n{both}");
    }
}

#[test]
fn quickstart_says_what_is_wrong_with_its_arguments() {
    let folder = TempDir::new().unwrap();
    let refused = |arguments: &[&str]| {
        let output = quickstart(folder.path(), arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--order"]).contains("--order: a name is missing"));
    assert!(refused(&["--fast"]).contains("--fast: there is no such option"));
    assert!(refused(&["--pause", "soon"]).contains("`soon` is not a duration"));
    assert!(refused(&["no-such-folder/shop.db"]).contains("no-such-folder"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    let help = stdout(quickstart(folder.path(), &["--help"]).output().unwrap());
    assert!(help.contains("--pause DURATION"), "{help}");
}

#[test]
fn nightly_report_fires_at_local_times_and_backfills() {
    let shown = stdout(Command::new(built("nightly_report")).output().unwrap());
    assert_lines(
        &shown,
        &[
            "next     2030-01-01T02:00:00.000000Z",
            "next     2030-01-02T02:00:00.000000Z",
            "teams    for the night of 2030-01-01T02:00:00.000000Z",
            "report   sales: 5 orders until 2030-01-01T02:00:00.000000Z",
            "report   support: 7 orders until 2030-01-01T02:00:00.000000Z",
            "by ada: the books are closed. Resume it to fire again.",
            "report   sales: 5 orders until 2030-01-04T02:00:00.000000Z",
            "report   sales: 5 orders until 2030-01-02T02:00:00.000000Z",
            "report   sales: 5 orders until 2030-01-03T02:00:00.000000Z",
            "counts   4 fired, 4 completed",
        ],
    );
}

#[test]
fn transfer_moves_every_cent_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bank.db");
    for _ in 0..2 {
        let shown = stdout(Command::new(built("transfer")).arg(&file).output().unwrap());
        assert_lines(&shown, &["16 transfers, 4 given back", "ada: 840 cents", "bob: 660 cents"]);
    }
}

#[test]
fn saga_undoes_what_it_booked_in_reverse_order() {
    let shown = stdout(Command::new(built("saga")).output().unwrap());
    assert_lines(
        &shown,
        &[
            "booked     flight to Atlantis",
            "booked     train to Atlantis",
            "cancelled  hotel to Atlantis, if it was booked",
            "cancelled  train-Atlantis",
            "cancelled  flight-Atlantis",
            "failed     step `book` failed: there is no hotel in Atlantis",
            "booked     flight to Oslo",
            "tickets    to Oslo",
            "output     Oslo",
            "booked     flight to Rome",
            "cancelled  hotel-Rome",
            "cancelled  train-Rome",
            "cancelled  flight-Rome",
            "error      cancelled: the customer stays at home",
            "status     cancelled, compensated",
        ],
    );
}

#[test]
fn data_import_needs_few_events_for_many_pages() {
    let shown = stdout(Command::new(built("data_import")).output().unwrap());
    assert_lines(&shown, &["customers.csv: 9896 rows imported, 104 rejected"]);
    assert_lines(&shown, &["a replay needs 6 events of a run with 100 pages"]);
}

#[test]
fn subscription_is_one_run_for_all_its_periods() {
    let shown = stdout(Command::new(built("subscription")).output().unwrap());
    assert_lines(
        &shown,
        &[
            "charged    ada 900 cents",
            "new price  1200 cents from period 2 on",
            "charged    ada 1200 cents",
            "periods    ",
            "one run: completed",
        ],
    );
}

#[test]
fn hooks_shows_every_way_an_approval_ends() {
    let shown = stdout(Command::new(built("hooks")).output().unwrap());
    assert_lines(
        &shown,
        &[
            "output   a new chair: approved by Ada",
            "output   a yacht: refused by Grace",
            "output   a day off: nobody answered in time",
            "mail     never mind a fax machine",
            "error    cancelled: we have e-mail",
            "error    run run_",
        ],
    );
}

#[test]
fn approval_is_decided_by_whoever_has_the_token() {
    let shown = stdout(Command::new(built("approval")).output().unwrap());
    assert_lines(
        &shown,
        &[
            "mail     https://approvals.example/",
            "page     a new chair",
            "reply    thank you, Ada",
            "output   a new chair: approved by Ada",
            "reply    thank you, Ada",
            "late     closed",
            "taken    by the first import",
            "output   1000 rows",
        ],
    );
}

#[test]
fn webhook_is_answered_by_the_workflow_and_accepts_only_what_is_signed() {
    let shown = stdout(Command::new(built("webhook")).output().unwrap());
    assert_lines(
        &shown,
        &[
            "mail     http://127.0.0.1:",
            "response 400 approve or refuse it",
            "response 200 thank you",
            "output   a new chair: approved",
            "late     410",
            "forged   401",
            "signed   202",
            "output   order 42: 4200 cents",
        ],
    );
}

#[test]
fn parallel_has_many_steps_under_way_and_never_too_many() {
    let shown = stdout(Command::new(built("parallel")).output().unwrap());
    assert_lines(
        &shown,
        &[
            "small image 1, small image 2, small image 3",
            "100 done, never more than 2 in progress",
            "7 EUR at the fast shop",
            "no shop responded",
        ],
    );
}

#[test]
fn children_are_awaited_cancelled_and_left_alone() {
    let shown = stdout(Command::new(built("children")).output().unwrap());
    assert_lines(
        &shown,
        &[
            "100 of them, the first: parcel 100 was delivered",
            "parcel 13 is lost",
            "did not wait for the order",
            "the order: cancelled: its parent did not wait longer",
            "4 runs have the same root",
            "parcel 7 was delivered",
        ],
    );
}

#[test]
fn retries_tells_of_each_and_pays_once() {
    let shown = stdout(Command::new(built("retries")).output().unwrap());
    assert_lines(
        &shown,
        &[
            "connect  call 3",
            "rate after attempt 1: too many requests",
            "rate after attempt 2: internal server error",
            "bank     books 4200 cents",
            "pay after attempt 1: connection reset",
            "output   4200 cents paid, once",
            "error    step `rate` failed after 3 attempts: there is no currency XYZ; exhausted: false",
        ],
    );
    assert_eq!(shown.matches("books").count(), 1, "{shown}");
}

#[test]
fn an_agent_that_was_killed_continues_and_its_reader_gets_every_token_once() {
    let folder = TempDir::new().unwrap();
    let agent = |arguments: &[&str]| {
        let mut command = Command::new(built("agent"));
        command.args(arguments).current_dir(folder.path());
        command
    };
    let printed = folder.path().join("printed.txt");
    let output = std::fs::File::create(&printed).unwrap();
    let mut first = agent(&["agent.db", "--pause", "50ms"]).stdout(output).spawn().unwrap();
    // In the middle of the second answer.
    while !std::fs::read_to_string(&printed).unwrap().contains("(why)\nthe answer ") {
        assert!(first.try_wait().unwrap().is_none(), "the agent ended too early");
        std::thread::yield_now();
    }
    first.kill().unwrap(); // SIGKILL
    first.wait().unwrap();
    let reader =
        agent(&["agent.db", "--read"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let second = stdout(agent(&["agent.db", "--pause", "5ms"]).output().unwrap());
    let answer = "the answer to that is written in small pieces ";
    let output = format!("output   {answer}(why) | {answer}(how) | {answer}(when)");
    for shown in [second, stdout(reader.wait_with_output().unwrap())] {
        assert_lines(&shown, &["is known and continues", "progress 3 of 3", &output]);
        let (_, shown) = shown.split_once("begins again]\n").unwrap_or(("", &shown));
        assert_lines(shown, &[&format!("{answer}(how)\n{answer}(when)\n")]);
    }
    let again = stdout(agent(&["agent.db"]).output().unwrap());
    // What the killed attempt wrote is left out; the entry of the restart stays.
    let (why, rest) = (format!("{answer}(why)\n"), format!("{answer}(how)\n{answer}(when)\n"));
    assert_lines(&again, &[&why, &rest, "progress 3 of 3"]);
    assert_eq!(again.matches(answer).count(), 6, "three in the stream, three in the output: {again}");
}

#[test]
fn a_contract_joins_two_programs_that_share_no_code() {
    let folder = TempDir::new().unwrap();
    // The client starts first: its run waits for a worker.
    let client = contract("contract_client", folder.path()).spawn().unwrap();
    let mut worker = contract("contract_worker", folder.path()).stdin(Stdio::piped()).spawn().unwrap();
    let asked = stdout(client.wait_with_output().unwrap());
    drop(worker.stdin.take()); // has the same effect as Enter
    let done = stdout(worker.wait_with_output().unwrap());
    assert_lines(
        &asked,
        &[
            "refused  order 41 has no price",
            "started  run_",
            "receipt  payment 42, parcel 42",
            r#"same run true, as JSON: {"parcel":"parcel 42","payment":"payment 42"}"#,
        ],
    );
    assert_lines(
        &done,
        &[
            "retry    charge: the bank is busy",
            "charge   4200 cents for a chair",
            "ship     a chair to 12 St James's Square",
        ],
    );
}

fn contract(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(built(program));
    command.arg("orders.db").current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn versions_survives_a_careless_deploy() {
    let shown = stdout(Command::new(built("versions")).output().unwrap());
    assert_lines(
        &shown,
        &[
            "diverged at operation 0",
            "history has step `pack`",
            "step `insure`",
            "not insured, packed a chair, sent to Ada",
            "packed a table, ready for collection, says version 2",
        ],
    );
}

#[test]
fn testing_is_a_program_as_well() {
    let shown = stdout(Command::new(built("testing")).output().unwrap());
    assert_lines(&shown, &["returned after", "reminders"]);
}

fn quickstart(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(built("quickstart"));
    command.args(arguments).current_dir(folder);
    command
}

/// Returns when the run that the child started sleeps, according to a client of the same file.
fn until_asleep(child: &mut Child, printed: &Path, file: &Path) -> Result<(), Error> {
    let mut still_alive = || match child.try_wait()? {
        None => Ok(()),
        Some(status) => Err(Error::msg(format!("quickstart ended too early: {status}"))),
    };
    while !std::fs::read_to_string(printed)?.contains("is new") {
        still_alive()?;
        std::thread::yield_now();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let client = Client::new(outlast::open(&format!("sqlite:{}", file.display())).await?);
        loop {
            let runs = client.newest(&[Status::Waiting], 1).await?;
            if runs.iter().any(|run| matches!(run.waits[..], [Wait::Timer { .. }])) {
                return Ok(());
            }
            still_alive()?;
        }
    })
}

/// Returns the executable of an example. Cargo does not build examples for tests, so this function does.
fn built(example: &str) -> PathBuf {
    static EXECUTABLES: OnceLock<Vec<PathBuf>> = OnceLock::new();
    let executables = EXECUTABLES.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        cargo.args(["build", "--quiet", "--examples", "--message-format=json-render-diagnostics"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let messages = stdout(cargo.stderr(Stdio::inherit()).output().unwrap());
        let executable = |line: &str| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(PathBuf::from(message["executable"].as_str()?))
        };
        messages.lines().filter_map(executable).collect()
    });
    executables.iter().find(|path| path.file_stem().is_some_and(|stem| stem == example)).unwrap().clone()
}

/// Returns what a program printed; panics if the program failed.
fn stdout(output: Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts that the parts occur in the text in this order.
fn assert_lines(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else {
            panic!("`{part}` is missing or misplaced in:\n{text}")
        };
        rest = after;
    }
}
