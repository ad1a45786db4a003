//! Explanations in plain English: the state of the run, since when, and what to do.

use outlast_core::duration::duration_text;
use outlast_core::event::{FORMAT, NEWER_BUILD};
use outlast_core::limits::{CRASH_TRIAL, HOOK_BUFFER_MAX, QUEUE_DEFAULT, WAITS_SHOWN_MAX};
use outlast_core::queue::step_of_workflow;
use outlast_core::takeover::is_suspect;
use outlast_core::{Status, StuckReason, Timestamp, Wait};

use super::{Attempting, Because, JoinedWorker, Probe, Stopping, Waiting};

/// The number of items that a sentence lists; the others are counted.
const LISTED: usize = 3;

/// From this number of kept payloads and unread messages on, the explanation mentions the limit.
const MANY_KEPT: u64 = HOOK_BUFFER_MAX as u64 / 10 * 9;

/// The sentences of an explanation. `damage` describes stored data of the run that cannot be read.
pub(super) fn text_of(because: &Because, damage: Option<&str>, now: Timestamp) -> String {
    let sentence = cause(because, damage.is_some(), now);
    match damage {
        // The message of a stuck run already names the damage.
        Some(_) if matches!(because, Because::Stuck { reason: StuckReason::Unreadable, .. }) => {
            append(sentence, &damage_remedy(damage))
        }
        Some(what) if matches!(because, Because::Ended { .. }) => {
            append(sentence, &format!(" Its outcome cannot be read: {}{}", sentence_end(what), restore(what)))
        }
        Some(what) => append(
            sentence,
            &format!(" Its stored data cannot be read: {}{}", sentence_end(what), damage_remedy(damage)),
        ),
        None => sentence,
    }
}

/// The remedy for a run that cannot be read. If the build is too old, the message already names the remedy.
fn damage_remedy(damage: Option<&str>) -> String {
    match damage {
        Some(what) if what.contains(NEWER_BUILD) => String::new(),
        _ => " No build can read it: restore a backup, or call `client.terminate(run, reason)` to end it."
            .into(),
    }
}

fn restore(damage: &str) -> &'static str {
    if damage.contains(NEWER_BUILD) { "" } else { " Restore a backup to read it." }
}

/// Adds text to a sentence, before the table at its end if it has one.
fn append(mut sentence: String, added: &str) -> String {
    let end = sentence.find("\n\n").unwrap_or(sentence.len());
    sentence.insert_str(end, added);
    sentence
}

fn cause(because: &Because, is_damaged: bool, now: Timestamp) -> String {
    match because {
        Because::Ended { status, at, failure } => {
            let why = failure.as_ref().map(|failure| {
                let step = failure.step.as_ref().map(|step| format!("step `{step}` failed: "));
                format!(": {}{}", step.unwrap_or_default(), failure.message)
            });
            let why = why.unwrap_or_default();
            let how = match status {
                Status::Cancelled => "was cancelled",
                other => other.as_str(),
            };
            format!("It {how} at {}{}", moment_text(*at, now), sentence_end(&why))
        }
        Because::Delayed { until, workers } => {
            format!("It begins at {}.{}", moment_text(*until, now), no_worker_warning(*workers))
        }
        Because::Held { worker, since, attempts } => held(worker, *since, attempts, now),
        Because::WorkerGone { place, expired_at, others, .. } => worker_gone(place, *expired_at, others, now),
        Because::Waits { workflow, version, queue, waits, kept, workers, failed_builds } => {
            let needed = needed(workflow, *version, queue);
            let waits = waiting_for(&needed, waits, kept, *workers, now);
            format!("{waits}{}", excluded_builds(failed_builds))
        }
        Because::BuildsFailed { failed_builds, .. } => format!(
            "It is ready, but every joined build with its code failed to continue it ({}). Deploy another build, or call \
             `client.resume(run)` to retry with these builds.",
            list(&quoted(failed_builds))
        ),
        Because::NotReadable { format, workers } => not_readable(*format, workers),
        Because::Ready { since, crashes, .. } if is_suspect(*crashes) => format!(
            "It has been ready since {}. Its worker crashed {crashes} times while it held this run, so workers take only a \
             few runs like it at a time, and it waits for one of those to finish.",
            moment_text(*since, now)
        ),
        Because::Ready { since, workers, probes, .. } => ready(*since, workers, probes, now),
        Because::Stuck { reason, message, build, failed_builds, other_builds, retry_at, open_steps } => {
            // The report of a divergence comes last: it is a table.
            let (message, report) = message.split_once("\n\n").unwrap_or((message, ""));
            let what = format!("Stuck ({reason}): build `{build}` cannot continue because {message}");
            let retry = retry_at.map(|at| moment_text(at, now));
            let remedy =
                if is_damaged { String::new() } else { stuck_remedy(failed_builds, other_builds, retry) };
            let remedy = open_steps_of(open_steps) + &remedy;
            let report = if report.is_empty() { String::new() } else { format!("\n\n{report}") };
            format!("{}{remedy}{report}", sentence_end(&what))
        }
        Because::Paused { .. } => paused(because, now),
        Because::PastDeadline { deadline, overdue_at, workers, with_code } => {
            past_deadline(*deadline, *overdue_at, *workers, *with_code, now)
        }
        unclaimed => no_worker_for(unclaimed),
    }
}

/// Since when a run is paused, why and by whom.
fn paused(because: &Because, now: Timestamp) -> String {
    let Because::Paused { reason, since, actor, deadline, attempts } = because else { return String::new() };
    let by = actor.as_ref().map(|actor| format!(" by {actor}")).unwrap_or_default();
    let why = if reason.is_empty() { ".".to_owned() } else { sentence_end(&format!(": {reason}")) };
    let running = match attempts.is_empty() {
        true => String::new(),
        false => format!(" It is released when its attempts have ended{}.", attempts_text(attempts)),
    };
    let deadline = deadline.map(|at| format!(" Its deadline, {}, ends the pause.", moment_text(at, now)));
    format!(
        "It was paused{by} at {}{why}{running} Call `client.resume(run)` to continue it.{}",
        moment_text(*since, now),
        deadline.unwrap_or_default()
    )
}

/// Why no worker can claim a run that is ready.
fn no_worker_for(because: &Because) -> String {
    match because {
        Because::NoCode { workflow, version, queue, workers } => {
            let workers: Vec<_> = workers.iter().map(code_versions).collect();
            format!(
                "It is ready, but no joined worker {}: {}. Register it with one of them, or start one that has it.",
                needed(workflow, *version, queue),
                list(&workers)
            )
        }
        Because::NotServed { workflow, version, queue, workers } => {
            let workers: Vec<_> = workers.iter().map(served_queues).collect();
            format!(
                "It is ready, but no joined worker serves queue `{queue}`: {}. Start one that {}.",
                list(&workers),
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

/// What a worker must serve and have to claim a run.
fn needed(workflow: &str, version: u32, queue: &str) -> String {
    let code = match step_of_workflow(workflow) {
        Some(step) => format!("has step `{step}`"),
        None => format!("has workflow `{workflow}`, version {version}"),
    };
    if queue == QUEUE_DEFAULT { code } else { format!("serves queue `{queue}` and {code}") }
}

fn waiting_for(needed: &str, waits: &[Waiting], kept: &[String], workers: usize, now: Timestamp) -> String {
    let waits: Vec<_> = waits.iter().map(|waiting| wait(waiting, now)).collect();
    // The row contains at most this many waits, so their number is unknown.
    let waits = if waits.len() >= WAITS_SHOWN_MAX {
        format!("{} and many more", waits[..LISTED].join(", "))
    } else {
        list(&waits)
    };
    let warning = match workers {
        0 => format!(" No joined worker {needed}: start one, otherwise the run does not continue."),
        _ => String::new(),
    };
    format!("It waits for {waits}.{}{warning}", kept_payloads(kept))
}

fn past_deadline(
    deadline: Timestamp,
    overdue_at: Timestamp,
    workers: usize,
    with_code: usize,
    now: Timestamp,
) -> String {
    let then = match (with_code, workers) {
        (0, 0) => "no worker is joined. Start one: a worker without its code ends it after a minute".into(),
        (0, _) => {
            format!(
                "no joined worker has its code. A worker without it ends it at {}",
                moment_text(overdue_at, now)
            )
        }
        _ => "a worker that has its code is about to cancel it".into(),
    };
    format!("Its deadline, {}, has passed, and {then}.", moment_text(deadline, now))
}

fn attempts_text(attempts: &[Attempting]) -> String {
    let attempts: Vec<_> = attempts
        .iter()
        .map(|attempting| {
            let Attempting { step, attempt, since, .. } = attempting;
            format!("step `{step}` (attempt {attempt}, since {})", seconds_text(*since))
        })
        .collect();
    if attempts.is_empty() {
        "; no step is in progress".into()
    } else {
        format!("; in progress: {}", list(&attempts))
    }
}

fn worker_gone(
    place: &Option<String>,
    expired_at: Option<Timestamp>,
    others: &[JoinedWorker],
    now: Timestamp,
) -> String {
    let place = place.as_ref().map(|place| format!(", {place},")).unwrap_or_default();
    let since =
        expired_at.map(|at| format!(": its session expired at {}", moment_text(at, now))).unwrap_or_default();
    let then = if others.is_empty() {
        "No other worker is joined to take the run over: start one."
    } else {
        "Another worker takes the run over."
    };
    format!("The worker that holds it{place} seems to be gone{since}. {then}")
}

/// The remedy for a stuck run. `retry` is the time at which a different build gets the run, if that is later.
fn stuck_remedy(failed_builds: &[String], other_builds: &[String], retry: Option<String>) -> String {
    let (builds, failed) = (list(&quoted(other_builds)), list(&quoted(failed_builds)));
    match (other_builds, retry) {
        ([], None) if failed_builds.len() <= 1 => {
            " No worker with a different build is joined. A worker with a different build retries the run automatically: \
             deploy one. Call `client.resume(run)` to retry with this build, or `client.terminate(run, reason)` to end \
             the run."
                .into()
        }
        ([], retry) => {
            let rest = retry.map(|at| format!(" A different build gets the run at {at} at the earliest."));
            format!(
                " Builds {failed} failed to continue it, and no worker with a different build is joined: deploy one. Call \
                 `client.resume(run)` to retry with these builds at once, or `client.terminate(run, reason)` to end the \
                 run.{}",
                rest.unwrap_or_default()
            )
        }
        (_, Some(at)) => format!(
            " Many builds failed to continue it, so the next retry is at {at}, by a worker with a different build \
             ({builds}). Call `client.resume(run)` to retry at once."
        ),
        (_, None) => format!(" A worker with a different build ({builds}) is joined and retries it automatically."),
    }
}

fn ready(since: Timestamp, workers: &[JoinedWorker], probes: &[Probe], now: Timestamp) -> String {
    let probe_of = |worker: &JoinedWorker| probes.iter().find(|probe| probe.worker == worker.session);
    let places: Vec<_> = workers
        .iter()
        .map(|worker| match probe_of(worker) {
            Some(probe) => probing(worker, probe),
            None => busy_worker(worker),
        })
        .collect();
    let remedy =
        if probes.len() < workers.len() { "If this lasts, start another worker." } else { PROBE_REMEDY };
    format!(
        "It has been ready since {}, and waits for a worker with room: {}. {remedy}",
        moment_text(since, now),
        list(&places)
    )
}

const PROBE_REMEDY: &str = "The run is taken then; another worker takes it at once.";

/// Describes a worker that claims no other run while it probes one.
fn probing(worker: &JoinedWorker, probe: &Probe) -> String {
    let Probe { run, crashes, until, .. } = probe;
    format!(
        "process {} on {} probes run {run}, whose worker crashed {crashes} times, and takes other runs when that run has \
         committed a turn, or after {} at most (at {})",
        worker.pid,
        worker.host,
        duration_text(CRASH_TRIAL),
        seconds_text(*until)
    )
}

/// The steps that may have crashed the worker.
fn open_steps_of(steps: &[String]) -> String {
    match steps {
        [] => String::new(),
        [only] => format!(" Step `{only}` was in progress then."),
        steps => format!(" Steps {} were in progress then.", list(&quoted(steps))),
    }
}

/// The builds that may not continue a waiting run.
fn excluded_builds(failed_builds: &[String]) -> String {
    match failed_builds {
        [] => String::new(),
        builds => format!(
            " Builds that failed to continue it ({}) do not get it again before it progresses; call `client.resume(run)` to \
             let them retry.",
            list(&quoted(builds))
        ),
    }
}

fn quoted(names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("`{name}`")).collect()
}

/// The hooks with kept payloads. A kept payload is normal, but the name of the hook may be misspelt.
fn kept_payloads(kept: &[String]) -> String {
    let names: Vec<_> = kept.iter().map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => String::new(),
        1 => format!(
            " A payload for hook {} has arrived, and is kept until the workflow waits for it.",
            names[0]
        ),
        _ => format!(
            " Payloads for hooks {} have arrived, and are kept until the workflow waits for them.",
            list(&names)
        ),
    }
}

/// Adds a note when the run keeps so many payloads that it refuses sends, or soon will.
pub(super) fn add_kept(sentence: &mut String, kept: u64, unread: u64) {
    if kept == 0 || kept + unread < MANY_KEPT {
        return;
    }
    let sends = if kept + unread < HOOK_BUFFER_MAX as u64 { "At the limit, sends" } else { "Sends" };
    let added = format!(
        " It keeps {kept} payloads that no hook has taken, and {unread} messages are unread; the limit is \
         {HOOK_BUFFER_MAX} together. {sends} for hooks that are not open are refused: check the names of the hooks."
    );
    *sentence = append(std::mem::take(sentence), &added);
}

/// Adds that the world refuses the run's last turn.
pub(super) fn add_not_committed(sentence: &mut String, error: &str) {
    let added = format!(
        " Its last turn is not committed, and is tried again until the world accepts it: {}",
        sentence_end(error)
    );
    *sentence = append(std::mem::take(sentence), &added);
}

/// Adds a note when the run was asked to stop.
pub(super) fn add_stopping(sentence: &mut String, stopping: &Stopping, now: Timestamp) {
    let Stopping { reason, at, is_told } = stopping;
    let (at, reason) = (moment_text(*at, now), sentence_end(reason));
    let added = match is_told {
        true => format!(" It received a request to stop at {at} and has not ended yet: {reason}"),
        false => format!(" A request to stop it was sent at {at} and is not delivered yet: {reason}"),
    };
    *sentence = append(std::mem::take(sentence), &added);
}

/// Adds that the run is in quarantine.
pub(super) fn add_quarantine(sentence: &mut String) {
    let added = " It is in quarantine: pruning, retention and bulk calls leave it out until it is released with \
         `client.release(run)`.";
    *sentence = append(std::mem::take(sentence), added);
}

fn no_worker_warning(workers: usize) -> &'static str {
    if workers > 0 {
        ""
    } else {
        " No joined worker has its code: start one, otherwise the run does not continue."
    }
}

fn wait(waiting: &Waiting, now: Timestamp) -> String {
    let since = seconds_text(waiting.since);
    let until =
        |end: &Option<Timestamp>| end.map(|at| format!(", until {}", seconds_text(at))).unwrap_or_default();
    match &waiting.wait {
        Wait::Timer { until, .. } => format!("a timer that is due at {}", moment_text(*until, now)),
        Wait::Hook { name, until: end, token, .. } => {
            let rejected = match (waiting.rejected, &waiting.rejection) {
                (0, _) | (_, None) => String::new(),
                (1, Some(why)) => format!("; one was rejected: {why}"),
                (many, Some(why)) => format!("; {many} were rejected, the last one: {why}"),
            };
            // The token itself is a secret: not everybody who may see this text may send to it.
            let token = token.as_ref().map_or("", |_| ", with a token");
            format!("a payload for hook `{name}` (since {since}{}{token}{rejected})", until(end))
        }
        Wait::Child { workflow, run, until: end, .. } => {
            let status = waiting.child.map_or("not started yet".into(), |status| format!("{status}"));
            format!("child `{workflow}` ({run}, {status}, since {since}{})", until(end))
        }
        Wait::Step { name, queue, run, .. } => {
            let status = waiting.child.map_or("not started yet".into(), |status| format!("{status}"));
            let workers = match waiting.workers.unwrap_or_default() {
                0 => "no joined worker serves it and has the step".into(),
                1 => "1 worker serves it".into(),
                workers => format!("{workers} workers serve it"),
            };
            format!("step `{name}` in queue `{queue}` ({run}, {status}, since {since}; {workers})")
        }
        // A step that is retried has failed.
        Wait::Retry { name, until, .. } if waiting.failure.is_none() => {
            format!("the next try of workflow `{name}`, due at {}", moment_text(*until, now))
        }
        Wait::Retry { name, until, .. } => {
            let why = waiting.failure.as_ref().map(|why| format!("; the last attempt failed: {why}"));
            let why = why.unwrap_or_default();
            format!("the next attempt at step `{name}`, due at {}{why}", moment_text(*until, now))
        }
        _ => format!("operation {}", waiting.wait.op()),
    }
}

fn describe_worker(worker: &JoinedWorker) -> String {
    format!("Worker {} (process {} on {}, build `{}`)", worker.session, worker.pid, worker.host, worker.build)
}

fn held(worker: &JoinedWorker, since: Timestamp, attempts: &[Attempting], now: Timestamp) -> String {
    let (who, since, what) = (describe_worker(worker), moment_text(since, now), attempts_text(attempts));
    format!("{who} has held it since {since}{what}.{}", older_build(worker))
}

fn not_readable(format: u32, workers: &[JoinedWorker]) -> String {
    format!(
        "It is ready, but the joined workers that have its code are of older builds, and cannot read format {format}, which \
         it needs ({}). Deploy a build like the one that wrote it.",
        list(&workers.iter().map(older_worker).collect::<Vec<_>>())
    )
}

fn older_worker(worker: &JoinedWorker) -> String {
    format!("process {} on {} reads format {}", worker.pid, worker.host, worker.format)
}

/// What a worker of an older build refuses for a run that it holds.
fn older_build(worker: &JoinedWorker) -> &'static str {
    if worker.format >= FORMAT {
        return "";
    }
    " Its build is older: until a newer one holds the run, it cannot be paused, and gets no payload for a token and no request \
     to compensate."
}

fn busy_worker(worker: &JoinedWorker) -> String {
    format!("process {} on {} holds {}", worker.pid, worker.host, runs(worker.held))
}

fn runs(count: u64) -> String {
    if count == 1 { "1 run".into() } else { format!("{count} runs") }
}

fn code_versions(worker: &JoinedWorker) -> String {
    let versions: Vec<_> = worker.versions.iter().map(u32::to_string).collect();
    let has = match versions.len() {
        0 => "has no version of it".into(),
        1 => format!("has version {}", versions[0]),
        _ => format!("has versions {}", list(&versions)),
    };
    format!("process {} on {} (build `{}`) {has}", worker.pid, worker.host, worker.build)
}

fn served_queues(worker: &JoinedWorker) -> String {
    let queues: Vec<_> = worker.queues.iter().map(|queue| format!("`{queue}`")).collect();
    format!("process {} on {} serves {}", worker.pid, worker.host, list(&queues))
}

/// A time, and its distance from now.
pub(super) fn moment_text(at: Timestamp, now: Timestamp) -> String {
    let at_clock = seconds_text(at);
    if at > now {
        format!("{at_clock} (in {})", approximate(at.since(now)))
    } else {
        format!("{at_clock} ({} ago)", approximate(now.since(at)))
    }
}

/// A time without its fraction of a second.
fn seconds_text(at: Timestamp) -> String {
    let text = at.to_string();
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// A duration in whole seconds, and in whole minutes when it is longer than an hour.
fn approximate(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs();
    let whole = if seconds >= 3_600 { seconds - seconds % 60 } else { seconds };
    duration_text(std::time::Duration::from_secs(whole))
}

fn list(things: &[String]) -> String {
    let (shown, rest) = things.split_at(things.len().min(LISTED));
    match (shown, rest.len()) {
        ([], _) => "nothing".into(),
        ([only], 0) => only.clone(),
        ([others @ .., last], 0) => format!("{} and {last}", others.join(", ")),
        (_, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The text, with a full stop if it does not end with a punctuation mark.
fn sentence_end(text: &str) -> String {
    let text = text.trim_end();
    let is_ended = text.ends_with(['.', '!', '?']);
    if is_ended { text.into() } else { format!("{text}.") }
}

/// The transaction that blocks the turns of a run.
pub(super) fn blocked_by(who: &str) -> String {
    format!(
        " Its turns cannot be written: its row is locked by {who}. End that transaction; the run then continues automatically."
    )
}
