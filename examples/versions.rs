//! Three deploys while runs are in progress: the first version, a mistake, and a repair with a patch and a new version.

use outlast::prelude::*;
use outlast::{RunId, Status};

#[step]
async fn pack(what: String) -> String {
    format!("packed {what}")
}

#[step]
async fn insure(what: String) -> String {
    format!("insured {what}")
}

/// The code of the first deploy.
mod first {
    use super::*;

    #[workflow]
    pub(super) async fn send(ctx: Context, what: String) -> Result<String, Error> {
        let packed = ctx.step(pack, &what).await?;
        let address: String = ctx.hook("address").await?;
        Ok(format!("{packed}, sent to {address}"))
    }
}

/// The mistake: the code requests `insure` first, but the history of an old run begins with `pack`.
mod careless {
    use super::*;

    #[workflow]
    pub(super) async fn send(ctx: Context, what: String) -> Result<String, Error> {
        let insured = ctx.step(insure, &what).await?;
        let packed = ctx.step(pack, &what).await?;
        let address: String = ctx.hook("address").await?;
        Ok(format!("{insured}, {packed}, sent to {address}"))
    }
}

/// The repair: a patch keeps the old branch for old runs, and new runs get version 2.
mod careful {
    use super::*;

    #[workflow(name = "send")]
    pub(super) async fn send_v1(ctx: Context, what: String) -> Result<String, Error> {
        let insured =
            if ctx.patched("insure") { ctx.step(insure, &what).await? } else { "not insured".to_owned() };
        let packed = ctx.step(pack, &what).await?;
        let address: String = ctx.hook("address").await?;
        Ok(format!("{insured}, {packed}, sent to {address}"))
    }

    #[workflow(version = 2)]
    pub(super) async fn send(ctx: Context, what: String) -> Result<String, Error> {
        let packed = ctx.step(pack, &what).await?;
        Ok(format!("{packed}, ready for collection, says version {}", ctx.version()))
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let world = outlast::open("memory:").await?;
    let client = Client::new(world.clone());
    let builder = |build: &str| Worker::builder(world.clone()).register((pack, insure)).build(build);

    println!("1. The first deploy: a run packs and waits for an address.");
    let worker = builder("1").register(first::send).start().await?;
    let run = client.start(first::send, "a chair".to_owned()).await?;
    until(&client, run.id(), Status::Waiting).await?;
    worker.stop().await?;

    println!("2. A careless deploy: the code does not match the history of the run, which becomes stuck.");
    run.send("address", "Ada").await?;
    let worker = builder("2").register(careless::send).start().await?;
    until(&client, run.id(), Status::Stuck).await?;
    println!("    {}", run.view().await?.stuck.map(|stuck| stuck.message).unwrap_or_default());
    worker.stop().await?;

    println!("3. A careful deploy: the run continues on the old branch, and new runs get version 2.");
    let worker = builder("3").register((careful::send, careful::send_v1)).start().await?;
    until(&client, run.id(), Status::Completed).await?;
    println!("    {}", run.output().await?);
    let run = client.start(careful::send, "a table".to_owned()).await?;
    println!("    {}", run.output().await?);
    worker.stop().await
}

async fn until(client: &Client, run: RunId, status: Status) -> Result<(), Error> {
    while client.run(run).await?.status != status {
        tokio::task::yield_now().await;
    }
    Ok(())
}
