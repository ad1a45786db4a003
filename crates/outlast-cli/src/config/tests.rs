use std::fs;

use clap::Parser;

use super::*;
use crate::args::Arguments;

fn nothing(_: &str) -> Option<String> {
    None
}

fn set(name: &str) -> Option<String> {
    match name {
        "OUTLAST_FORMAT" => Some("jsonl".into()),
        "OUTLAST_WORLD" => Some("sqlite:environment.db".into()),
        "OUTLAST_ACCESS_KEY" => Some("olk_environment".into()),
        _ => None,
    }
}

fn flags(arguments: &[&str]) -> CommonArgs {
    Arguments::parse_from([&["outlast", "list"], arguments].concat()).common
}

fn around(folder: &Path, variable: fn(&str) -> Option<String>) -> Surroundings {
    Surroundings { variable, folder: folder.to_owned() }
}

fn read(folder: &Path, arguments: &[&str], variable: fn(&str) -> Option<String>) -> Settings {
    Settings::read(&flags(arguments), &around(folder, variable)).unwrap()
}

/// A folder with a project file and the file of a person.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("user/outlast")).unwrap();
    fs::create_dir_all(folder.path().join("project/deep/.git")).unwrap();
    fs::write(
        folder.path().join("project/outlast.toml"),
        "world = 'sqlite:project.db'\n[profile.live]\nserver = 'https://live.example'\nformat = 'none'\n",
    )
    .unwrap();
    folder
}

#[test]
fn each_level_hides_those_below() {
    let folder = folder();
    let project = folder.path().join("project");
    let target =
        |arguments: &[&str], variable| read(&project, arguments, variable).target().unwrap().unwrap();
    let world = |value: &str, origin: Origin| Target::World(Sourced { value: value.into(), origin });

    let file = project.join("outlast.toml");
    assert_eq!(target(&[], nothing), world("sqlite:project.db", Origin::File(file.clone())));
    assert_eq!(target(&[], set), world("sqlite:environment.db", Origin::Environment));
    assert_eq!(target(&["--world", "sqlite:flag.db"], set), world("sqlite:flag.db", Origin::Flag));
    let server = Sourced {
        value: "https://live.example".to_owned(),
        origin: Origin::Profile(file.clone(), "live".into()),
    };
    assert_eq!(target(&["--profile", "live"], nothing), Target::Server(server));

    let format = |arguments: &[&str], variable| read(&project, arguments, variable).format().unwrap();
    assert_eq!(format(&[], nothing), Sourced { value: Format::Table, origin: Origin::Default });
    assert_eq!(format(&[], set), Sourced { value: Format::Jsonl, origin: Origin::Environment });
    assert_eq!(format(&["--json"], set), Sourced { value: Format::Json, origin: Origin::Flag });
    let from_profile = format(&["--profile", "live"], nothing);
    assert_eq!(from_profile, Sourced { value: Format::None, origin: Origin::Profile(file, "live".into()) });
}

#[test]
fn the_project_file_is_searched_up_to_the_root_of_the_repository() {
    let folder = folder();
    let inside = folder.path().join("project/deep");
    assert_eq!(read(&inside, &[], nothing).target().unwrap(), None, "`deep` is the root of a repository");
    fs::remove_dir(inside.join(".git")).unwrap();
    assert!(read(&inside, &[], nothing).target().unwrap().is_some());
}

#[test]
fn without_configuration_a_database_or_an_existing_file_is_used() {
    fn database(name: &str) -> Option<String> {
        (name == "DATABASE_URL").then(|| "postgres://app@db/shop".into())
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join(".git")).unwrap();
    assert_eq!(read(folder.path(), &[], nothing).target().unwrap(), None);
    fs::create_dir_all(folder.path().join(".outlast")).unwrap();
    fs::write(folder.path().join(".outlast/outlast.db"), "").unwrap();
    let origin = |variable| match read(folder.path(), &[], variable).target().unwrap() {
        Some(Target::World(world)) => world.origin,
        other => panic!("{other:?}"),
    };
    assert_eq!(origin(nothing), Origin::LocalFile);
    assert_eq!(origin(database), Origin::DatabaseUrl);
}

#[test]
fn mistakes_in_the_configuration_are_refused() {
    let folder = folder();
    let project = folder.path().join("project");
    let refused = |arguments: &[&str]| match Settings::read(&flags(arguments), &around(&project, nothing)) {
        Err(error) => error.to_string(),
        Ok(settings) => settings.target().unwrap_err().to_string(),
    };
    assert!(refused(&["--profile", "test"]).contains("there is no profile `test`"));
    let both = refused(&["--world", "sqlite:a.db", "--server", "http://127.0.0.1"]);
    assert!(both.contains("both a server and a world"), "{both}");
    fs::write(project.join("outlast.toml"), "wrold = 'sqlite:a.db'").unwrap();
    assert!(refused(&[]).contains("unknown field `wrold`"));
}

#[test]
fn a_key_comes_from_the_environment_or_a_file() {
    let folder = folder();
    let file = folder.path().join("key");
    fs::write(&file, "olk_file\n").unwrap();
    let key = |arguments: &[&str]| read(folder.path(), arguments, set).access_key().unwrap().unwrap();
    assert_eq!(key(&[]), Sourced { value: "olk_environment".into(), origin: Origin::Environment });
    let given = key(&["--access-key-file", file.to_str().unwrap()]);
    assert_eq!(given, Sourced { value: "olk_file".into(), origin: Origin::Flag });
}

#[test]
fn a_password_is_not_shown() {
    assert_eq!(without_password("postgres://app:secret@db/shop"), "postgres://app:***@db/shop");
    assert_eq!(without_password("sqlite:shop.db"), "sqlite:shop.db");
}
