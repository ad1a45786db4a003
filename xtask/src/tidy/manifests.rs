//! The manifests of crates.

use super::Finding;

/// Whether the file is the manifest of a library crate.
pub(super) fn is_of_a_crate(path: &str) -> bool {
    matches!(path.split('/').collect::<Vec<_>>()[..], ["crates", _, "Cargo.toml"])
}

/// Finds manifests without a licence or without the lints of the workspace.
pub(super) fn check(text: &str) -> Vec<Finding> {
    let settings = settings(text);
    let has = |names: &[&str]| settings.iter().any(|(name, _)| names.contains(&name.as_str()));
    let has_lints =
        settings.iter().any(|(name, value)| name == "lints.workspace" && value.starts_with("true"));
    let mut findings = Vec::new();
    if !has(&["package.license", "package.license.workspace"]) {
        findings.push((1, "the crate has no licence; add `license.workspace = true` to `[package]`".into()));
    }
    if !has_lints {
        findings.push((
            1,
            "the crate does not use the workspace's lints; add `[lints]` with `workspace = true`".into(),
        ));
    }
    findings
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

    #[test]
    fn a_crate_has_a_licence_and_the_lints_of_the_workspace() {
        let good = "[package]\nlicense.workspace = true\n\n[lints]\nworkspace = true # all of them\n";
        assert_eq!(check(good), []);
        assert_eq!(check("lints.workspace = true\n[package]\nlicense = \"MIT\"\n"), []);
        assert_eq!(check("[package]\n[dependencies]\nlicense = \"1\"\n[lints]\nworkspace = false").len(), 2);
    }

    #[test]
    fn only_manifests_of_library_crates_are_checked() {
        assert!(is_of_a_crate("crates/outlast-core/Cargo.toml"));
        assert!(!is_of_a_crate("Cargo.toml") && !is_of_a_crate("bench/Cargo.toml"));
        assert!(!is_of_a_crate("crates/a/tests/b/Cargo.toml"));
    }
}
