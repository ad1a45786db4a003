//! Sending to tokens, and waiting for replies.

use outlast::prelude::*;
use outlast_api::{ProblemCode, Role};
use outlast_server::{AccessKey, AccessKeys, Config};
use serde_json::{Value, json};

use crate::common::{Answer, Api, request, sqlite};

const QUOTE: Hook<u32, String> = Hook::new("quote");

/// Replies to 1, drops 2, keeps 3 without a reply, and ends with 4.
#[workflow]
async fn shop(ctx: Context) -> Result<(), Error> {
    let quotes = ctx.open_hook(QUOTE).token("shop").await?;
    let mut kept = Vec::new();
    loop {
        let message = quotes.next().received().await?;
        match message.payload {
            1 => QUOTE.reply(&message, &"1 euro".into())?,
            2 => drop(message),
            3 => kept.push(message),
            _ => return Ok(()),
        }
    }
}

/// Puts its secret URL where everybody looks.
#[workflow]
async fn careless(ctx: Context) -> Result<(), Error> {
    let webhook = ctx.webhook("paid").verify("bank").methods(["POST", "PUT"]).await?;
    ctx.publish(&webhook.url()?);
    ctx.stream("log").write(&webhook.url()?);
    let url = webhook.url()?;
    let _: String = ctx.record("url", || url)?;
    webhook.next().await.map(drop)
}

async fn api(config: Config) -> Api {
    let (world, folder) = sqlite().await;
    let builder =
        Worker::builder(world.clone()).register((shop, careless)).public_url("https://out.example/a");
    Api::of(builder, world, config).await.keeping(folder)
}

/// A shop that has its token.
async fn open_shop(api: &Api) -> String {
    let run = api.start("shop", Value::Null).await;
    while api.client.token("shop").await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    run
}

fn ends(answer: &Answer) -> (Value, Value, Value) {
    let json = answer.json();
    (json["delivery"].clone(), json["answer"].clone(), json["reply"].clone())
}

#[tokio::test]
async fn a_send_says_what_happened_to_the_payload() {
    let api = api(Config::local()).await;
    let run = open_shop(&api).await;
    let by_name = format!("/api/runs/{run}/hooks/quote");
    for path in ["/api/hooks/shop", &by_name] {
        let send = async |body: Value| ends(&api.post(path, body).await.expect(200));
        let key = format!("key of {path}");
        assert_eq!(
            send(json!({ "payload": 1, "key": key })).await,
            (json!("delivered"), Value::Null, Value::Null)
        );
        assert_eq!(
            send(json!({ "payload": 1, "key": key })).await,
            (json!("duplicate"), Value::Null, Value::Null)
        );
        let asked = json!({ "payload": 1, "key": format!("ask {path}"), "reply_within": "20s" });
        assert_eq!(send(asked.clone()).await, (json!("delivered"), json!("reply"), json!("1 euro")));
        assert_eq!(send(asked).await, (json!("duplicate"), json!("reply"), json!("1 euro")));
        let dropped = send(json!({ "payload": 2, "reply_within": "20s" })).await;
        assert_eq!(dropped, (json!("delivered"), json!("not_answered"), Value::Null));
        let kept = send(json!({ "payload": 3, "reply_within": "10ms" })).await;
        assert_eq!(kept, (json!("delivered"), json!("timeout"), Value::Null));
        let rejected = send(json!({ "payload": "many", "reply_within": "20s" })).await;
        assert_eq!(rejected, (json!("rejected"), Value::Null, Value::Null));
    }
    let mut with_header =
        request(axum::http::Method::POST, "/api/hooks/shop", Some("{\"payload\":1}".into()));
    with_header.headers_mut().insert("idempotency-key", "header".parse().unwrap());
    assert_eq!(ends(&api.send(with_header).await.expect(200)).0, "delivered");
    api.post("/api/hooks/shop", json!({ "payload": 1, "reply_within": "2m" })).await.expect(400);
    api.post("/api/hooks/shop", json!({ "payload": 1, "reply_within": "soon" })).await.expect(400);
    let unknown = api.post("/api/hooks/no-such-token", json!({ "payload": 1 })).await.expect(404);
    assert!(!unknown.refused(ProblemCode::NotFound).detail.contains("no-such-token"));
    api.post("/api/hooks/shop", json!({ "payload": 4 })).await.expect(200);
    api.output(&run).await;
    for body in [json!({ "payload": 1 }), json!({ "payload": 1, "reply_within": "20s" })] {
        let closed = api.post("/api/hooks/shop", body).await.expect(200);
        assert_eq!((ends(&closed).0, &closed.json()["run"]["id"]), (json!("closed"), &json!(run)));
    }
    api.stop().await;
}

#[tokio::test]
async fn readers_never_see_a_generated_token_and_operators_see_the_url() {
    let made = [Role::Read, Role::Operate].map(|role| AccessKey::generate(role.as_str(), role).unwrap());
    let keys = AccessKeys::new(made.iter().map(|(_, stored)| stored.clone()));
    let api = api(Config::keys(keys)).await;
    let run = api.client.start(careless, ()).await.unwrap().id();
    let token = loop {
        let view = api.client.run(run).await.unwrap();
        if let [outlast::Wait::Hook { token: Some(token), .. }] = &view.waits[..] {
            break token.clone();
        }
        tokio::task::yield_now().await;
    };
    let get = async |role: usize, path: &str| {
        let mut request = request(axum::http::Method::GET, path, None);
        let bearer = format!("Bearer {}", made[role].0.secret());
        request.headers_mut().insert("authorization", bearer.parse().unwrap());
        api.send(request).await.expect(200)
    };
    for path in [
        "",
        "/operations?payloads=full",
        "/operations/0",
        "/operations/1",
        "/operations/2",
        "/events?payloads=full",
        "/export",
        "/explain",
        "/state",
        "/streams/log",
    ] {
        let path = format!("/api/runs/{run}{path}");
        let text = get(0, &path).await.text;
        assert!(!text.contains(&token), "{path}: {text}");
    }
    assert!(!get(0, "/api/hooks").await.text.contains(&token));
    let shown = get(0, &format!("/api/runs/{run}/state")).await.json();
    assert!(
        shown["state"]["json"].as_str().unwrap().starts_with("https://out.example/a/webhooks/hidden-"),
        "{shown}"
    );
    let url = json!(format!("https://out.example/a/webhooks/{token}"));
    let hook = get(1, "/api/hooks").await.json()["items"][0]["webhook"].clone();
    let expected =
        json!({ "methods": ["POST", "PUT"], "secret": "bank", "response": "accepted", "url": url });
    assert_eq!(hook, expected);
    assert_eq!(get(1, "/api/hooks?kind=webhook").await.json()["items"][0]["webhook"], expected);
    assert_eq!(get(1, "/api/hooks?kind=token").await.json()["items"], json!([]));
    assert_eq!(get(1, &format!("/api/runs/{run}/operations/2")).await.json()["webhook"], expected);
    assert_eq!(get(1, &format!("/api/runs/{run}/state")).await.json()["state"]["json"], url);
    api.stop().await;
}
