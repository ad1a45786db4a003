//! All limits of the engine, each with its reason. An error names the limit that was exceeded.

use std::time::Duration;

/// Bytes of a workflow's, step's or hook's name. Names are index keys and appear in every event.
pub const NAME_BYTES_MAX: usize = 128;

/// The default queue of runs and workers.
pub const QUEUE_DEFAULT: &str = "default";

/// Queues that one worker serves. A claim searches each of them.
pub const QUEUES_MAX: usize = 32;

/// The highest priority of a run; 0 is the default.
pub const PRIORITY_MAX: u8 = 9;

/// How much waiting time each level of priority is worth. A run of a lower priority that has been ready for longer
/// than this comes first, so that no run waits forever behind more urgent ones.
pub const PRIORITY_AGE: Duration = Duration::from_secs(10);

/// Step names for which the report of a worker counts attempts; others are only included in the sum.
pub const REPORT_STEPS_MAX: usize = 32;

/// Runs for which the report of a worker says that their turns are not committed. The report must fit into its row even
/// if the disk is full.
pub const REPORT_UNCOMMITTED_MAX: usize = 16;

/// Bytes of the error in that part of the report.
pub const REPORT_ERROR_BYTES_MAX: usize = 300;

/// Bytes of a start key. Keys are index keys, but callers build them from their own ids.
pub const KEY_BYTES_MAX: usize = 256;

/// Bytes of a step's key with values of its input; a longer one is hashed. External systems commonly accept 255 bytes.
pub const STEP_KEY_BYTES_MAX: usize = 255;

/// Bytes of the reason of a cancel. It is part of every error that the cancel causes.
pub const REASON_BYTES_MAX: usize = 4 * 1024;

/// Bytes of all headers of a start or message. They are copied to children and messages of the run.
pub const HEADERS_BYTES_MAX: usize = 16 * 1024;

/// Tags of one run. Each is an index entry; data that is not searched belongs in the input.
pub const TAGS_MAX: usize = 32;

/// Bytes of a tag's value. Values are index keys.
pub const TAG_VALUE_BYTES_MAX: usize = 256;

/// Bytes of one payload. Store larger data elsewhere, and put its address into the payload.
pub const PAYLOAD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Nesting of a payload. JSON parsers refuse more than 128 levels, and events add some levels.
pub const PAYLOAD_DEPTH_MAX: usize = 64;

/// Bytes of a failure's message, and of each cause; longer texts are truncated.
pub const FAILURE_TEXT_BYTES_MAX: usize = 8 * 1024;

/// Recorded causes of a failure.
pub const FAILURE_CAUSES_MAX: usize = 16;

/// Bytes of a failure's details as JSON. They are recorded, and copied into every error that follows; larger ones are
/// omitted, and the message says so.
pub const FAILURE_DETAILS_BYTES_MAX: usize = 64 * 1024;

/// The maximum fraction by which jitter extends a pause. More would make the configured pauses meaningless.
pub const JITTER_MAX: f64 = 0.10;

/// Unread messages of one run. A sender that exceeds it is far ahead of the run.
pub const INBOX_MESSAGES_MAX: u64 = 10_000;

/// Messages of one run that are read at a time; its next turn reads the others.
pub const INBOX_READ_MAX: usize = 1_000;

/// Kept payloads of one run together with its unread messages. A send that exceeds it is refused, unless it is for a
/// hook that the run waits for; the run is not affected.
pub const HOOK_BUFFER_MAX: usize = 10_000;

/// Events of a history that a claim returns. Longer histories are read afterwards, so that claims stay fast.
pub const HISTORY_IN_CLAIM_EVENTS_MAX: u64 = 64;

/// Runs whose histories one call to the world reads.
pub const HISTORIES_READ_MAX: usize = 64;

/// Events of one history. A run that reaches it is cancelled, because a replay would take too long.
pub const HISTORY_EVENTS_MAX: u64 = 100_000;

/// Events at which a worker warns that a history grows long.
pub const HISTORY_EVENTS_WARN: u64 = 80_000;

/// Further events that a run may use to clean up after that cancel; then it fails.
pub const HISTORY_ROOM_EVENTS: u64 = 10_000;

/// Operations of one run that are open at the same time.
pub const OPEN_OPERATIONS_MAX: usize = 20_000;

/// Refused operations after a cancel. A workflow that requests more does not stop: the run is stuck.
pub const REFUSALS_MAX: u64 = 100_000;

/// Events of one turn that are committed together. A turn with more events is committed in parts, so that other runs
/// do not wait for all of it: 20,000 children in one transaction take seconds, 1,000 take some tens of milliseconds.
pub const PART_EVENTS_MAX: usize = 1_000;

/// Waits in the row of a run; the others are only in its history.
pub const WAITS_SHOWN_MAX: usize = 100;

/// Polls of a workflow after one delivery while it wakes itself. More means a loop.
pub const POLLS_PER_DELIVERY_MAX: usize = 1_000;

/// Runs started in one call to the world.
pub const BATCH_STARTS_MAX: usize = 1_000;

/// Finished runs that one call to the world deletes.
pub const PRUNE_RUNS_MAX: usize = 1_000;

/// Turns committed in one call to the world.
pub const BATCH_TURNS_MAX: usize = 1_000;

/// Runs claimed in one call to the world.
pub const CLAIM_RUNS_MAX: usize = 1_000;

/// Runs on one page of a list.
pub const PAGE_RUNS_MAX: usize = 1_000;

/// Runs that a world examines for one page when it filters by columns without an index. A page that reaches it has a
/// cursor for the next page, however few runs it contains.
pub const PAGE_LOOKS_MAX: usize = 5_000;

/// Turns of one history that are read at a time.
pub const HISTORY_TURNS_READ_MAX: usize = 10_000;

/// How long a turn may take before its run is stuck, by default. A turn takes microseconds, a long replay some
/// seconds.
pub const TURN_TIME_DEFAULT: Duration = Duration::from_secs(10);

/// Runs that a worker holds at the same time, by default.
pub const LIVE_RUNS_DEFAULT: usize = 10_000;

/// Concurrent attempts at blocking steps on a worker, by default. Each uses a thread; tokio's limit is 512, and other
/// code needs some of them.
pub const BLOCKING_ATTEMPTS_DEFAULT: usize = 128;

/// Futures of waiting runs that a worker caches, by default.
pub const CACHED_FUTURES_DEFAULT: usize = 10_000;

/// Crashes of its worker after which a run is executed separately from others; see [`takeover`](crate::takeover).
pub const SUSPECT_CRASHES: u32 = 2;

/// Crashes of its worker after which a run is stuck.
pub const POISON_CRASHES: u32 = 5;

/// The minimum number of runs of crash class 2 that a worker with enough capacity executes at a time. With fewer, the
/// runs that were held together with a crashing one would wait for each other.
pub const CRASH_CLASS_2_RUNS_MIN: usize = 64;

/// The maximum number of runs of crash class 3 that a worker executes at a time.
pub const CRASH_CLASS_3_RUNS_MAX: usize = 16;

/// How long a new session waits for a run of the last crash class that it claimed alone. If the run has not crashed
/// its worker by then, others must not wait for it.
pub const CRASH_TRIAL: Duration = Duration::from_secs(60);

/// Failed builds of a stuck run. More builds than this are not deployed at the same time.
pub const FAILED_BUILDS_MAX: usize = 8;

/// How long a stuck run is not ready after a build replaced the oldest one of a full list. The oldest build may retry
/// the run, but not in a tight loop.
pub const FAILED_BUILD_RETRY: Duration = Duration::from_secs(600);

/// How long after its deadline a run without a holder is ended by a worker without its code. A worker with the code,
/// which lets the run clean up, gets this time.
pub const DEADLINE_GRACE: Duration = Duration::from_secs(60);

/// How long a session lasts without a beat, by default.
pub const SESSION_DEFAULT: Duration = Duration::from_secs(10);

/// The shortest session. A shorter one would expire by ordinary pauses of a busy machine.
pub const SESSION_MIN: Duration = Duration::from_millis(500);

/// How long a woken run is reserved for the worker that has its future, before others can claim it.
pub const PREFERENCE: Duration = Duration::from_millis(100);

/// How long a world whose hints may be lost waits before it polls.
pub const SLOW_POLL: Duration = Duration::from_millis(500);

/// How long a worker waits without a hint before it claims anyway. Worlds poll for lost hints themselves, so this is a
/// safeguard for missing hints.
pub const IDLE_CLAIM: Duration = Duration::from_secs(30);
