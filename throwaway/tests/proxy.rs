//! Tests of the proxy.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use throwaway::{Address, NetworkCondition, Postgres, Proxy, Toward, proxy};

const REQUEST: &[u8] = b"What time is it?";
const ANSWER: &[u8] = b"Late.";

/// The time limit for expected events.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the tests wait for events that must not happen.
const MOMENT: Duration = Duration::from_millis(50);

/// A server that answers each complete request, and sends all received bytes to the channel when a connection ends.
fn server() -> (Address, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (heard, all_heard) = sync_channel(1_000);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, heard) = (client.unwrap(), heard.clone());
            std::thread::spawn(move || {
                let (mut output, mut byte) = (Vec::new(), [0]);
                while client.read(&mut byte).is_ok_and(|bytes| bytes == 1) {
                    output.push(byte[0]);
                    if output.ends_with(REQUEST) {
                        let _ = client.write_all(ANSWER);
                    }
                }
                let _ = heard.send(output);
            });
        }
    });
    let own = String::from;
    let (user, password, database) = (own("ada"), own("secret"), own("books"));
    (Address { host: own("127.0.0.1"), port, user, password, database }, all_heard)
}

fn connect(proxy: &Proxy) -> std::io::Result<TcpStream> {
    let client = TcpStream::connect((&*proxy.address().host, proxy.address().port))?;
    client.set_read_timeout(Some(PATIENCE))?;
    Ok(client)
}

/// Sends a request, and returns all bytes of the answer until the end of the connection.
fn ask_to_the_end(proxy: &Proxy) -> Vec<u8> {
    let mut client = connect(proxy).unwrap();
    let _ = client.write_all(REQUEST);
    let mut answer = Vec::new();
    // A connection that was cut may end with an error after the answer.
    let _ = client.read_to_end(&mut answer);
    answer
}

fn ask(client: &mut TcpStream) {
    client.write_all(REQUEST).unwrap();
    hear(client);
}

fn hear(client: &mut TcpStream) {
    let mut answer = [0; ANSWER.len()];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, ANSWER);
}

#[test]
fn in_the_normal_condition_everything_arrives_and_is_counted() {
    let (address, heard) = server();
    let proxy = proxy(&address.to_string()).unwrap();
    assert_eq!(proxy.url(), address.through(proxy.address().port).to_string());
    let exchange = proxy.watch("");
    let mut client = connect(&proxy).unwrap();
    ask(&mut client);
    assert_eq!(exchange.bytes(Toward::Server), REQUEST.len() as u64);
    assert_eq!(exchange.bytes(Toward::Client), ANSWER.len() as u64);
    ask(&mut client);
    drop(client);
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), [REQUEST, REQUEST].concat());
    assert!(!exchange.is_cut());
}

#[test]
fn a_cut_passes_exactly_the_given_bytes_of_a_request() {
    let (address, heard) = server();
    let proxy = proxy(&address.to_string()).unwrap();
    for bytes in 0..=REQUEST.len() {
        let exchange = proxy.cut("", Toward::Server, bytes as u64);
        assert_eq!(ask_to_the_end(&proxy), b"");
        assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), &REQUEST[..bytes]);
        assert!(exchange.is_over_within(PATIENCE) && exchange.is_cut());
    }
}

#[test]
fn a_cut_passes_exactly_the_given_bytes_of_an_answer() {
    let (address, heard) = server();
    let proxy = proxy(&address.to_string()).unwrap();
    for bytes in 0..=ANSWER.len() {
        let exchange = proxy.cut("", Toward::Client, bytes as u64);
        assert_eq!(ask_to_the_end(&proxy), &ANSWER[..bytes]);
        assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), REQUEST);
        assert!(exchange.is_over_within(PATIENCE) && exchange.is_cut());
    }
}

#[test]
fn a_pattern_selects_the_exchange_and_the_others_continue() {
    let (address, _heard) = server();
    let proxy = proxy(&address.to_string()).unwrap();
    let exchange = proxy.cut("is it for Ada", Toward::Server, 3);
    let mut other = connect(&proxy).unwrap();
    ask(&mut other);
    assert!(!exchange.is_cut());
    let mut chosen = connect(&proxy).unwrap();
    ask(&mut chosen);
    chosen.write_all(b"What time is it for Ada?").unwrap();
    assert_eq!(chosen.read(&mut [0]).unwrap(), 0);
    assert!(exchange.is_over_within(PATIENCE));
    assert_eq!(exchange.bytes(Toward::Server), 3);
    ask(&mut other);
    assert_eq!(proxy.connections(), 1);
}

#[test]
fn a_new_watch_replaces_the_previous_one() {
    let (address, _heard) = server();
    let proxy = proxy(&address.to_string()).unwrap();
    let first = proxy.cut("", Toward::Client, 1_000);
    let mut client = connect(&proxy).unwrap();
    ask(&mut client);
    let second = proxy.cut("", Toward::Client, 2);
    client.write_all(REQUEST).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, &ANSWER[..2]);
    assert_eq!((first.bytes(Toward::Client), first.is_cut()), (ANSWER.len() as u64, false));
    assert!(second.is_over_within(PATIENCE));
}

#[test]
fn a_stalled_network_delivers_nothing_until_the_condition_changes() {
    let (address, heard) = server();
    let mut proxy = proxy(&address.to_string()).unwrap();
    let mut old = connect(&proxy).unwrap();
    ask(&mut old);
    proxy.set(NetworkCondition::Stalled).unwrap();
    let mut new = connect(&proxy).unwrap();
    for client in [&mut old, &mut new] {
        client.set_read_timeout(Some(MOMENT)).unwrap();
        client.write_all(REQUEST).unwrap();
        let silence = client.read(&mut [0]).unwrap_err();
        assert!(matches!(silence.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence}");
    }
    assert!(heard.try_recv().is_err());
    proxy.set(NetworkCondition::Normal).unwrap();
    for client in [&mut old, &mut new] {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        hear(client);
    }
}

#[test]
fn a_slow_network_delays_both_directions() {
    let (address, _heard) = server();
    let mut proxy = proxy(&address.to_string()).unwrap();
    let mut client = connect(&proxy).unwrap();
    ask(&mut client);
    proxy.set(NetworkCondition::Slow(MOMENT)).unwrap();
    assert!(time_of(|| ask(&mut client)) >= 2 * MOMENT);
    proxy.set(NetworkCondition::Normal).unwrap();
    ask(&mut client);
}

#[test]
fn only_new_connections_are_refused_and_the_address_stays() {
    let (address, _heard) = server();
    let mut proxy = proxy(&address.to_string()).unwrap();
    let mut old = connect(&proxy).unwrap();
    ask(&mut old);
    for _ in 0..3 {
        proxy.set(NetworkCondition::Refusing).unwrap();
        assert_eq!(connect(&proxy).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        ask(&mut old);
        proxy.set(NetworkCondition::Normal).unwrap();
        ask(&mut connect(&proxy).unwrap());
    }
}

#[test]
fn all_connections_can_be_cut_even_when_the_network_is_stalled() {
    let (address, heard) = server();
    let mut proxy = proxy(&address.to_string()).unwrap();
    let mut clients: Vec<_> = (0..3).map(|_| connect(&proxy).unwrap()).collect();
    clients.iter_mut().for_each(ask);
    proxy.set(NetworkCondition::Stalled).unwrap();
    proxy.cut_all();
    for client in &mut clients {
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), REQUEST);
    }
    assert_eq!(proxy.connections(), 0);
}

#[test]
fn a_dropped_proxy_closes_its_connections() {
    let (address, heard) = server();
    let proxy = proxy(&address.to_string()).unwrap();
    let mut client = connect(&proxy).unwrap();
    ask(&mut client);
    let port = proxy.address().port;
    drop(proxy);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), REQUEST);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn without_a_server_the_connection_ends() {
    let (address, _heard) = server();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let proxy = proxy(&address.through(nobody).to_string()).unwrap();
    assert_eq!(ask_to_the_end(&proxy), b"");
}

#[test]
fn postgres_executes_only_statements_that_it_has_received_completely() {
    let server = Postgres::builder().quick().start().unwrap();
    let proxy = proxy(&server.url()).unwrap();
    let psql = |url: &str, sql: &str| {
        let mut command = Command::new(server.programs().join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-c", sql, url]).stdin(Stdio::null());
        String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    let insert = |number: u64| format!("INSERT INTO t VALUES ({number:03})");
    psql(&server.url(), "CREATE TABLE t (n int)");
    // A byte with the type, the length, and the text with a zero.
    let request = insert(0).len() as u64 + 6;
    let mut expected = String::new();
    for bytes in 0..=request {
        let exchange = proxy.cut("INSERT", Toward::Server, bytes);
        psql(&proxy.url(), &insert(bytes));
        assert!(exchange.is_over_within(PATIENCE), "cut after byte {bytes}");
    }
    expected.push_str(&request.to_string());
    for bytes in 0..3 {
        let exchange = proxy.cut("INSERT", Toward::Client, bytes);
        psql(&proxy.url(), &insert(100 + bytes));
        assert!(exchange.is_over_within(PATIENCE), "answer cut after byte {bytes}");
        expected.push_str(&format!(" {}", 100 + bytes));
    }
    assert_eq!(psql(&server.url(), "SELECT string_agg(n::text, ' ') FROM t"), expected);
}

#[allow(clippy::disallowed_methods, reason = "a network lives in real time")]
fn time_of(work: impl FnOnce()) -> Duration {
    let begin = std::time::Instant::now();
    work();
    begin.elapsed()
}
