//! The names that do not replay, each with the reason and the replacement.

/// A row: where in a path the words stand, the words, and what to say.
struct Rule(Place, &'static [&'static str], &'static str);

#[derive(Clone, Copy)]
enum Place {
    /// The path begins so: everything in a crate or module.
    Start,
    /// The path ends so: a function, however it was imported.
    End,
    /// The word stands anywhere: a type, with or without a function of it.
    Anywhere,
}

use Place::{Anywhere, End, Start};

const CLOCK: &str = "differs on every replay; use `ctx.now()`";
const CHANCE: &str = "returns different numbers on every replay; use `ctx.random()`";
const UUID: &str = "differs on every replay; use `ctx.uuid()`";
const TIMER: &str = "does not outlast the process; use `ctx.sleep(…)`, or `.timeout(…)` on the operation";
const TASK: &str =
    "runs outside the history; await operations together with `join!`, and do the work in a step";
const THREAD: &str = "runs outside the history; do the work in a step or in `ctx.call(…)`";
const FILE: &str = "may return a different value on replay; use files in a step or in `ctx.call(…)`";
const ENV: &str =
    "may differ on the worker that continues the run; read it in `ctx.call(…)`, or make it part of the input";
const NET: &str = "may return a different value on replay; use the network in a step or in `ctx.call(…)`";
const PROCESS: &str = "may return a different value on replay; use processes in a step or in `ctx.call(…)`";
const MAP: &str = "iterates in a different order on every replay; use `BTreeMap`, or a `Vec`";
const SET: &str = "iterates in a different order on every replay; use `BTreeSet`, or a `Vec`";

/// The first row that fits decides.
const PATHS: &[Rule] = &[
    Rule(End, &["SystemTime", "now"], CLOCK),
    Rule(End, &["Instant", "now"], CLOCK),
    Rule(End, &["Utc", "now"], CLOCK),
    Rule(End, &["Local", "now"], CLOCK),
    Rule(End, &["OffsetDateTime", "now_utc"], CLOCK),
    Rule(End, &["OffsetDateTime", "now_local"], CLOCK),
    Rule(End, &["Timestamp", "now"], CLOCK),
    Rule(End, &["Zoned", "now"], CLOCK),
    Rule(Start, &["rand"], CHANCE),
    Rule(Start, &["fastrand"], CHANCE),
    Rule(End, &["thread_rng"], CHANCE),
    Rule(End, &["Uuid", "new_v4"], UUID),
    Rule(End, &["Uuid", "now_v7"], UUID),
    Rule(Start, &["tokio", "time"], TIMER),
    Rule(End, &["time", "sleep"], TIMER),
    Rule(End, &["time", "timeout"], TIMER),
    Rule(End, &["time", "interval"], TIMER),
    Rule(End, &["thread", "sleep"], TIMER),
    Rule(Start, &["tokio", "spawn"], TASK),
    Rule(Start, &["tokio", "task"], TASK),
    Rule(End, &["task", "spawn"], TASK),
    Rule(End, &["task", "spawn_blocking"], TASK),
    Rule(End, &["task", "spawn_local"], TASK),
    Rule(Start, &["std", "thread"], THREAD),
    Rule(End, &["thread", "spawn"], THREAD),
    Rule(End, &["thread", "scope"], THREAD),
    Rule(Anywhere, &["HashMap"], MAP),
    Rule(Anywhere, &["HashSet"], SET),
    Rule(Start, &["std", "fs"], FILE),
    Rule(Start, &["tokio", "fs"], FILE),
    Rule(Start, &["fs"], FILE),
    Rule(Start, &["std", "env"], ENV),
    Rule(End, &["env", "var"], ENV),
    Rule(End, &["env", "vars"], ENV),
    Rule(End, &["env", "var_os"], ENV),
    Rule(End, &["env", "args"], ENV),
    Rule(End, &["env", "current_dir"], ENV),
    Rule(Start, &["std", "net"], NET),
    Rule(Start, &["tokio", "net"], NET),
    Rule(Start, &["reqwest"], NET),
    Rule(Start, &["ureq"], NET),
    Rule(Start, &["hyper"], NET),
    Rule(Start, &["std", "process"], PROCESS),
    Rule(Start, &["tokio", "process"], PROCESS),
];

/// Plain values inside the modules above: they do nothing.
const HARMLESS: &[&[&str]] = &[
    &["tokio", "time", "Duration"],
    &["std", "net", "AddrParseError"],
    &["std", "net", "IpAddr"],
    &["std", "net", "Ipv4Addr"],
    &["std", "net", "Ipv6Addr"],
    &["std", "net", "SocketAddr"],
    &["std", "net", "SocketAddrV4"],
    &["std", "net", "SocketAddrV6"],
    &["reqwest", "Method"],
    &["reqwest", "StatusCode"],
    &["reqwest", "Url"],
    &["hyper", "Method"],
    &["hyper", "StatusCode"],
    &["hyper", "Uri"],
];

const SELECT: &str = "chooses a branch at random; use `outlast::select!`, which polls them in order";
const JOIN: &str = "polls in a different order each time; use `join!` or `try_join!` of `outlast::prelude`";

const MACROS: &[Rule] = &[
    Rule(End, &["tokio", "select"], SELECT),
    Rule(End, &["futures", "select"], SELECT),
    Rule(End, &["futures_util", "select"], SELECT),
    Rule(End, &["tokio", "join"], JOIN),
    Rule(End, &["tokio", "try_join"], JOIN),
];

/// What is wrong with a path: how many of its words to point at, and what to say.
pub(super) fn path(path: &[String]) -> Option<(usize, String)> {
    if HARMLESS.iter().any(|harmless| starts_with(path, harmless)) {
        return None;
    }
    PATHS.iter().find_map(|rule| rule.find_rule(path, ""))
}

/// What is wrong with a macro: how many words of its path to point at, and what to say.
pub(super) fn macro_call(path: &[String]) -> Option<(usize, String)> {
    MACROS.iter().find_map(|rule| rule.find_rule(path, "!"))
}

impl Rule {
    fn find_rule(&self, path: &[String], suffix: &str) -> Option<(usize, String)> {
        let Self(place, words, message) = self;
        let length = match place {
            // A single word is a variable or a function of that name.
            Start => (starts_with(path, words) && path.len() >= 2).then_some(path.len()),
            End => ends_with(path, words).then_some(path.len()),
            Anywhere => path.iter().position(|word| word == words[0]).map(|index| index + 1),
        }?;
        Some((length, format!("`{}{suffix}` {message}", path[..length].join("::"))))
    }
}

fn starts_with(path: &[String], words: &[&str]) -> bool {
    path.len() >= words.len() && path.iter().zip(words).all(|(word, wanted)| word == wanted)
}

fn ends_with(path: &[String], words: &[&str]) -> bool {
    path.len() >= words.len() && starts_with(&path[path.len() - words.len()..], words)
}
