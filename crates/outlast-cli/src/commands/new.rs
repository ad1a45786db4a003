//! `new`: writes a project that compiles.

use std::fs;
use std::path::Path;

use super::CommandContext;
use crate::args::NewArgs;
use crate::exit::{CommandError, Exit};

const MAIN: &str = include_str!("../../templates/main.rs");
const README: &str = include_str!("../../templates/README.md");

/// Writes a new project.
pub(super) fn new(context: &CommandContext, args: &NewArgs) -> Result<Exit, CommandError> {
    let folder = &args.folder;
    let name = package_name(folder)?;
    if folder.exists() && fs::read_dir(folder)?.next().is_some() {
        let detail = format!("{} is not empty; choose a new folder", folder.display());
        return Err(CommandError::usage(detail));
    }
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("Cargo.toml"), manifest(&name, args.path.as_deref())?)?;
    fs::write(folder.join("src/main.rs"), MAIN)?;
    fs::write(folder.join("README.md"), README.replace("PACKAGE", &name))?;
    fs::write(folder.join(".gitignore"), "/target\n/.outlast\n")?;
    let console = &context.console;
    console.message(format!("wrote {}; next:", folder.display()));
    console.message(format!("  cd {}", folder.display()));
    console.message("  cargo run -- dev");
    console.message("  cargo run -- start checkout '[\"Ada\", 4200]'      (in another terminal)");
    Ok(Exit::Done)
}

fn package_name(folder: &Path) -> Result<String, CommandError> {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let begins_well = name.starts_with(|first: char| first.is_ascii_alphabetic());
    let is_plain =
        name.chars().all(|character| character.is_ascii_alphanumeric() || "-_".contains(character));
    if begins_well && is_plain && !["outlast", "test", "core", "std"].contains(&name.as_str()) {
        return Ok(name);
    }
    let rule = "use letters, digits, - and _, beginning with a letter";
    Err(CommandError::usage(format!("`{name}` cannot be the name of a package; {rule}")))
}

fn manifest(name: &str, checkout: Option<&Path>) -> Result<String, CommandError> {
    let version = env!("CARGO_PKG_VERSION");
    let dependency = |package: &str| -> Result<String, CommandError> {
        let Some(checkout) = checkout else { return Ok(format!("{package} = \"{version}\"\n")) };
        let path = fs::canonicalize(checkout.join("crates").join(package));
        let path = path.map_err(|error| {
            CommandError::usage(format!("{} is not a checkout of Outlast: {error}", checkout.display()))
        })?;
        // As a string of TOML.
        let path = serde_json::to_string(&path).map_err(|error| CommandError::failure(error.to_string()))?;
        Ok(format!("{package} = {{ path = {path} }}\n"))
    };
    Ok(format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{}{}serde = {{ version = \"1\", features = [\"derive\"] }}\n",
        dependency("outlast")?,
        dependency("outlast-cli")?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_packages_are_checked() {
        assert_eq!(package_name(Path::new("a/my-app")).unwrap(), "my-app");
        for wrong in ["7up", "a b", "outlast", "ü", ".."] {
            assert!(package_name(Path::new(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_manifest_is_valid() {
        let text = manifest("my-app", None).unwrap();
        let parsed: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(parsed["package"]["name"].as_str(), Some("my-app"));
        assert!(manifest("my-app", Some(Path::new("nowhere"))).is_err());
    }
}
