//! TLS: the server's certificate must be signed by a trusted authority and issued for the host name.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{TestSchema, start, wait_until};
use outlast_core::{RunId, WorldError};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;
use throwaway::Postgres;

/// Runs `openssl` in the folder; `None` if it is not installed.
fn openssl(folder: &Path, arguments: &str) -> Option<()> {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

/// Creates an authority, and a certificate for a name that it has signed.
fn certificates(folder: &Path, name: &str) -> Option<()> {
    std::fs::write(folder.join("names"), format!("subjectAltName={name}")).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(folder, &format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"))?;
    openssl(folder, &format!("req -new {key} -keyout server.key -out server.csr -subj /CN=server"))?;
    openssl(
        folder,
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    )
}

/// Lets the server use TLS with a certificate for the name. Returns the path of the authority's certificate.
async fn with_tls(server: &Postgres, name: &str) -> Option<PathBuf> {
    let folder = server.folder().join(name.replace([':', '.'], "_"));
    std::fs::create_dir(&folder).unwrap();
    certificates(&folder, name)?;
    let owner = std::fs::metadata(server.folder()).unwrap();
    for file in ["server.key", "server.pem", ""] {
        let path = folder.join(file);
        let mode = if file.is_empty() { 0o700 } else { 0o600 };
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    let client = TestSchema::on(&server.url(), TestClock::new()).connect().await;
    for (setting, value) in [
        ("ssl_cert_file", folder.join("server.pem").display().to_string()),
        ("ssl_key_file", folder.join("server.key").display().to_string()),
        ("ssl", "on".into()),
    ] {
        client.batch_execute(&format!("ALTER SYSTEM SET {setting} = '{value}'")).await.unwrap();
    }
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let cert = folder.join("server.pem").display().to_string();
    wait_until("the server has read its settings", async || {
        let client = TestSchema::on(&server.url(), TestClock::new()).connect().await;
        let sql = "SELECT current_setting('ssl') = 'on' AND current_setting('ssl_cert_file') = $1";
        client.query_one(sql, &[&cert]).await.unwrap().get(0)
    })
    .await;
    Some(folder.join("ca.pem"))
}

async fn open(url: &str) -> Result<PostgresWorld, WorldError> {
    PostgresWorld::open(url, PostgresOptions::new()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_checked_against_the_authority_and_the_name() {
    let server = Postgres::builder().quick().start().unwrap();
    let test_schema = TestSchema::on(&server.url(), TestClock::new());
    let url = test_schema.url();
    let plain = open(&format!("{url}&sslmode=require")).await.unwrap_err();
    assert!(matches!(&plain, WorldError::Invalid(why) if why.contains("turn `ssl` on")), "{plain}");
    let Some(authority) = with_tls(&server, "IP:127.0.0.1").await else {
        return println!("skipped: there is no `openssl` to make a certificate");
    };
    let trusted = format!("{url}&sslmode=require&sslrootcert={}", authority.display());
    let world = open(&trusted).await.unwrap();
    start(&world, RunId::from_bits(1)).await;
    let sql = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
               WHERE s.ssl AND a.application_name = 'outlast'";
    let client = test_schema.connect().await;
    wait_until("the connections of the pool and the listener are encrypted", async || {
        client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) >= 2
    })
    .await;
    let unknown = open(&format!("{url}&sslmode=require")).await.unwrap_err();
    assert!(matches!(&unknown, WorldError::Invalid(why) if why.contains("sslrootcert=")), "{unknown}");
    drop(open(&format!("{url}&sslmode=prefer")).await.unwrap());
    let missing = open(&format!("{url}&sslmode=require&sslrootcert=/no/such.pem")).await.unwrap_err();
    assert!(matches!(&missing, WorldError::Invalid(why) if why.contains("/no/such.pem")), "{missing}");
    let key = authority.with_file_name("ca.key");
    let empty = open(&format!("{url}&sslmode=require&sslrootcert={}", key.display())).await.unwrap_err();
    assert!(matches!(&empty, WorldError::Invalid(why) if why.contains("PEM file")), "{empty}");
    // A certificate for another name.
    let other = with_tls(&server, "DNS:elsewhere.example").await.unwrap();
    let wrong =
        open(&format!("{url}&sslmode=verify-full&sslrootcert={}", other.display())).await.unwrap_err();
    assert!(
        matches!(&wrong, WorldError::Invalid(why) if why.contains("host name that the server's certificate is issued for")),
        "{wrong}"
    );
}
