//! The manifests of crates.

use super::Finding;

/// The settings that every published package has, besides its name and version.
const METADATA: [&str; 7] =
    ["description", "edition", "rust-version", "license", "readme", "keywords", "categories"];

/// Whether the file is the manifest of a library crate.
pub(crate) fn is_of_a_crate(path: &str) -> bool {
    matches!(path.split('/').collect::<Vec<_>>()[..], ["crates", _, "Cargo.toml"])
}

/// Whether the file is the manifest of any package.
pub(super) fn is_of_a_package(path: &str, text: &str) -> bool {
    path.ends_with("Cargo.toml") && text.lines().any(|line| line.trim() == "[package]")
}

/// Whether the package may be published.
pub(crate) fn is_published(text: &str) -> bool {
    setting(text, "package.publish").is_none_or(|value| !value.starts_with("false"))
}

/// The name of the package.
pub(crate) fn name(text: &str) -> Option<String> {
    Some(setting(text, "package.name")?.split('"').nth(1)?.to_owned())
}

/// Finds manifests that lack a licence or the lints of the workspace, and packages that cannot be published as they are.
pub(super) fn check(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !has(text, "license") {
        findings.push((1, "the crate has no licence; add `license.workspace = true` to `[package]`".into()));
    }
    if !setting(text, "lints.workspace").is_some_and(|value| value.starts_with("true")) {
        findings.push((
            1,
            "the crate does not use the workspace's lints; add `[lints]` with `workspace = true`".into(),
        ));
    }
    if is_published(text) {
        let missing = METADATA.iter().filter(|name| **name != "license" && !has(text, name));
        findings.extend(missing.map(|name| {
            (1, format!("the crate has no `{name}`; add it to `[package]`, or `publish = false`"))
        }));
        findings.extend(versioned_dev_dependencies(text));
    }
    findings
}

/// Finds packages outside of `crates` that could be published.
pub(super) fn check_unpublished(text: &str) -> Option<Finding> {
    let message = "only the crates in `crates` are published; add `publish = false` to `[package]`";
    is_published(text).then(|| (1, message.into()))
}

/// Finds dev-dependencies on crates of this repository that have a version. Most depend on the crate under test: cargo
/// could publish neither before the other. Without a version, the dependency is not part of the package.
fn versioned_dev_dependencies(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_dev = false;
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if let Some(table) = line.strip_prefix('[') {
            is_dev = table.contains("dev-dependencies");
        } else if is_dev && line.starts_with("outlast") {
            let by_path = line.contains("path =") && !line.contains("version =");
            if !by_path {
                findings.push((
                    index + 1,
                    "a dev-dependency on a crate of this repository has no version; write `{ path = … }`"
                        .into(),
                ));
            }
        }
    }
    findings
}

/// Whether the package has this setting, of its own or of the workspace.
fn has(text: &str, name: &str) -> bool {
    let own = format!("package.{name}");
    setting(text, &own).is_some() || setting(text, &format!("{own}.workspace")).is_some()
}

fn setting(text: &str, name: &str) -> Option<String> {
    settings(text).into_iter().find(|(found, _)| found == name).map(|(_, value)| value)
}

/// The settings on one line each, with their full names.
fn settings(text: &str) -> Vec<(String, String)> {
    let mut table = String::new();
    let mut settings = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            table = format!("{}.", name.trim());
        } else if let Some((name, value)) = line.split_once('=') {
            settings.push((format!("{table}{}", name.trim()), value.trim().to_string()));
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "\n[lints]\nworkspace = true # all of them\n";

    /// A manifest with all metadata, except for the named one.
    fn without(missing: &str) -> String {
        let names = METADATA.iter().filter(|name| **name != missing);
        let lines: Vec<_> = names.map(|name| format!("{name} = \"x\"")).collect();
        format!("[package]\n{}\n{LINTS}", lines.join("\n"))
    }

    #[test]
    fn a_crate_has_a_licence_and_the_lints_of_the_workspace() {
        let private = "[package]\npublish = false\n";
        assert_eq!(check(&format!("{private}license.workspace = true\n{LINTS}")), []);
        assert_eq!(check(&format!("lints.workspace = true\n{private}license = \"MIT\"\n")), []);
        assert_eq!(
            check(&format!("{private}[dependencies]\nlicense = \"1\"\n[lints]\nworkspace = false")).len(),
            2
        );
    }

    #[test]
    fn a_published_crate_has_all_metadata() {
        assert_eq!(check(&without("")), []);
        for name in METADATA {
            assert_eq!(check(&without(name)).len(), 1, "{name}");
            let private = without(name).replace("[package]", "[package]\npublish = false\nlicense = \"x\"");
            assert_eq!(check(&private), [], "{name}");
        }
    }

    #[test]
    fn a_published_crate_has_no_versioned_dev_dependency_on_a_crate_of_the_repository() {
        let found = |line: &str| check(&format!("{}[dev-dependencies]\n{line}\n", without(""))).len();
        assert_eq!(found("outlast-testkit = { path = \"../outlast-testkit\" } # a clock"), 0);
        assert_eq!(found("tokio.workspace = true"), 0);
        assert_eq!(found("outlast-testkit.workspace = true"), 1);
        assert_eq!(found("outlast-testkit = { path = \"../outlast-testkit\", version = \"0.1.0\" }"), 1);
    }

    #[test]
    fn other_packages_are_not_published() {
        assert!(check_unpublished("[package]\nname = \"bench\"\n").is_some());
        assert_eq!(check_unpublished("[package]\nname = \"bench\"\npublish = false\n"), None);
        assert!(is_of_a_package("bench/Cargo.toml", "[package]\n"));
        assert!(!is_of_a_package("Cargo.toml", "[workspace]\n"));
    }

    #[test]
    fn only_manifests_of_library_crates_are_checked() {
        assert!(is_of_a_crate("crates/outlast-core/Cargo.toml"));
        assert!(!is_of_a_crate("Cargo.toml") && !is_of_a_crate("bench/Cargo.toml"));
        assert!(!is_of_a_crate("crates/a/tests/b/Cargo.toml"));
    }

    #[test]
    fn the_name_of_a_package_is_read_from_its_manifest() {
        assert_eq!(name("[package]\nname = \"outlast\" # the engine\n").as_deref(), Some("outlast"));
        assert_eq!(name("[lib]\nname = \"outlast\"\n"), None);
    }
}
