//! The files in `deploy`: each is parsed, uses arguments and metrics that exist, and has what a deployment needs.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(folder().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn yaml(file: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn texts(list: &Yaml) -> Vec<String> {
    list.as_vec().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// The program accepts the arguments: with `--help` it does nothing else.
fn assert_accepted(file: &str, arguments: &[String]) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_outlast"));
    program.args(arguments).arg("--help").env_clear().stdin(Stdio::null());
    let output = program.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{file}: `outlast {}`: {message}", arguments.join(" "));
}

/// The metrics of the guide's page. A test of the server compares the page with what exists.
fn metrics() -> BTreeSet<String> {
    let page = include_str!("../../../docs/guide/src/metrics-and-traces.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let is_metric = |name: &&str| name.starts_with("outlast_") || name.starts_with("process_");
    let names = rows.filter_map(|row| row.split('`').nth(1)).filter(is_metric);
    let names: BTreeSet<_> = names.map(str::to_owned).collect();
    assert!(names.len() > 30);
    names
}

/// The names of metrics in an expression.
fn names_in(expression: &str) -> Vec<String> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = expression.split(|character| !is_part(character));
    let names = words.filter(|word| word.starts_with("outlast_") || word.starts_with("process_"));
    names.map(str::to_owned).collect()
}

fn assert_metrics_exist(file: &str, expression: &str) {
    let metrics = metrics();
    for name in names_in(expression) {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let exists = metrics.contains(&name) || base.is_some_and(|base| metrics.contains(base));
        assert!(exists, "{file} uses {name}, which does not exist: {expression}");
    }
}

#[test]
fn dockerfiles_build_a_program_that_does_not_run_as_root() {
    for (file, program) in [("Dockerfile", "outlast"), ("Dockerfile.worker", "shop")] {
        let text = read(file).replace("\\\n", " ");
        let instructions: Vec<(&str, &str)> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.trim().split_once(' '))
            .collect();
        let all = |name: &str| -> Vec<&str> {
            instructions.iter().filter(|(found, _)| *found == name).map(|(_, rest)| *rest).collect()
        };
        let known = ["FROM", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"];
        assert!(instructions.iter().all(|(name, _)| known.contains(name)), "{file}: {instructions:?}");
        let version = env!("CARGO_PKG_RUST_VERSION");
        assert!(
            all("FROM")[0].starts_with(&format!("rust:{version}")),
            "{file} builds with the supported version"
        );
        assert_eq!(all("FROM").len(), 2, "{file}: the image does not contain the compiler");
        assert_eq!(all("USER"), ["10001:10001"], "{file}");
        assert_eq!(all("STOPSIGNAL"), ["SIGTERM"], "{file}");
        let entry: Vec<String> = serde_json::from_str(all("ENTRYPOINT")[0]).unwrap();
        assert_eq!(entry, [program]);
        let arguments: Vec<String> = serde_json::from_str(all("CMD")[0]).unwrap();
        assert_accepted(file, &arguments);
    }
}

#[test]
fn the_compose_file_migrates_before_it_serves_and_works() {
    let file = &yaml("compose.yaml")[0];
    let services = &file["services"];
    for name in ["migrate", "server", "worker"] {
        assert_accepted("compose.yaml", &texts(&services[name]["command"]));
        assert!(services[name]["environment"]["OUTLAST_WORLD"].as_str().unwrap().starts_with("postgres://"));
    }
    for name in ["server", "worker"] {
        let condition = services[name]["depends_on"]["migrate"]["condition"].as_str();
        assert_eq!(condition, Some("service_completed_successfully"), "{name}");
    }
    assert_eq!(services["migrate"]["depends_on"]["postgres"]["condition"].as_str(), Some("service_healthy"));
    assert!(!services["postgres"]["healthcheck"]["test"].is_badvalue());
    let ports = texts(&services["server"]["ports"]);
    assert!(ports.iter().all(|port| port.starts_with("127.0.0.1:")), "not on all interfaces: {ports:?}");
    assert!(!read("compose.yaml").contains("PASSWORD: outlast"), "no default password");
    let secret = file["secrets"].as_hash().unwrap().keys().next().unwrap().as_str().unwrap().to_owned();
    assert!(texts(&services["server"]["command"]).contains(&format!("/run/secrets/{secret}")));
}

#[test]
fn the_manifests_have_probes_limits_and_no_privileges() {
    let manifests = yaml("kubernetes/outlast.yaml");
    let kinds: Vec<_> = manifests.iter().map(|manifest| manifest["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Job", "Deployment", "Service", "Deployment", "PodDisruptionBudget"]);
    let mut labels_of_pods = Vec::new();
    for manifest in manifests.iter().filter(|manifest| !manifest["spec"]["template"].is_badvalue()) {
        let name = manifest["metadata"]["name"].as_str().unwrap();
        let pod = &manifest["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"].as_bool(), Some(true), "{name}");
        let container = &pod["containers"][0];
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"].as_bool(), Some(false), "{name}");
        assert_eq!(security["readOnlyRootFilesystem"].as_bool(), Some(true), "{name}");
        assert_eq!(texts(&security["capabilities"]["drop"]), ["ALL"], "{name}");
        assert!(container["resources"]["limits"]["memory"].as_str().is_some(), "{name}");
        assert_accepted("outlast.yaml", &texts(&container["args"]));
        let world = &container["env"][0];
        assert_eq!(world["name"].as_str(), Some("OUTLAST_WORLD"));
        assert!(world["valueFrom"]["secretKeyRef"]["name"].as_str().is_some(), "the URL has a password");
        let labels = manifest["spec"]["template"]["metadata"]["labels"].clone();
        if manifest["kind"].as_str() == Some("Deployment") {
            for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
                let get = &container[probe]["httpGet"];
                assert_eq!(get["path"].as_str(), Some(path), "{name}");
                assert_eq!(get["port"], container["ports"][0]["name"], "{name}");
            }
            assert_eq!(manifest["spec"]["selector"]["matchLabels"], labels, "{name}");
            assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() > 10, "{name}");
        }
        labels_of_pods.push(labels);
    }
    let service = &manifests[2]["spec"];
    assert_eq!(service["selector"], labels_of_pods[1], "the service selects the server");
    let budget = &manifests[4]["spec"]["selector"]["matchLabels"];
    assert_eq!(*budget, labels_of_pods[2], "the budget protects the workers");
}

#[test]
fn the_units_of_systemd_are_complete_and_restricted() {
    for file in ["systemd/outlast-server.service", "systemd/outlast-worker@.service"] {
        let text = read(file);
        let mut section = "";
        let mut settings: Vec<(&str, &str, &str)> = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[') {
                section = name.strip_suffix(']').unwrap();
            } else {
                let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{file}: {line}"));
                settings.push((section, name, value));
            }
        }
        let value = |section: &str, name: &str| -> &str {
            let found =
                settings.iter().find(|(in_section, found, _)| *in_section == section && *found == name);
            found.unwrap_or_else(|| panic!("{file} has no {name}")).2
        };
        for (name, expected) in [
            ("NoNewPrivileges", "yes"),
            ("ProtectSystem", "strict"),
            ("DynamicUser", "yes"),
            ("CapabilityBoundingSet", ""),
        ] {
            assert_eq!(value("Service", name), expected, "{file}");
        }
        assert_eq!(value("Install", "WantedBy"), "multi-user.target");
        assert!(value("Unit", "After").contains("network-online.target"));
        assert!(value("Service", "TimeoutStopSec").parse::<u32>().unwrap() > 10, "{file}");
        let mut words = value("Service", "ExecStart").split(' ');
        assert!(words.next().unwrap().starts_with("/usr/local/bin/"));
        assert_accepted(file, &words.map(|word| word.replace("%i", "1")).collect::<Vec<_>>());
    }
}

#[test]
fn the_dashboard_uses_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(&read("grafana/outlast.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut used = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            assert_metrics_exist("outlast.json", expression);
            used.extend(names_in(expression));
        }
    }
    for metric in metrics() {
        let is_used = used.iter().any(|name| name == &metric || name.strip_prefix(&metric).is_some());
        assert!(is_used, "no panel shows {metric}");
    }
}

/// The expressions of the dashboard, as rules that promtool can check.
fn dashboard_rules() -> String {
    let dashboard: Value = serde_json::from_str(&read("grafana/outlast.json")).unwrap();
    let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    for (number, target) in targets.enumerate() {
        let expression = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
        let expression = serde_json::to_string(&expression).unwrap();
        rules.push_str(&format!("      - {{ record: panel:{number}, expr: {expression} }}\n"));
    }
    rules
}

#[test]
fn alerts_use_metrics_that_exist_and_say_what_to_do() {
    let groups = &yaml("prometheus/alerts.yaml")[0]["groups"];
    let rules = groups[0]["rules"].as_vec().unwrap();
    assert!(rules.len() >= 10);
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        assert_metrics_exist(name, rule["expr"].as_str().unwrap());
        assert!(["critical", "warning"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
        for text in ["summary", "description"] {
            assert!(rule["annotations"][text].as_str().is_some(), "{name}");
        }
    }
}

#[test]
fn promtool_accepts_the_rules_and_their_tests_pass() {
    if let Some(reason) = throwaway::promtool::missing() {
        return throwaway::skipped::report("promtool_accepts_the_rules_and_their_tests_pass", &reason);
    }
    let place = folder().join("prometheus");
    let path = |file: &str| place.join(file).display().to_string();
    let check = |arguments: &[&str]| throwaway::promtool::promtool(arguments, "").unwrap();
    check(&["check", "rules", &path("alerts.yaml")]);
    check(&["test", "rules", &path("alerts.test.yaml")]);
    check(&["check", "config", "--syntax-only", &path("prometheus.yaml")]);
    let temporary = tempfile::tempdir().unwrap();
    let rules = temporary.path().join("dashboard.yaml");
    std::fs::write(&rules, dashboard_rules()).unwrap();
    check(&["check", "rules", &rules.display().to_string()]);
}
