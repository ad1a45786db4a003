//! The list of cases is complete, and each case says which rule it proves.

use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn every_case_is_in_the_list() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/suite");
    let list = std::fs::read_to_string(folder.join("cases.rs")).unwrap();
    let listed: BTreeSet<&str> = list.lines().filter_map(|line| line.trim().strip_suffix(',')).collect();
    let mut written = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let names = source.lines().filter_map(|line| line.strip_prefix("pub async fn "));
        written.extend(names.filter_map(|line| line.strip_suffix("(case: Case) {")).map(String::from));
    }
    assert_eq!(written.iter().map(String::as_str).collect::<BTreeSet<_>>(), listed);
    assert!(written.len() >= 330, "RELIABILITY.md promises 330 cases");
}
