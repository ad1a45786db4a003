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

/// Bytes of a failure's message in the row of its run, which lists show. The history has the whole message.
pub const RUN_FAILURE_MESSAGE_BYTES: usize = 200;

/// Runs up to which those with a flag are counted. The cost of a count is bounded by it.
pub const FLAG_COUNT_MAX: usize = 1_000;

/// Ready runs up to which those of one queue are counted. The cost of a count is bounded by it.
pub const QUEUE_COUNT_MAX: usize = 10_000;

/// Queues that are listed. The names of queues are those of programs, which may have one per customer.
pub const QUEUES_LISTED_MAX: usize = 1_000;

/// Groups of ready runs (one per queue, workflow, version and whatever else decides who may claim them) that one list of
/// queues reads. Each costs a few lookups.
pub const QUEUE_GROUPS_READ_MAX: usize = 10_000;

/// Held runs that one list of queues counts, in all queues together: those of ten workers with the default limit.
pub const QUEUE_HELD_READ_MAX: usize = 100_000;

/// Bytes of the name of a space of records. Spaces are chosen by the engine and its surfaces.
pub const RECORD_SPACE_BYTES_MAX: usize = 64;

/// Bytes of the id of a record, which is an index key.
pub const RECORD_ID_BYTES_MAX: usize = 512;

/// Bytes of the body of a record: the schema of a large input fits.
pub const RECORD_BYTES_MAX: usize = 64 * 1024;

/// Records of one space. Who writes records deletes old ones.
pub const RECORDS_MAX: usize = 100_000;

/// Records that are written, deleted or read in one call.
pub const RECORDS_BATCH_MAX: usize = 1_000;

/// Definitions of workflows that are kept: one per workflow, version and build. The ones that no worker has joined with for
/// the longest are deleted first, and those of workers that are joined never.
pub const DEFINITIONS_MAX: usize = 500;

/// Names of steps, and names of queues, in one definition.
pub const DEFINITION_NAMES_MAX: usize = 100;

/// Bytes of one schema in a definition. Two of them, and the names, fit into a record.
pub const DEFINITION_SCHEMA_BYTES_MAX: usize = 16 * 1024;

/// Runs that are read by their ids in one call: a page of a live list.
pub const RUNS_BY_ID_MAX: usize = 200;

/// Recorded causes of a failure.
pub const FAILURE_CAUSES_MAX: usize = 16;

/// Failed compensations that the failure of a run lists. The history has all of them.
pub const FAILED_COMPENSATIONS_MAX: usize = 100;

/// Compensations that a run has registered and not settled. Their inputs are kept in memory while the run is live, and
/// they run one after the other.
pub const COMPENSATIONS_MAX: usize = 10_000;

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

/// Iterations of a loop that end one after the other without awaiting anything. More means that the loop has no end.
pub const ITERATIONS_WITHOUT_WAIT_MAX: usize = 10_000;

/// Ranges of iterations of a generation that a replay skips. Each is a place where a replay continues; when there are
/// more, later iterations are not skipped.
pub const SKIPPED_RANGES_MAX: usize = 1_000;

/// Events that a run skips before they are deleted: deleting is a call to the world.
pub const SKIPPED_EVENTS_DELETED: u64 = 1_000;

/// Bytes of one chunk of a stream. A chunk is shown while work is in progress; larger data belongs elsewhere.
pub const CHUNK_BYTES_MAX: usize = 256 * 1024;

/// Entries that one stream keeps. A stream that needs more sets how many of the last ones it keeps.
pub const STREAM_CHUNKS_MAX: u64 = 1_000_000;

/// Streams of one run. A list of streams is one page.
pub const STREAMS_MAX: u64 = 1_000;

/// Bytes of chunks that one call to the world writes: some milliseconds, so that other writes do not wait longer.
pub const STREAM_WRITE_BYTES_MAX: usize = 1024 * 1024;

/// Chunks that are stored as one row. A reader of a single chunk reads the whole row.
pub const PACK_CHUNKS_MAX: usize = 1_000;

/// Bytes that an attempt may have written and the world has not accepted. Further writes wait.
pub const STREAM_BUFFER_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of the chunks that a workflow writes in one turn. They are part of its commit; further ones are dropped.
pub const TURN_CHUNKS_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a published state. It is replaced as a whole with every change.
pub const STATE_BYTES_MAX: usize = 256 * 1024;

/// Entries of a stream that are read at a time.
pub const CHUNKS_READ_MAX: usize = 1_000;

/// Rows of a stream that are read at a time. Each has at most about a megabyte.
pub const PACKS_READ_MAX: usize = 16;

/// Operations that get other outcomes in one fork of a run. Each of them is a message.
pub const FORK_OUTPUTS_MAX: usize = 100;

/// Runs started in one call to the world.
pub const BATCH_STARTS_MAX: usize = 1_000;

/// Finished runs that one call to the world deletes.
pub const PRUNE_RUNS_MAX: usize = 1_000;

/// Refusals that the result of a bulk call lists. The others are only counted.
pub const BULK_REFUSALS_MAX: usize = 1_000;

/// Runs that one step of a durable bulk action calls. A stop waits for the end of the step, and an attempt that is lost is
/// made again.
pub const BULK_PAGE_RUNS: usize = 100;

/// Calls of a durable bulk action that are made at the same time.
pub const BULK_CALLS_MAX: usize = 16;

/// Pages after which a durable bulk action continues as a new generation, so that its history stays short.
pub const BULK_GENERATION_PAGES: usize = 50;

/// Refusals that the progress of a durable bulk action lists. It is written after each page.
pub const BULK_PROBLEMS_MAX: usize = 100;

/// Runs that are counted before a durable bulk action starts.
pub const BULK_MATCHED_MAX: u64 = 10_000;

/// Turns committed in one call to the world.
pub const BATCH_TURNS_MAX: usize = 1_000;

/// Runs claimed in one call to the world.
pub const CLAIM_RUNS_MAX: usize = 1_000;

/// By how much the time of a signed webhook may differ from now. The sender's clock may be wrong, and an old request must
/// not be repeated for long.
pub const WEBHOOK_TOLERANCE_DEFAULT: Duration = Duration::from_secs(5 * 60);

/// Signatures of one webhook that are examined. A sender has one for each of its keys.
pub const WEBHOOK_SIGNATURES_MAX: usize = 16;

/// Redirects that one attempt at a request follows.
pub const FETCH_REDIRECTS_MAX: usize = 5;

/// The time limit of an attempt at a request that sets none.
pub const FETCH_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// The time limit of a connection, so that an unreachable address is noticed before the time of the request is over.
pub const FETCH_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum pause that a server can ask for with `Retry-After`: it must not decide that a run sleeps for years.
pub const FETCH_RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);

/// Bytes of the body of a response, if the request sets no other limit.
pub const FETCH_RESPONSE_BYTES_DEFAULT: usize = 1024 * 1024;

/// The highest limit that a request can set. The body is recorded, with up to a third more bytes, in one payload.
pub const FETCH_RESPONSE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Bytes of the status line and headers of a response.
pub const FETCH_HEADERS_BYTES_MAX: usize = 64 * 1024;

/// Bytes of the body of an error response that are recorded in the details of the failure.
pub const FETCH_ERROR_BODY_BYTES_MAX: usize = 4 * 1024;

/// Runs that the report of a check describes for each workflow and reason: the first ones show what is wrong.
pub const CHECK_FINDINGS_MAX: usize = 3;

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

/// Bytes of a cron expression. It bounds the work of reading one.
pub const CRON_BYTES_MAX: usize = 256;

/// The shortest interval of a schedule. Work that repeats more often belongs in one run.
pub const SCHEDULE_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// How late an instant of a schedule may fire that does not catch up. Those that do are late after this time.
pub const CATCH_UP_GRACE: Duration = Duration::from_secs(60);

/// Late firings that one worker starts in a second. When a fleet is back, all schedules with missed instants fire.
pub const LATE_FIRINGS_PER_SECOND: u32 = 100;

/// How long a late firing waits for others at most.
pub const LATE_FIRING_DELAY_MAX: Duration = Duration::from_secs(600);

/// Missed instants that a schedule catches up at once. They are started one after the other.
pub const CATCH_UP_MAX: u32 = 1_000;

/// Missed instants that are counted at once. Counting more would take too long for a turn.
pub const MISSED_COUNT_MAX: usize = 10_000;

/// Firings of one schedule that run at the same time. Each generation of the schedule lists them.
pub const FIRINGS_RUNNING_MAX: usize = 100;

/// Ranges of instants that a schedule has still to backfill or to catch up.
pub const BACKLOG_RANGES_MAX: usize = 100;

/// Commands, ends of firings and skipped instants in one generation of a schedule. It bounds the history that a replay
/// reads.
pub const SCHEDULE_GENERATION_MAX: u32 = 200;

/// After this time a schedule tries again to compute its next instant, if the machine does not know its time zone.
pub const SCHEDULE_PROBLEM_PAUSE: Duration = Duration::from_secs(60);

/// Values of one label of a metric; further values are counted together. Each is a time series that others store.
pub const METRIC_LABEL_VALUES_MAX: usize = 200;

/// Log lines of one attempt that are written to the stream of its run. A step that logs more needs a log server.
pub const ATTEMPT_LOG_LINES_MAX: u64 = 1_000;

/// Bytes of these lines.
pub const ATTEMPT_LOG_BYTES_MAX: u64 = 256 * 1024;

/// Bytes of the message or of one field of such a line; longer ones are cut.
pub const ATTEMPT_LOG_LINE_BYTES_MAX: usize = 8 * 1024;

/// Log lines that the stream of a run keeps.
pub const LOG_STREAM_ENTRIES_MAX: u64 = 10_000;

/// Instants of a schedule that are computed in advance.
pub const SCHEDULE_NEXT_MAX: usize = 1_000;

/// Bytes of a token. It is part of URLs and events.
pub const TOKEN_BYTES_MAX: usize = 256;

/// Bytes of the metadata of a token. Everybody who knows the token can read them.
pub const TOKEN_METADATA_BYTES_MAX: usize = 4 * 1024;

/// How long a token can be kept after it was closed. It occupies a row for that time.
pub const TOKEN_KEPT_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How long replies are stored. An ask that is repeated with its key within this time gets the same reply.
pub const REPLY_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Old replies and kept tokens that one call of `prune` deletes.
pub const PRUNE_REPLIES_MAX: usize = 1_000;

/// Bytes of the body of a request to a webhook.
pub const WEBHOOK_BODY_BYTES_MAX: usize = 1024 * 1024;

/// Headers of a request to a webhook that are stored.
pub const WEBHOOK_HEADERS_MAX: usize = 64;

/// Bytes of the body of a response to a request to a webhook. A fixed one is part of the directory of tokens.
pub const WEBHOOK_REPLY_BYTES_MAX: usize = 64 * 1024;

/// Requests to one webhook per second, in one server. More are refused, so that one sender does not slow down the others.
pub const WEBHOOK_REQUESTS_PER_SECOND: u32 = 50;

/// Requests to one webhook at once, in one server. A sender that was offline delivers in bursts.
pub const WEBHOOK_BURST: u32 = 100;

/// How long a request to a webhook waits for the response of the workflow.
pub const WEBHOOK_RESPOND_TIME: Duration = Duration::from_secs(30);

/// Requests to webhooks that wait for the response of a workflow at the same time, in one server.
pub const WEBHOOK_WAITING_MAX: usize = 128;

/// The number of answers to commands that a schedule keeps. A sender that waits reads its answer long before as many
/// others were given.
pub const SCHEDULE_ANSWERS_MAX: usize = 64;

/// The largest input of firings that views of a schedule contain: 16 KiB. It is written again with every firing.
pub const SCHEDULE_INPUT_PUBLISHED_MAX: usize = 16 * 1024;
