//! A program of a user, with its own workflows. It is this test binary, which calls itself.

use std::path::Path;
use std::process::Command;

use outlast::prelude::*;

use super::support::Called;

struct Bank {
    name: &'static str,
}

#[step]
async fn charge(cx: StepContext<Bank>, cents: u64) -> Result<String, StepError> {
    Ok(format!("{} got {cents}", cx.state().name))
}

#[workflow]
async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
    ctx.step(charge, cents).await
}

/// The code of another build: it does not match the histories of the first.
#[workflow(name = "checkout")]
async fn changed(ctx: Context, cents: u64) -> Result<String, Error> {
    ctx.sleep("1h").await?;
    ctx.step(charge, cents).await
}

#[test]
#[ignore = "the program that the other tests call"]
fn program_of_a_user() {
    let arguments = std::env::var("PROGRAM_ARGUMENTS").unwrap();
    let app = outlast_cli::App::new().name("shop").state_with(async || Ok(Bank { name: "the bank" }));
    let arguments = ["shop"].into_iter().chain(arguments.split('|'));
    let exit = match std::env::var("PROGRAM_BUILD").as_deref() {
        Ok("changed") => app.register((changed, charge)).run(arguments),
        _ => app.register((checkout, charge)).run(arguments),
    };
    std::process::exit(i32::from(exit.code()));
}

async fn call(folder: &Path, arguments: &str, build: &str) -> Called {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "cli::own_program::program_of_a_user"]);
    command.current_dir(folder).env("PROGRAM_ARGUMENTS", arguments).env("PROGRAM_BUILD", build);
    command.env("OUTLAST_WORLD", "sqlite:shop.db").env("XDG_CONFIG_HOME", folder);
    tokio::task::spawn_blocking(move || command.output().unwrap().into()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_the_commands_and_its_own_code() {
    let folder = tempfile::tempdir().unwrap();
    call(folder.path(), "world|migrate", "").await.ok();
    call(folder.path(), "start|checkout|4200|--key|order-1", "").await.ok();
    assert_eq!(call(folder.path(), "check", "").await.ok().code, 0);
    call(folder.path(), "worker|--until-idle", "").await.ok();
    let output = call(folder.path(), "run|output|order-1", "").await.ok();
    assert!(output.out.contains("the bank got 4200"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_recommends_commands_of_the_program_itself() {
    let folder = tempfile::tempdir().unwrap();
    let listed = call(folder.path(), "list", "").await;
    assert!(listed.err.contains("create it with `shop world migrate --world sqlite:shop.db`"), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_says_that_nobody_has_the_code() {
    let folder = tempfile::tempdir().unwrap();
    call(folder.path(), "world|migrate", "").await.ok();
    let started = call(folder.path(), "start|chekout|4200", "").await.ok();
    let note = "no joined worker has code for workflow `chekout`; the run waits for one";
    assert!(started.err.contains(note), "{started:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_fails_if_the_code_does_not_match_an_open_run() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("shop.db").display());
    let world = outlast::open(&url).await.unwrap();
    // A run that has attempted its step once, and waits for the next attempt.
    let failing = Worker::builder(world.clone()).register((checkout_in_progress, failing_charge));
    let run = Client::new(world.clone()).start_json("checkout", 1, "7").await.unwrap();
    failing.run_until_idle().await.unwrap();
    assert!(!run.view().await.unwrap().status.is_final());
    assert_eq!(call(folder.path(), "check", "").await.ok().code, 0);
    let checked = call(folder.path(), "check", "changed").await;
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.out.contains("diverged"), "{checked:?}");
}

#[step(name = "charge", attempts = 5)]
async fn failing_charge(cents: u64) -> Result<String, StepError> {
    Err(StepError::retry_after(format!("no answer for {cents}"), "1h"))
}

#[workflow(name = "checkout")]
async fn checkout_in_progress(ctx: Context, cents: u64) -> Result<String, Error> {
    ctx.step(failing_charge, cents).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_without_code_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for command in [&["worker"][..], &["check"]] {
        let called = super::support::call(folder.path(), command, &[("OUTLAST_WORLD", "sqlite:a.db")]).await;
        assert_eq!(called.code, 2);
        assert!(called.err.contains("this program has none"), "{called:?}");
    }
}
