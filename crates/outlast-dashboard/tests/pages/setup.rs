//! A world with one run of each kind, and requests to the pages.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Response, header};
use http_body_util::BodyExt;
use outlast::prelude::*;
use outlast::{RunHandle, RunId, Secret, Status};
use outlast_dashboard::{DashboardConfig, Service};
use tower::ServiceExt;

#[step]
async fn charge(cents: u64) -> Result<String, StepError> {
    tracing::warn!(cents, "asking the <bank>");
    match cents {
        0 => Err(StepError::fatal("the card was declined").with_code("card_declined")),
        _ => Ok(format!("{cents} charged")),
    }
}

#[step]
async fn refund(undo: Undo<u64, String>) -> Result<(), StepError> {
    let _ = undo;
    Ok(())
}

#[step(attempts = 5, initial = "1h")]
async fn unreachable() -> Result<(), StepError> {
    Err(StepError::msg("the bank does not respond"))
}

#[workflow]
pub(crate) async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
    ctx.tag("customer", "ada")?;
    ctx.step(charge, 100).undo(refund).await?;
    ctx.publish(&cents);
    ctx.stream("log").write("charging");
    ctx.step(charge, cents).await
}

#[workflow]
pub(crate) async fn nap(ctx: Context) -> Result<(), Error> {
    ctx.sleep("3d").await
}

#[workflow]
pub(crate) async fn approval(ctx: Context) -> Result<bool, Error> {
    ctx.hook::<bool>("decision").timeout("2d").await
}

#[workflow]
pub(crate) async fn notified(ctx: Context) -> Result<(), Error> {
    let webhook = ctx.webhook("paid").verify("bank").await?;
    ctx.publish(&webhook.url()?);
    webhook.next().await.map(drop)
}

/// Replies to the first payload.
#[workflow]
pub(crate) async fn quoting(ctx: Context) -> Result<(), Error> {
    let message = ctx.hook::<u32>("quote").received().await?;
    message.reply(&format!("{} euros", message.payload))
}

/// Publishes its secret, and returns it.
#[workflow]
pub(crate) async fn secretive(ctx: Context, password: Secret<String>) -> Result<Secret<String>, Error> {
    ctx.publish(&password);
    ctx.stream("log").write(&password);
    let sent = ctx.hook::<Secret<String>>("password").await?;
    ctx.record("password", || sent)
}

#[workflow]
pub(crate) async fn patient(ctx: Context) -> Result<(), Error> {
    ctx.step(unreachable, ()).await
}

#[workflow]
pub(crate) async fn family(ctx: Context) -> Result<(), Error> {
    ctx.child(nap, ()).await
}

/// The pages on a world with runs.
pub(crate) struct Shop {
    pub(crate) client: Client,
    pub(crate) app: Router,
    _worker: Worker,
}

impl Shop {
    /// A world with a worker and no runs.
    pub(crate) async fn open() -> Self {
        Self::open_with(DashboardConfig::local()).await
    }

    pub(crate) async fn open_with(config: DashboardConfig) -> Self {
        Self::open_on("memory:", config).await
    }

    pub(crate) async fn open_on(url: &str, config: DashboardConfig) -> Self {
        let world = outlast::open(url).await.unwrap();
        let worker = Worker::builder(world.clone())
            .register((
                checkout,
                nap,
                approval,
                patient,
                family,
                charge,
                refund,
                unreachable,
                notified,
                quoting,
                secretive,
            ))
            .public_url("https://out.example")
            .start()
            .await
            .unwrap();
        let client = Client::new(world);
        let app = outlast_dashboard::router(Service::new(client.clone()), config);
        Self { client, app, _worker: worker }
    }

    /// Starts a run and waits until it ends or waits for something.
    pub(crate) async fn settle<O>(&self, run: &RunHandle<O>) -> RunId {
        loop {
            let view = self.client.run(run.id()).await.unwrap();
            if view.status == Status::Waiting || view.status == Status::Stuck || view.status.is_final() {
                return run.id();
            }
            tokio::task::yield_now().await;
        }
    }

    /// The page at a path.
    pub(crate) async fn get(&self, path: &str) -> Reply {
        get(&self.app, path).await
    }

    /// Sends a form.
    pub(crate) async fn post(&self, path: &str, form: &str) -> Reply {
        let request = Request::post(path)
            .extension(peer())
            .header(header::HOST, "127.0.0.1:4700")
            .header(header::ORIGIN, "http://127.0.0.1:4700")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        Reply::of(self.app.clone().oneshot(request.body(Body::from(form.to_owned())).unwrap()).await.unwrap())
            .await
    }
}

/// The address of a caller on this machine.
pub(crate) fn peer() -> ConnectInfo<SocketAddr> {
    ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 40_000)))
}

/// The page at a path of an application.
pub(crate) async fn get(app: &Router, path: &str) -> Reply {
    let request = Request::get(path)
        .extension(peer())
        .header(header::HOST, "127.0.0.1:4700")
        .body(Body::empty())
        .unwrap();
    Reply::of(app.clone().oneshot(request).await.unwrap()).await
}

/// A response with its body.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
    headers: axum::http::HeaderMap,
}

impl Reply {
    pub(crate) async fn of(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        Self { status: parts.status.as_u16(), body, headers: parts.headers }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The token of the form on the page.
    pub(crate) fn token(&self) -> String {
        let rest =
            self.body.split("name=\"token\" value=\"").nth(1).expect("the page has a form with a token");
        rest.split('"').next().unwrap().to_owned()
    }

    /// All values of an attribute.
    pub(crate) fn attributes(&self, name: &str) -> Vec<String> {
        let begin = format!(" {name}=\"");
        self.body
            .split(begin.as_str())
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().to_owned())
            .collect()
    }
}
