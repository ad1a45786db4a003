//! An approval by webhook: the form of a mail posts to a URL that only its receiver knows, and the workflow responds to it.
//! A bank notifies another one, whose requests must be signed.

use outlast::prelude::*;
use outlast::webhook::StandardWebhooks;
use outlast::{SystemClock, core::Clock};
use outlast_server::{Config, ServeExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The secret that the bank and the server share. A real one comes from a file.
const BANK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Sends the form. Here it is only recorded, and this example plays the receiver.
#[step]
async fn mail(url: String) {
    println!("    mail     {}…", &url[..url.find("/webhooks/").map_or(0, |at| at + 14)]);
}

#[workflow]
async fn expense(ctx: Context, what: String) -> Result<String, Error> {
    let form = ctx.webhook("form").manual_response().keep_for("30d").await?;
    ctx.step(mail, form.url()?).await?;
    loop {
        let request = form.next().timeout("7d").await?;
        let verdict = match request.text()? {
            "approved=yes" => "approved",
            "approved=no" => "refused",
            _ => {
                request.respond(400, "approve or refuse it")?;
                continue;
            }
        };
        request.respond(200, "thank you")?;
        return Ok(format!("{what}: {verdict}"));
    }
}

#[workflow]
async fn payment(ctx: Context, order: u64) -> Result<String, Error> {
    // A token of our own, because the bank is configured with the URL once. So the signature is what counts.
    let bank = ctx.webhook("bank").token(format!("payment-{order}")).verify("bank").await?;
    let cents: u64 = bank.next().timeout("3d").await?.json()?;
    Ok(format!("order {order}: {cents} cents"))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let world = outlast::open("memory:").await?;
    let builder = Worker::builder(world.clone()).register((expense, payment, mail));
    let server =
        builder.serve("127.0.0.1:0").config(Config::local().webhook_secret("bank", BANK_SECRET)).await?;
    let address = server.address().to_string();
    let client = Client::new(world);

    println!("1. Whoever has the mail decides, and the workflow responds.");
    let run = client.start(expense, "a new chair").await?;
    let url = mailed_url(&client, run.id()).await?;
    let path = url.split_once(&address).map_or("", |(_, path)| path).to_owned();
    println!("    response {}", post(&address, &path, "", "approved=maybe").await?);
    println!("    response {}", post(&address, &path, "", "approved=yes").await?);
    println!("    output   {}", run.output().await?);
    println!("    late     {}", post(&address, &path, "", "approved=no").await?);

    println!("2. Only the bank can notify the payment, and twice is once.");
    let run = client.start(payment, 42).await?;
    while client.token("payment-42").await?.is_none() {
        tokio::task::yield_now().await;
    }
    println!("    forged   {}", post(&address, "/webhooks/payment-42", "", "1").await?);
    let bank = StandardWebhooks::new(BANK_SECRET).map_err(|error| Error::msg(error.to_string()))?;
    let now = SystemClock.now();
    let signed = format!(
        "webhook-id: n-1\r\nwebhook-timestamp: {}\r\nwebhook-signature: {}\r\n",
        now.as_micros() / 1_000_000,
        bank.sign("n-1", now, b"4200"),
    );
    println!("    signed   {}", post(&address, "/webhooks/payment-42", &signed, "4200").await?);
    println!("    output   {}", run.output().await?);
    server.stop().await
}

/// The URL in the mail of a run.
async fn mailed_url(client: &Client, run: outlast::RunId) -> Result<String, Error> {
    loop {
        let operations = client.operations(run).await?;
        let mailed = operations.iter().find(|operation| &*operation.name == "mail" && !operation.is_open());
        if let Some(url) = mailed.and_then(|mail| mail.input_as().ok().flatten()) {
            return Ok(url);
        }
        tokio::task::yield_now().await;
    }
}

/// Sends a request, and returns the status and the body of the response.
async fn post(address: &str, path: &str, headers: &str, body: &str) -> Result<String, Error> {
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.get(9..12).unwrap_or_default();
    Ok(if body.starts_with('{') { status.to_owned() } else { format!("{status} {body}").trim().to_owned() })
}
