//! A browser, and a server with pages for it.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client as Driver, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use outlast::prelude::*;
use outlast::{RunHandle, RunId, Status};
use outlast_dashboard::{DashboardConfig, Service};
use serde_json::{Value, json};
use throwaway::ChromeDriver;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// How long a condition of a page may take.
const WAIT: Duration = Duration::from_secs(30);

static DRIVER: LazyLock<ChromeDriver> = LazyLock::new(|| ChromeDriver::start().unwrap());

/// One browser at a time: the machine of a test run is small.
static TURN: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);

/// A browser with one window.
pub(crate) struct Browser {
    driver: Driver,
    _turn: OwnedMutexGuard<()>,
}

/// A command of the WebDriver protocol that is specific to Chromium.
#[derive(Debug)]
struct Extension(&'static str, Value);

impl WebDriverCompatibleCommand for Extension {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.0))
    }

    fn method_and_body(&self, _: &url::Url) -> (axum::http::Method, Option<String>) {
        (axum::http::Method::POST, Some(self.1.to_string()))
    }
}

impl Browser {
    pub(crate) async fn open() -> Self {
        let turn = TURN.clone().lock_owned().await;
        let options = json!({
            "goog:chromeOptions": { "args": DRIVER.browser_arguments() },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let Value::Object(options) = options else { panic!("the options are an object") };
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let driver = builder.capabilities(options).connect(&DRIVER.url()).await.unwrap();
        let browser = Self { driver, _turn: turn };
        browser.window(1440, 900).await;
        browser
    }

    pub(crate) async fn go(&self, address: &str) {
        self.driver.goto(address).await.unwrap();
    }

    /// The value of a JavaScript expression.
    pub(crate) async fn js(&self, expression: &str) -> Value {
        self.driver.execute(&format!("return ({expression})"), Vec::new()).await.unwrap()
    }

    /// The text of a JavaScript expression.
    pub(crate) async fn text(&self, expression: &str) -> String {
        self.js(&format!("String({expression})")).await.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until a JavaScript expression is true.
    #[allow(clippy::disallowed_methods, reason = "a browser runs in real time")]
    pub(crate) async fn wait(&self, expression: &str) {
        let begin = std::time::Instant::now();
        loop {
            // A page that is being replaced has no answer.
            let script = format!("return Boolean({expression})");
            if matches!(self.driver.execute(&script, Vec::new()).await, Ok(Value::Bool(true))) {
                return;
            }
            if begin.elapsed() > WAIT {
                let body = self.text("document.body.innerText.slice(0, 1500)").await;
                panic!("not true in time: {expression}\n{body}");
            }
        }
    }

    /// Waits until the page shows what was true at the time of the call.
    pub(crate) async fn wait_for_revision(&self, site: &TestSite) {
        let now = site.client.world().clock().now().as_micros();
        self.wait(&format!("Number(document.body.dataset.rev) >= {now}")).await;
    }

    /// Presses keys, one after the other.
    pub(crate) async fn press(&self, keys: &str) {
        for key in keys.chars() {
            self.driver.active_element().await.unwrap().send_keys(&key.to_string()).await.unwrap();
        }
    }

    /// Moves the focus with the tabulator key to the first element that fits. The focus is visible at each step.
    pub(crate) async fn tab_to(&self, selector: &str) {
        self.wait(&format!("document.querySelector({})", json!(selector))).await;
        for _ in 0..200 {
            self.press("\u{e004}").await;
            let style = "getComputedStyle(document.activeElement)";
            // The label of a row of the timeline has its ring inside.
            let is_visible = format!(
                "document.activeElement === document.body || {style}.outlineStyle !== 'none' \
                 || getComputedStyle(document.activeElement.parentElement).borderStyle !== 'none'"
            );
            let element = self.text("document.activeElement.outerHTML.slice(0, 160)").await;
            assert_eq!(self.js(&is_visible).await, true, "the focus is not visible: {element}");
            if self.js(&format!("document.activeElement.matches({})", json!(selector))).await == true {
                return;
            }
        }
        panic!("the focus does not reach {selector}");
    }

    /// Clicks the first element that fits.
    pub(crate) async fn click(&self, selector: &str) {
        self.wait(&format!("document.querySelector({})", json!(selector))).await;
        let found = self.driver.find(fantoccini::Locator::Css(selector)).await.unwrap();
        found.click().await.unwrap();
    }

    pub(crate) async fn cdp(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.driver.issue_cmd(Extension("goog/cdp/execute", body)).await.unwrap()
    }

    pub(crate) async fn window(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 640 });
        self.cdp("Emulation.setDeviceMetricsOverride", size).await;
    }

    pub(crate) async fn theme(&self, theme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.cdp("Emulation.setEmulatedMedia", features).await;
    }

    /// What the browser has complained about: errors of scripts and violations of the content security policy.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let log = self.driver.issue_cmd(Extension("se/log", json!({ "type": "browser" }))).await.unwrap();
        let entries = log.as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["message"].to_string()).collect()
    }

    pub(crate) async fn close(self) {
        self.driver.close().await.unwrap();
    }
}

#[step]
async fn charge(cents: u64) -> Result<String, StepError> {
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

#[step(attempts = 9, initial = "1h")]
async fn unreachable() -> Result<(), StepError> {
    Err(StepError::msg("the bank does not respond"))
}

#[workflow]
pub(crate) async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
    ctx.tag("customer", "ada")?;
    ctx.step(charge, 100).undo(refund).await?;
    ctx.step(charge, cents).await
}

#[workflow]
pub(crate) async fn nap(ctx: Context) -> Result<(), Error> {
    ctx.step(charge, 1).await?;
    ctx.sleep("3d").await?;
    ctx.step(charge, 2).await.map(drop)
}

#[workflow]
pub(crate) async fn approval(ctx: Context) -> Result<bool, Error> {
    ctx.hook::<bool>("decision").timeout("2d").await
}

#[workflow]
pub(crate) async fn patient(ctx: Context) -> Result<(), Error> {
    ctx.step(unreachable, ()).await
}

#[step]
async fn odd(number: u64) -> Result<u64, StepError> {
    Ok(number)
}

#[step]
async fn even(number: u64) -> Result<u64, StepError> {
    match number {
        7_000 => Err(StepError::fatal("seven thousand")),
        _ => Ok(number),
    }
}

/// A run with this many operations, none like the one before.
#[workflow]
pub(crate) async fn long(ctx: Context, operations: u64) -> Result<(), Error> {
    for first in (0..operations).step_by(500) {
        let part = (first..(first + 500).min(operations)).map(async |number| match number % 2 {
            0 => ctx.step(even, number).await.map(drop),
            _ => ctx.step(odd, number).await.map(drop),
        });
        join_all(part.collect::<Vec<_>>()).await;
    }
    Ok(())
}

#[step(name = "<img src=x onerror=alert(1)> \"'`")]
async fn hostile_step(text: String) -> Result<String, StepError> {
    Err(StepError::fatal(text).with_code("</script><script>alert(2)</script>"))
}

/// Names that must be shown as they are.
#[workflow(name = "</svg><script>alert(1)</script>")]
pub(crate) async fn hostile(ctx: Context, text: String) -> Result<(), Error> {
    ctx.tag("javascript:alert(1)", "\u{202e}gnp.exe 🦀 {{7*7}}")?;
    ctx.publish(&text);
    ctx.stream("<b>log</b>").write(&text);
    let _ = ctx.step(hostile_step, text).await;
    ctx.hook::<()>("'; DROP TABLE runs; --").await
}

/// Pages that a browser can reach, at `/` and under `/a/b`.
pub(crate) struct TestSite {
    pub(crate) client: Client,
    pub(crate) base: String,
    app: Router,
    address: SocketAddr,
    /// The server has a runtime of its own, so that its connections end with it.
    server: Option<Runtime>,
    _worker: Worker,
}

impl TestSite {
    pub(crate) async fn open() -> Self {
        let world = outlast::open("memory:").await.unwrap();
        let worker = Worker::builder(world.clone())
            .register((checkout, nap, approval, patient, long, hostile))
            .register((charge, refund, unreachable, odd, even, hostile_step))
            .start()
            .await
            .unwrap();
        let client = Client::new(world);
        let pages = || {
            let config = DashboardConfig::local().environment("test");
            outlast_dashboard::router(Service::new(client.clone()), config)
        };
        let app = Router::new().nest("/a/b", pages()).fallback_service(pages());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let mut site =
            Self { client, base: format!("http://{address}"), app, address, server: None, _worker: worker };
        site.start().await;
        site
    }

    /// The address of a page.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Stops the server; its connections are closed.
    pub(crate) fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown_background();
        }
    }

    /// Starts the server, on its port.
    pub(crate) async fn start(&mut self) {
        let server = Runtime::new().unwrap();
        let (app, address) = (self.app.clone(), self.address);
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        server.spawn(async move {
            let listener = loop {
                match TcpListener::bind(address).await {
                    Ok(listener) => break listener,
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            ready.send(()).unwrap();
            axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await.unwrap();
        });
        is_ready.await.unwrap();
        self.server = Some(server);
    }

    /// Waits until a run ends or waits for something.
    pub(crate) async fn settle<O>(&self, run: &RunHandle<O>) -> RunId {
        loop {
            let view = self.client.run(run.id()).await.unwrap();
            if matches!(view.status, Status::Waiting | Status::Stuck) || view.status.is_final() {
                return run.id();
            }
            tokio::task::yield_now().await;
        }
    }

    /// One run of each kind.
    pub(crate) async fn runs(&self) -> Vec<RunId> {
        let client = &self.client;
        vec![
            self.settle(&client.start(checkout, 4200).key("order-1").await.unwrap()).await,
            self.settle(&client.start(checkout, 0).key("order-2").await.unwrap()).await,
            self.settle(&client.start(nap, ()).await.unwrap()).await,
            self.settle(&client.start(approval, ()).await.unwrap()).await,
            self.settle(&client.start(patient, ()).await.unwrap()).await,
        ]
    }
}

impl Drop for TestSite {
    fn drop(&mut self) {
        self.stop();
    }
}
