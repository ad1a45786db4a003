//! Access keys on the command line.

use serde_json::Value;

use super::support::call;

#[tokio::test(flavor = "multi_thread")]
async fn access_keys_are_made_listed_and_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let access = async |arguments: &[&str]| {
        let all = [&["access"], arguments, &["--keys", "keys.json"]].concat();
        call(folder.path(), &all, &[]).await
    };
    let created =
        access(&["create", "--name", "ci", "--role", "operate", "--expires", "90d", "--json"]).await.ok();
    let key: Value = created.json();
    let (id, secret) = (key["id"].as_str().unwrap(), key["secret"].as_str().unwrap());
    assert!(secret.starts_with("olk_"), "{created:?}");
    access(&["create", "--name", "ada", "--role", "admin"]).await.ok();
    let listed = access(&["list"]).await.ok().out;
    assert!(listed.contains("ci") && listed.contains("ada") && listed.contains(id), "{listed}");
    let stored = std::fs::read_to_string(folder.path().join("keys.json")).unwrap();
    assert!(!stored.contains(secret) && !listed.contains(secret), "only digests are stored");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(folder.path().join("keys.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    access(&["revoke", id]).await.ok();
    assert_eq!(access(&["revoke", id]).await.code, 3);
    assert!(!access(&["list"]).await.ok().out.contains(id));
    assert_eq!(access(&["create", "--name", "x", "--role", "boss"]).await.code, 2);
}
