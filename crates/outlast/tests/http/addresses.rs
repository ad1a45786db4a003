//! Requests reach public addresses only, unless a network is allowed.

use outlast::http::Request;
use outlast::prelude::*;
use outlast_testkit::TestWorld;

use super::requests::{fetch, outcome};
use super::server::{Answer, Server};

#[tokio::test]
async fn addresses_inside_are_refused_in_every_notation() {
    let server = Server::start(|_, _| Answer::text("secret")).await;
    let port = server.address.port();
    let world = TestWorld::builder().register(fetch).start().await;
    for host in [
        "127.0.0.1",
        "localhost",
        "0.0.0.0",
        "2130706433",
        "0x7f.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "10.0.0.1",
        "169.254.169.254",
        "[fd00::1]",
        "[fe80::1]",
    ] {
        let (output, _) = outcome(&world, Request::get(format!("http://{host}:{port}/")).timeout("5s")).await;
        let error = output.unwrap_err();
        assert_eq!((error.code(), error.attempts()), (Some("address_not_allowed"), 1), "{host}: {error}");
        assert!(error.message().contains("`.allow_network("), "{error}");
    }
    assert!(server.requests().is_empty(), "{:?}", server.requests());
}

#[tokio::test]
async fn an_allowed_network_is_reached() {
    let server = Server::start(|_, _| Answer::text("inside")).await;
    let world = TestWorld::builder().register(fetch).worker(|worker| worker.allow_network("127.0.0.0/8"));
    let world = world.start().await;
    assert_eq!(outcome(&world, Request::get(server.url("/"))).await.0.unwrap().text().unwrap(), "inside");
    let invalid = Worker::builder(world.world()).register(fetch).allow_network("localhost").start().await;
    assert!(invalid.unwrap_err().message().contains("`localhost` is not a network"));
}
