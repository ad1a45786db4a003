//! Redirects: what is sent where.

use outlast::http::Request;

use super::requests::{outcome, world};
use super::server::{Answer, Server, header};

#[tokio::test]
async fn a_redirect_keeps_the_method_or_becomes_a_get() {
    for (status, expected) in [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")] {
        let server = Server::start(move |path, _| match path {
            "/new" => Answer::text("here"),
            _ => Answer::redirect(status, "new"),
        })
        .await;
        let world = world().start().await;
        let (output, _) = outcome(&world, Request::post(server.url("/old")).text("body")).await;
        assert_eq!(output.unwrap().text().unwrap(), "here");
        let second = server.requests().remove(1);
        assert!(second.starts_with(&format!("{expected} /new ")), "{second}");
        assert_eq!(second.ends_with("body"), expected == "POST", "{second}");
        assert!(header(&second, "idempotency-key").is_some());
    }
}

#[tokio::test]
async fn another_origin_gets_no_credentials() {
    let other = Server::start(|_, _| Answer::text("other")).await;
    let location = other.url("/");
    let server = Server::start(move |path, _| match path {
        "/same" => Answer::redirect(307, "/away"),
        _ => Answer::redirect(307, location.clone()),
    })
    .await;
    let world = world().worker(|worker| worker.secret("token", "sk_7")).start().await;
    let request =
        Request::post(server.url("/same")).bearer("token").secret_header("x-api-key", "token").text("b");
    assert_eq!(outcome(&world, request).await.0.unwrap().text().unwrap(), "other");
    for request in server.requests() {
        assert_eq!(header(&request, "authorization"), Some("Bearer sk_7"), "{request}");
    }
    let request = other.requests().remove(0);
    assert_eq!((header(&request, "authorization"), header(&request, "x-api-key")), (None, None), "{request}");
    assert!(!request.contains("sk_7") && request.starts_with("POST / "), "{request}");
}

#[tokio::test]
async fn a_redirect_to_an_address_inside_is_refused() {
    let inside = Server::on("127.0.0.2:0", |_, _| Answer::text("secret")).await;
    for location in
        [inside.url("/"), "http://169.254.169.254/latest/meta-data".into(), "http://[::1]:1/".into()]
    {
        let target = location.clone();
        let server = Server::start(move |_, _| Answer::redirect(302, target.clone())).await;
        let world = world().start().await;
        let error = outcome(&world, Request::get(server.url("/"))).await.0.unwrap_err();
        assert_eq!((error.code(), error.attempts()), (Some("address_not_allowed"), 1), "{error}");
    }
    assert!(inside.requests().is_empty());
}

#[tokio::test]
async fn redirects_end() {
    let server = Server::start(|_, _| Answer::redirect(302, "/again")).await;
    let world = world().start().await;
    let error = outcome(&world, Request::get(server.url("/"))).await.0.unwrap_err();
    assert_eq!((error.code(), error.attempts()), (Some("too_many_redirects"), 1));
    assert_eq!(server.requests().len(), 6);
    let server = Server::start(|_, _| Answer::redirect(302, "ftp://host/")).await;
    let error = outcome(&world, Request::get(server.url("/"))).await.0.unwrap_err();
    assert_eq!((error.code(), error.attempts()), (Some("bad_redirect"), 1), "{error}");
}
