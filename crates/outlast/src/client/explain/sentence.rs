//! Explanations in plain words: what is, since when, and what to do.

use outlast_core::duration::duration_text;
use outlast_core::limits::{QUEUE_DEFAULT, WAITS_SHOWN_MAX};
use outlast_core::queue::step_of_workflow;
use outlast_core::takeover::is_suspect;
use outlast_core::{Status, Timestamp, Wait};

use super::{Attempting, Because, JoinedWorker, Stopping, Waiting};

/// Things that a sentence lists; the rest is counted.
const LISTED: usize = 3;

/// The sentence or two that say why.
pub(super) fn of(because: &Because, now: Timestamp) -> String {
    match because {
        Because::Ended { status, at, failure } => {
            let why = failure.as_ref().map(|failure| {
                let step = failure.step.as_ref().map(|step| format!("step `{step}` failed: "));
                format!(": {}{}", step.unwrap_or_default(), failure.message)
            });
            let why = why.unwrap_or_default();
            let how = if *status == Status::Completed { "completed" } else { status.as_str() };
            format!("It has ended, {how}, at {}{}", moment(*at, now), sentence_end(&why))
        }
        Because::Delayed { until, workers } => {
            format!("It was started to begin at {}.{}", moment(*until, now), absence(*workers))
        }
        Because::Held { worker, since, attempts } => {
            format!("{} has it since {}{}.", place(worker), moment(*since, now), under_way(attempts))
        }
        Because::WorkerGone { place, expired_at, others, .. } => gone(place, *expired_at, others, now),
        Because::Waits { workflow, version, queue, waits, kept, workers, failed_builds } => {
            let needed = needed(workflow, *version, queue);
            let waits = waiting_for(&needed, waits, kept, *workers, now);
            format!("{waits}{}", only_others(failed_builds))
        }
        Because::BuildsFailed { failed_builds, .. } => format!(
            "It is ready, but every build with its code that is joined has failed to continue it ({}). Deploy another \
             build, or resume it to let these try again.",
            listed(&quoted(failed_builds))
        ),
        Because::Ready { since, crashes, .. } if is_suspect(*crashes) => format!(
            "It is ready since {}. Its worker crashed {crashes} times while it held this run, so it is tried apart from \
             others: such runs wait for each other.",
            moment(*since, now)
        ),
        Because::Ready { since, workers, .. } => {
            let places: Vec<_> = workers.iter().map(busy).collect();
            format!(
                "It is ready since {}, and waits for a worker with room: {}. If that lasts, start another.",
                moment(*since, now),
                listed(&places)
            )
        }
        Because::Stuck { reason, message, build, failed_builds, other_builds, open_steps } => {
            // The report of a divergence comes last: it is a table.
            let (message, report) = message.split_once("\n\n").unwrap_or((message, ""));
            let what = format!("It is stuck ({reason}) since build `{build}` could not go on: {message}");
            let remedy = open_steps_of(open_steps) + &stuck_remedy(failed_builds, other_builds);
            let report = if report.is_empty() { String::new() } else { format!("\n\n{report}") };
            format!("{}{remedy}{report}", sentence_end(&what))
        }
        Because::PastDeadline { deadline, overdue_at, workers, with_code } => {
            past_deadline(*deadline, *overdue_at, *workers, *with_code, now)
        }
        unclaimed => nobody_for(unclaimed),
    }
}

/// Why nobody can be given a run that is ready.
fn nobody_for(because: &Because) -> String {
    match because {
        Because::NoCode { workflow, version, queue, workers } => {
            let workers: Vec<_> = workers.iter().map(code).collect();
            format!(
                "It is ready, but no worker that is joined {}: {}. Register it with one of them, or start one \
                 that has it.",
                needed(workflow, *version, queue),
                listed(&workers)
            )
        }
        Because::NotServed { workflow, version, queue, workers } => {
            let workers: Vec<_> = workers.iter().map(served).collect();
            format!(
                "It is ready, but no worker that is joined serves queue `{queue}`: {}. Start one that {}.",
                listed(&workers),
                needed(workflow, *version, queue)
            )
        }
        Because::NoWorker { workflow, version, queue } => {
            format!(
                "It is ready, but no worker is joined. Start one that {}.",
                needed(workflow, *version, queue)
            )
        }
        _ => String::new(),
    }
}

/// What a worker needs to be given a run.
fn needed(workflow: &str, version: u32, queue: &str) -> String {
    let code = match step_of_workflow(workflow) {
        Some(step) => format!("has step `{step}`"),
        None => format!("has workflow `{workflow}`, version {version}"),
    };
    if queue == QUEUE_DEFAULT { code } else { format!("serves queue `{queue}` and {code}") }
}

fn waiting_for(needed: &str, waits: &[Waiting], kept: &[String], workers: usize, now: Timestamp) -> String {
    let waits: Vec<_> = waits.iter().map(|waiting| wait(waiting, now)).collect();
    // The row shows no more of them, however many there are.
    let waits = if waits.len() >= WAITS_SHOWN_MAX {
        format!("{} and many more", waits[..LISTED].join(", "))
    } else {
        listed(&waits)
    };
    let absence = match workers {
        0 => format!(" No worker that is joined {needed}: start one, or it will not go on."),
        _ => String::new(),
    };
    format!("It waits for {waits}.{}{absence}", unasked(kept))
}

fn past_deadline(
    deadline: Timestamp,
    overdue_at: Timestamp,
    workers: usize,
    with_code: usize,
    now: Timestamp,
) -> String {
    let then = match (with_code, workers) {
        (0, 0) => "no worker is joined to tell it. Start one: without its code, any ends it after a \
                   minute"
            .into(),
        (0, _) => {
            format!("no worker that is joined has its code. One ends it at {}", moment(overdue_at, now))
        }
        _ => "a worker that has its code is about to tell it to stop".into(),
    };
    format!("Its deadline, {}, has passed, and {then}.", moment(deadline, now))
}

fn under_way(attempts: &[Attempting]) -> String {
    let attempts: Vec<_> = attempts
        .iter()
        .map(|attempting| {
            let Attempting { step, attempt, since, .. } = attempting;
            format!("step `{step}` (attempt {attempt}, since {})", clock(*since))
        })
        .collect();
    if attempts.is_empty() {
        ", and no step is under way".into()
    } else {
        format!(", and attempts {}", listed(&attempts))
    }
}

fn gone(
    place: &Option<String>,
    expired_at: Option<Timestamp>,
    others: &[JoinedWorker],
    now: Timestamp,
) -> String {
    let place = place.as_ref().map(|place| format!(", {place},")).unwrap_or_default();
    let since =
        expired_at.map(|at| format!(" since its session expired at {}", moment(at, now))).unwrap_or_default();
    let then = if others.is_empty() {
        "No other worker is joined to take it over: start one."
    } else {
        "Another worker will take it over."
    };
    format!("The worker that has it{place} seems to be gone{since}. {then}")
}

fn stuck_remedy(failed_builds: &[String], other_builds: &[String]) -> String {
    match (other_builds, failed_builds.len()) {
        ([], 0 | 1) => {
            " Another build tries it by itself; resume it to try this one again, or terminate it to give it up.".into()
        }
        ([], _) => format!(
            " Builds {} have failed to continue it, and no other build with its code is joined: deploy one, resume it \
             to try these again, or terminate it to give it up.",
            listed(&quoted(failed_builds))
        ),
        (builds, _) => {
            format!(" Another build with its code is joined ({}) and tries it.", listed(&quoted(builds)))
        }
    }
}

/// Which steps may have crashed the worker.
fn open_steps_of(steps: &[String]) -> String {
    match steps {
        [] => String::new(),
        [only] => format!(" Step `{only}` was open then."),
        steps => format!(" Steps {} were open then.", listed(&quoted(steps))),
    }
}

/// Builds that may not continue a run which waits.
fn only_others(failed_builds: &[String]) -> String {
    match failed_builds {
        [] => String::new(),
        builds => format!(
            " Builds that failed to continue it ({}) are not given it before it progresses; resume it to let them.",
            listed(&quoted(builds))
        ),
    }
}

fn quoted(names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("`{name}`")).collect()
}

/// Payloads that came before the workflow asked for them. That is usual; but a name may be misspelt.
fn unasked(kept: &[String]) -> String {
    let names: Vec<_> = kept.iter().map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => String::new(),
        1 => format!(" A payload for hook {} has come already, and is kept until it asks for it.", names[0]),
        _ => format!(
            " Payloads for hooks {} have come already, and are kept until it asks for them.",
            listed(&names)
        ),
    }
}

/// Adds that the run is to stop. The table at the end of some sentences stays there.
pub(super) fn add_stopping(sentence: &mut String, stopping: &Stopping, now: Timestamp) {
    let Stopping { reason, at, is_told } = stopping;
    let (at, reason) = (moment(*at, now), sentence_end(reason));
    let added = match is_told {
        true => format!(" It was told to stop at {at}, and has not ended yet: {reason}"),
        false => format!(" It was asked to stop at {at}, and learns of it when it goes on: {reason}"),
    };
    let end = sentence.find("\n\n").unwrap_or(sentence.len());
    sentence.insert_str(end, &added);
}

fn absence(workers: usize) -> &'static str {
    if workers > 0 { "" } else { " No worker that has its code is joined: start one, or it will not go on." }
}

fn wait(waiting: &Waiting, now: Timestamp) -> String {
    let since = clock(waiting.since);
    let until = |end: &Option<Timestamp>| end.map(|at| format!(", until {}", clock(at))).unwrap_or_default();
    match &waiting.wait {
        Wait::Timer { until, .. } => format!("a timer that is due at {}", moment(*until, now)),
        Wait::Hook { name, until: end, .. } => {
            let rejected = match (waiting.rejected, &waiting.rejection) {
                (0, _) | (_, None) => String::new(),
                (1, Some(why)) => format!("; one was rejected: {why}"),
                (many, Some(why)) => format!("; {many} were rejected, the last one: {why}"),
            };
            format!("a payload for hook `{name}` (since {since}{}{rejected})", until(end))
        }
        Wait::Child { workflow, run, until: end, .. } => {
            let status = waiting.child.map_or("not there yet".into(), |status| format!("{status}"));
            format!("child `{workflow}` ({run}, {status}, since {since}{})", until(end))
        }
        Wait::Step { name, queue, run, .. } => {
            let status = waiting.child.map_or("not there yet".into(), |status| format!("{status}"));
            let workers = match waiting.workers.unwrap_or_default() {
                0 => "no worker that is joined serves it and has the step".into(),
                1 => "1 worker serves it".into(),
                workers => format!("{workers} workers serve it"),
            };
            format!("step `{name}` in queue `{queue}` ({run}, {status}, since {since}; {workers})")
        }
        Wait::Retry { name, until, .. } => {
            let why = waiting.failure.as_ref().map(|why| format!("; the last failed: {why}"));
            let why = why.unwrap_or_default();
            format!("the next attempt at step `{name}`, due at {}{why}", moment(*until, now))
        }
        _ => format!("operation {}", waiting.wait.op()),
    }
}

fn place(worker: &JoinedWorker) -> String {
    format!("Worker {} (process {} on {}, build `{}`)", worker.session, worker.pid, worker.host, worker.build)
}

fn busy(worker: &JoinedWorker) -> String {
    format!("process {} on {} holds {}", worker.pid, worker.host, runs(worker.held))
}

fn runs(count: u64) -> String {
    if count == 1 { "1 run".into() } else { format!("{count} runs") }
}

fn code(worker: &JoinedWorker) -> String {
    let versions: Vec<_> = worker.versions.iter().map(u32::to_string).collect();
    let has = match versions.len() {
        0 => "has no version of it".into(),
        1 => format!("has version {}", versions[0]),
        _ => format!("has versions {}", listed(&versions)),
    };
    format!("process {} on {} (build `{}`) {has}", worker.pid, worker.host, worker.build)
}

fn served(worker: &JoinedWorker) -> String {
    let queues: Vec<_> = worker.queues.iter().map(|queue| format!("`{queue}`")).collect();
    format!("process {} on {} serves {}", worker.pid, worker.host, listed(&queues))
}

/// A moment, and how far it is from now.
fn moment(at: Timestamp, now: Timestamp) -> String {
    let at_clock = clock(at);
    if at > now {
        format!("{at_clock} (in {})", roughly(at.since(now)))
    } else {
        format!("{at_clock} ({} ago)", roughly(now.since(at)))
    }
}

/// A moment without its fraction of a second.
fn clock(at: Timestamp) -> String {
    let text = at.to_string();
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// A duration in whole seconds, and in whole minutes when it is longer than an hour.
fn roughly(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs();
    let whole = if seconds >= 3_600 { seconds - seconds % 60 } else { seconds };
    duration_text(std::time::Duration::from_secs(whole))
}

fn listed(things: &[String]) -> String {
    let (shown, rest) = things.split_at(things.len().min(LISTED));
    match (shown, rest.len()) {
        ([], _) => "nothing".into(),
        ([only], 0) => only.clone(),
        ([others @ .., last], 0) => format!("{} and {last}", others.join(", ")),
        (_, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The text with a full stop, unless it ends with one.
fn sentence_end(text: &str) -> String {
    let text = text.trim_end();
    let is_ended = text.ends_with(['.', '!', '?']);
    if is_ended { text.into() } else { format!("{text}.") }
}
