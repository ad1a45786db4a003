//! Where the program connects, and that it creates nothing.

use outlast_api::Problem;

use super::support::{Place, call, files};

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_world_is_not_created() {
    let folder = tempfile::tempdir().unwrap();
    for command in [&["world", "info"][..], &["list"], &["doctor"], &["start", "a"], &["worker", "list"]] {
        let called = call(folder.path(), command, &[("OUTLAST_WORLD", "sqlite:none.db")]).await;
        assert_ne!(called.code, 0, "{command:?}");
        assert!(files(folder.path()).is_empty(), "{command:?}");
    }
    call(folder.path(), &["world", "migrate", "--world", "sqlite:new/shop.db"], &[]).await.ok();
    let called = call(folder.path(), &["world", "info", "--world", "sqlite:new/shop.db"], &[]).await.ok();
    assert!(called.out.contains("durability"), "{called:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_origin_of_every_value_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("config/outlast")).unwrap();
    std::fs::write(folder.path().join("config/outlast/config.toml"), "utc = true\n").unwrap();
    std::fs::write(folder.path().join("outlast.toml"), "timeout = '30s'\ncolor = 'never'\n").unwrap();
    let arguments = ["config", "show", "--origin", "--world", "sqlite:a.db"];
    let called = call(folder.path(), &arguments, &[("OUTLAST_COLOR", "always")]).await.ok();
    let line = |name: &str| {
        let found = called.out.lines().find(|line| line.contains(name));
        found.unwrap_or_else(|| panic!("{name}: {called:?}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("world"), "world sqlite:a.db flag --world");
    assert_eq!(line("color"), "color always environment OUTLAST_COLOR");
    assert!(line("timeout").starts_with("timeout 30s ") && line("timeout").ends_with("outlast.toml"));
    assert!(line("utc").ends_with("config/outlast/config.toml"), "{}", line("utc"));
    assert_eq!(line("format"), "format table default");
    assert_eq!(line("access_key"), "access_key - default");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_access_key_is_never_printed() {
    let place = Place::new().await;
    let variables = [("OUTLAST_ACCESS_KEY", "olk_canary"), ("OUTLAST_SERVER", "http://127.0.0.1:1")];
    for command in [&["config", "show", "--origin"][..], &["list"], &["doctor"], &["list", "-vv", "--json"]] {
        let called = place.call_with(command, &variables).await;
        assert!(!called.out.contains("canary") && !called.err.contains("canary"), "{called:?}");
    }
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_problem_documents_if_data_is_json() {
    let place = Place::new().await;
    let called = place.call(&["show", "nothing", "--json"]).await;
    let problem: Problem = serde_json::from_str(&called.err).unwrap();
    assert_eq!((called.code, problem.code.as_str(), problem.status), (3, "not_found", 404));
    place.stop().await;
}
