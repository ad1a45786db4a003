//! Every limit of the engine, with its reason. Going past one is an error that names it.

use std::time::Duration;

/// Bytes of a workflow's, step's or hook's name. Names are index keys and appear in every event.
pub const NAME_BYTES_MAX: usize = 128;

/// The queue of runs whose start names none, and of workers that name none.
pub const QUEUE_DEFAULT: &str = "default";

/// Queues that one worker serves. A claim looks into each of them.
pub const QUEUES_MAX: usize = 32;

/// The highest priority of a run; 0 is usual, more is sooner.
pub const PRIORITY_MAX: u8 = 9;

/// How much waiting each level of priority is worth. A run of the lowest priority that is ready this much
/// longer comes first, so that nothing waits for ever behind what is more urgent.
pub const PRIORITY_AGE: Duration = Duration::from_secs(10);

/// Names of steps that the report of a worker counts attempts of; the rest is in the sum alone.
pub const REPORT_STEPS_MAX: usize = 32;

/// Bytes of a start key. Keys are index keys, but callers build them from their own ids.
pub const KEY_BYTES_MAX: usize = 256;

/// Bytes of a step's key that is made of its input; a longer one is hashed. Others take keys of 255 bytes.
pub const STEP_KEY_BYTES_MAX: usize = 255;

/// Bytes of the reason of a cancel. It is told to a person, and stands in every error it leads to.
pub const REASON_BYTES_MAX: usize = 4 * 1024;

/// Bytes of all headers of a start or message. They travel with everything that follows from it.
pub const HEADERS_BYTES_MAX: usize = 16 * 1024;

/// Tags of one run. Each is an index entry; what is only read belongs in the input.
pub const TAGS_MAX: usize = 32;

/// Bytes of a tag's value. Values are index keys; names are as long as other names.
pub const TAG_VALUE_BYTES_MAX: usize = 256;

/// Bytes of one payload. Larger things belong in a file store, with their address in the payload.
pub const PAYLOAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Nesting of a payload. Readers of JSON refuse what is nested deeper than 128 levels, and events
/// add some of their own.
pub const PAYLOAD_DEPTH_MAX: usize = 64;

/// Bytes of a failure's message, and of each cause; longer ones are cut.
pub const FAILURE_TEXT_BYTES_MAX: usize = 8 * 1024;

/// Causes kept of a failure.
pub const FAILURE_CAUSES_MAX: usize = 16;

/// Bytes of a failure's details as JSON. They stand in the history and in every error that follows; larger ones are
/// left out, and the message says so.
pub const FAILURE_DETAILS_BYTES_MAX: usize = 64 * 1024;

/// The largest part by which jitter makes a pause longer. More would make pauses unlike what was set.
pub const JITTER_MAX: f64 = 0.10;

/// Messages of one run that nobody has read yet. A sender that goes past it is far ahead of the run.
pub const INBOX_MESSAGES_MAX: u64 = 10_000;

/// Messages read of one run at a time; the rest is read by its next turn.
pub const INBOX_READ_MAX: usize = 1_000;

/// Payloads kept for the hooks of one run that the workflow has not asked for yet, together with its unread
/// messages. A send past it is refused, unless it is for a hook that the run waits for; the run is unharmed.
pub const HOOK_BUFFER_MAX: usize = 10_000;

/// Events of a history that a claim brings. Longer histories are read afterwards, so that claims stay quick.
pub const HISTORY_IN_CLAIM_EVENTS_MAX: u64 = 64;

/// Runs whose histories one call to the world reads.
pub const HISTORIES_READ_MAX: usize = 64;

/// Events of one history. A run that comes here is cancelled with this reason: replay would take too long.
pub const HISTORY_EVENTS_MAX: u64 = 100_000;

/// Events at which a worker warns that a history grows long.
pub const HISTORY_EVENTS_WARN: u64 = 80_000;

/// Events past the limit that a run has to clean up after that cancel; then it fails.
pub const HISTORY_ROOM_EVENTS: u64 = 10_000;

/// Operations of one run that are open at the same time.
pub const OPEN_OPERATIONS_MAX: usize = 20_000;

/// Operations that a cancelled run may ask for and is refused. A workflow that asks for more does not stop by
/// itself: the run is stuck.
pub const REFUSALS_MAX: u64 = 100_000;

/// Events of one turn that are committed together. A turn that asks for more is committed in parts, so that other runs
/// do not wait for all of it: 20,000 children in one transaction take seconds, and 1,000 take some tens of milliseconds.
pub const PART_EVENTS_MAX: usize = 1_000;

/// Waits that a run's row shows; the rest is in its history.
pub const WAITS_SHOWN_MAX: usize = 100;

/// Polls of a workflow after one delivery, while it wakes itself. More is a loop.
pub const POLLS_PER_DELIVERY_MAX: usize = 1_000;

/// Runs started in one call to the world.
pub const BATCH_STARTS_MAX: usize = 1_000;

/// Finished runs that one call to the world forgets.
pub const PRUNE_RUNS_MAX: usize = 1_000;

/// Turns committed in one call to the world.
pub const BATCH_TURNS_MAX: usize = 1_000;

/// Runs claimed in one call to the world.
pub const CLAIM_RUNS_MAX: usize = 1_000;

/// Runs that one page of a list holds.
pub const PAGE_RUNS_MAX: usize = 1_000;

/// Runs that a world looks at for one page, when it filters by what it has no index for. A page that comes
/// here says where the next one goes on, however few runs it found.
pub const PAGE_LOOKS_MAX: usize = 5_000;

/// Turns read of one history at a time.
pub const HISTORY_TURNS_READ_MAX: usize = 10_000;

/// How long a turn may compute before its run is stuck, unless the worker's builder says otherwise. A
/// turn takes microseconds, a long replay some seconds.
pub const TURN_TIME_DEFAULT: Duration = Duration::from_secs(10);

/// Runs that a worker holds at the same time, unless its builder says otherwise.
pub const LIVE_RUNS_DEFAULT: usize = 10_000;

/// Attempts at blocking steps that a worker makes at the same time, unless its builder says otherwise.
/// Each has a thread; tokio's own limit is 512, and others need some of them.
pub const BLOCKING_ATTEMPTS_DEFAULT: usize = 128;

/// Futures of waiting runs that a worker keeps, unless its builder says otherwise.
pub const CACHED_FUTURES_DEFAULT: usize = 10_000;

/// Crashes of its worker after which a run is carried apart from others; see [`takeover`](crate::takeover).
pub const SUSPECT_CRASHES: u32 = 2;

/// Crashes of its worker after which a run is stuck.
pub const POISON_CRASHES: u32 = 5;

/// Runs of the second crash class that a worker carries at least, if it has the room. Fewer would make the
/// runs that were beside a crashing one wait for each other.
pub const CRASH_CLASS_2_RUNS_MIN: usize = 64;

/// Runs of the third crash class that a worker carries at the most.
pub const CRASH_CLASS_3_RUNS_MAX: usize = 16;

/// How long a new session waits for a run of the last crash class that it took alone. A run that is still
/// going then did not crash its worker at once, and others must not wait for it.
pub const CRASH_TRIAL: Duration = Duration::from_secs(60);

/// Builds that a stuck run remembers as failed. More builds than this are not deployed side by side.
pub const FAILED_BUILDS_MAX: usize = 8;

/// How long a stuck run is not ready after a build replaced the oldest one of a full list. The oldest build may then
/// try the run again, and must not do so in a tight loop.
pub const FAILED_BUILD_RETRY: Duration = Duration::from_secs(600);

/// How long a run that nobody holds may be past its deadline before a worker without its code ends it.
/// A worker with the code lets it clean up, and comes first.
pub const DEADLINE_GRACE: Duration = Duration::from_secs(60);

/// How long a session lasts without a beat, unless the worker's builder says otherwise.
pub const SESSION_DEFAULT: Duration = Duration::from_secs(10);

/// The shortest session. A shorter one would expire by a busy machine's ordinary pauses.
pub const SESSION_MIN: Duration = Duration::from_millis(500);

/// How long a woken run waits for the worker that has its future, before others may take it.
pub const PREFERENCE: Duration = Duration::from_millis(100);

/// How long a world whose hints may be lost goes without a look of its own.
pub const SLOW_POLL: Duration = Duration::from_millis(500);

/// How long a worker goes without a claim when no hint comes. Worlds look for lost hints themselves, so
/// this is for hints that nobody thought of.
pub const IDLE_CLAIM: Duration = Duration::from_secs(30);
