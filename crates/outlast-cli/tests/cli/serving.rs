//! `dev` and `serve`: the API and the dashboard at one address.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use outlast_api::{Problem, Role};
use outlast_server::{AccessKey, AccessKeys};

use super::support::program;

/// A server in a process of its own, which ends with this value.
struct ServerProcess {
    child: Child,
    /// What it printed until it was ready.
    lines: String,
}

impl ServerProcess {
    /// Starts a command, and waits until it has printed this.
    fn start(mut command: Command, ready: &str) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stderr.take().unwrap());
        let mut lines = String::new();
        while !lines.contains(ready) {
            assert_ne!(output.read_line(&mut lines).unwrap(), 0, "it has ended: {lines}");
        }
        Self { child, lines }
    }

    /// A server on a world of its own, with these arguments.
    fn serve(folder: &Path, arguments: &[&str]) -> Self {
        migrate(folder);
        let arguments = [&["serve", "--listen", "127.0.0.1:0"], arguments].concat();
        Self::start(program(folder, &arguments, &[WORLD]), "/api\n")
    }

    /// The address that it has printed.
    fn address(&self) -> &str {
        let (_, rest) = self.lines.split_once("http://").unwrap();
        rest.split('/').next().unwrap()
    }

    /// Reads a path.
    fn get(&self, path: &str, headers: &str) -> Reply {
        let host = self.address();
        request(TcpStream::connect(host).unwrap(), "GET", path, &format!("Host: {host}\r\n{headers}"), "")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const WORLD: (&str, &str) = ("OUTLAST_WORLD", "sqlite:shop.db");

fn migrate(folder: &Path) {
    assert!(program(folder, &["world", "migrate"], &[WORLD]).output().unwrap().status.success());
}

/// A response.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }
}

fn request(mut stream: impl Read + Write, method: &str, path: &str, headers: &str, body: &str) -> Reply {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n");
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut text = Vec::new();
    stream.read_to_end(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}

/// Check 1. The time until it is ready is measured by the benchmark BD.
#[test]
fn dev_in_an_empty_folder_answers_on_all_its_addresses() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".git")).unwrap();
    let dev = ServerProcess::start(program(folder.path(), &["dev", "--port", "0"], &[]), "/api\n");
    assert!(dev.lines.contains("(new)") && dev.lines.contains("dashboard  http://"), "{}", dev.lines);
    for path in ["/livez", "/readyz", "/openapi.json", "/metrics", "/api/runs", "/runs"] {
        assert_eq!(dev.get(path, "").status, 200, "{path}");
    }
    let root = dev.get("/", "");
    assert_eq!((root.status, root.header("location")), (303, "/runs"));
    assert!(dev.get("/runs", "").body.contains("No runs yet"));
    let nowhere: Problem = serde_json::from_str(&dev.get("/api/nowhere", "").body).unwrap();
    assert_eq!(nowhere.code, "not_found");
    assert_eq!(dev.get("/runs", "X-Forwarded-For: 10.0.0.1\r\n").status, 403, "a proxy makes it public");
}

#[test]
fn parts_of_a_server_are_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    migrate(folder.path());
    let paths = ["/runs", "/api/runs", "/metrics", "/readyz"];
    let statuses = |arguments: &[&str], ready: &str| {
        let arguments = [&["serve", "--listen", "127.0.0.1:0", "--insecure-no-auth"], arguments].concat();
        let server = ServerProcess::start(program(folder.path(), &arguments, &[WORLD]), ready);
        paths.map(|path| server.get(path, "").status)
    };
    assert_eq!(statuses(&["--no-api"], "/readyz\n"), [200, 404, 200, 200]);
    assert_eq!(statuses(&["--no-metrics"], "/api\n"), [200, 200, 404, 200]);
    assert_eq!(statuses(&["--no-dashboard"], "/api\n"), [404, 200, 200, 200]);
    let probes_only = ["--no-api", "--no-dashboard", "--no-webhooks", "--no-metrics"];
    assert_eq!(statuses(&probes_only, "/readyz\n"), [404, 404, 404, 200]);
}

/// A proxy that removes the path, and one that does not.
#[test]
fn a_server_below_a_path_has_it_in_its_links() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::serve(folder.path(), &["--insecure-no-auth", "--base-path", "/ops/outlast"]);
    assert!(server.lines.contains("/ops/outlast/api\n"), "{}", server.lines);
    for path in ["/", "/ops/outlast", "/ops/outlast/"] {
        assert_eq!(server.get(path, "").header("location"), "/ops/outlast/runs", "{path}");
    }
    for path in ["/runs", "/ops/outlast/runs"] {
        let page = server.get(path, "");
        assert_eq!(page.status, 200, "{path}");
        assert!(page.body.contains("href=\"/ops/outlast/failures\""), "{path}: {}", page.body);
    }
    for path in ["/openapi.json", "/ops/outlast/openapi.json"] {
        assert!(server.get(path, "").body.contains("{\"url\":\"/ops/outlast\"}"), "{path}");
    }
    assert_eq!(server.get("/ops/outlast/api/runs?limit=1", "").status, 200);
    drop(server);
    let wrong = program(folder.path(), &["serve", "--base-path", "ops"], &[WORLD]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[cfg(unix)]
#[test]
fn dev_opens_the_dashboard_in_a_browser() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".git")).unwrap();
    let (browser, pipe) = (folder.path().join("browser"), folder.path().join("pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::write(&browser, format!("#!/bin/sh\necho \"$1\" > '{}'\n", pipe.display())).unwrap();
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o700)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let variables = [("BROWSER", browser.to_str().unwrap()), ("PATH", &*path)];
    let arguments = ["dev", "--port", "0", "--open"];
    let dev = ServerProcess::start(program(folder.path(), &arguments, &variables), "/api\n");
    // Reading the pipe waits for the browser.
    let opened = std::fs::read_to_string(&pipe).unwrap();
    assert_eq!(opened, format!("http://{}/\n", dev.address()));
    assert_eq!(dev.get("/runs", "").status, 200);
    let variables = [("BROWSER", "no-such-browser")];
    let alone = ServerProcess::start(program(folder.path(), &arguments, &variables), "open http");
    assert!(alone.lines.contains("no-such-browser"), "it goes on: {}", alone.lines);
}

#[test]
fn a_server_has_pages_behind_a_login_with_its_access_keys() {
    let folder = tempfile::tempdir().unwrap();
    let (key, stored) = AccessKey::generate("ada", Role::Read).unwrap();
    std::fs::write(folder.path().join("keys.json"), AccessKeys::new([stored]).to_json()).unwrap();
    let server = ServerProcess::serve(folder.path(), &["--keys", "keys.json", "--environment", "production"]);
    assert_eq!(server.get("/runs", "").header("location"), "/login?next=%2Fruns");
    assert_eq!(server.get("/api/runs", "").status, 401);
    let host = server.address();
    let headers = format!("Host: {host}\r\nOrigin: http://{host}\r\n");
    let body = format!("key={}", key.secret());
    let entered = request(TcpStream::connect(host).unwrap(), "POST", "/login", &headers, &body);
    let cookie = entered.header("set-cookie").split(';').next().unwrap();
    assert!(cookie.starts_with("outlast_"), "{entered:?}");
    let page = server.get("/runs", &format!("Cookie: {cookie}\r\n"));
    assert_eq!(page.status, 200);
    assert!(page.body.contains("ada · read") && page.body.contains(">production</span>"));
    let api = server.get("/api/me", &format!("Cookie: {cookie}\r\n"));
    assert_eq!(api.status, 401, "the cookie is for pages only");
    drop(server);
    let bare = ServerProcess::serve(folder.path(), &["--keys", "keys.json", "--no-dashboard"]);
    assert_eq!(bare.get("/runs", "").status, 404);
}

#[test]
fn payloads_are_for_the_role_that_may_see_them() {
    let folder = tempfile::tempdir().unwrap();
    migrate(folder.path());
    let start = ["start", "nap", "\"canary\"", "--version", "1"];
    assert!(program(folder.path(), &start, &[WORLD]).output().unwrap().status.success());
    let seen_by = |role: &str| {
        let arguments =
            ["--identity-header", "X-User", "--trusted-proxy", "127.0.0.1", "--identity-role", role];
        let arguments = [&arguments[..], &["--payload-role", "operate"]].concat();
        let server = ServerProcess::serve(folder.path(), &arguments);
        let get = |path: &str| server.get(path, "X-User: ada\r\n").body;
        let runs = get("/api/runs");
        let run = runs[runs.find("run_").unwrap()..].split('"').next().unwrap().to_owned();
        let paths = [format!("/api/runs/{run}/events?payloads=full"), format!("/runs/{run}")];
        paths.map(|path| get(&path).contains("canary"))
    };
    assert_eq!(seen_by("read"), [false, false]);
    assert_eq!(seen_by("operate"), [true, true]);
}

#[test]
fn a_trusted_proxy_names_the_person() {
    let folder = tempfile::tempdir().unwrap();
    let with = |proxy: &str| {
        let arguments =
            ["--identity-header", "X-User", "--trusted-proxy", proxy, "--identity-role", "operate"];
        ServerProcess::serve(folder.path(), &arguments)
    };
    let server = with("127.0.0.1");
    let me = server.get("/api/me", "X-User: ada\r\n");
    assert!(me.body.contains("\"actor\":\"ada\",\"role\":\"operate\""), "{me:?}");
    assert!(server.get("/runs", "X-User: ada\r\n").body.contains("ada · operate"));
    for path in ["/api/me", "/runs"] {
        assert_eq!(server.get(path, "").status, 401, "{path}");
    }
    drop(server);
    let elsewhere = with("192.0.2.1");
    for path in ["/api/me", "/runs"] {
        assert_eq!(elsewhere.get(path, "X-User: ada\r\n").status, 403, "{path}");
    }
    let alone = program(folder.path(), &["serve", "--identity-header", "X-User"], &[WORLD]).output().unwrap();
    assert_eq!(alone.status.code(), Some(2), "a header that anybody may set is no identity");
}

/// Check 34: the program needs no network. It runs where there is none, and answers on a Unix socket.
#[cfg(target_os = "linux")]
#[test]
fn a_unix_socket_answers_where_there_is_no_network() {
    use std::os::unix::net::UnixStream;
    let unshare = ["--user", "--map-root-user", "--net"];
    let is_possible = Command::new("unshare").args(unshare).arg("true").output();
    if !is_possible.is_ok_and(|output| output.status.success()) {
        let reason = "`unshare` may not create a namespace without a network";
        return throwaway::skipped::report("a_unix_socket_answers_where_there_is_no_network", reason);
    }
    let folder = tempfile::tempdir().unwrap();
    migrate(folder.path());
    let arguments = ["serve", "--insecure-no-auth", "--socket", "outlast.sock"];
    let plain = program(folder.path(), &arguments, &[WORLD]);
    let mut command = Command::new("unshare");
    command.args(unshare).arg(plain.get_program()).args(plain.get_args()).current_dir(folder.path());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
    let server = ServerProcess::start(command, "socket ");
    let socket = folder.path().join("outlast.sock");
    for path in ["/livez", "/readyz", "/api/runs", "/metrics", "/runs"] {
        let stream = UnixStream::connect(&socket).unwrap();
        let reply = request(stream, "GET", path, "Host: localhost\r\n", "");
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
    }
    drop(server);
}
