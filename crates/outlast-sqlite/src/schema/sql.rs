//! The statements of the folder `sql/`, one per file.

use std::sync::LazyLock;

use crate::schema::columns::expand_placeholders;

macro_rules! statements {
    ($($name:ident = $file:literal;)*) => {$(
        pub(crate) const $name: &str = include_str!(concat!("../../sql/", $file, ".sql"));
    )*};
}

/// Statements with placeholders for the columns that only a run's holder changes.
macro_rules! statements_with_columns {
    ($($name:ident = $file:literal;)*) => {$(
        pub(crate) static $name: LazyLock<String> =
            LazyLock::new(|| expand_placeholders(include_str!(concat!("../../sql/", $file, ".sql"))));
    )*};
}

statements_with_columns! {
    DUE_IN_LINE = "due_in_line";
    FAILURES = "failures";
    FAILURES_BY_FINGERPRINT = "failures_by_fingerprint";
    HELD_LIST = "held_list";
    READY_BY_CODE = "ready_by_code";
    READY_IN_LINE = "ready_in_line";
    READY_OVERDUE = "ready_overdue";
    READY_WITHOUT_CODE = "ready_without_code";
    RUN_CHANGE = "run_change";
    RUN_INSERT = "run_insert";
    RUN_RELEASE = "run_release";
    RUN_REOPEN = "run_reopen";
    RUN_VIEW = "run_view";
    RUNS_PAGE = "runs_page";
}

statements! {
    CHUNKS_INSERT = "chunks_insert";
    CHUNKS_READ = "chunks_read";
    CHUNKS_TRIM = "chunks_trim";
    CLOCK_READ = "clock_read";
    CLOCK_SAVE = "clock_save";
    COUNTS = "counts";
    COUNTS_ADD = "counts_add";
    DELETE_CANDIDATE = "delete_candidate";
    FIRST_BUILD = "first_build";
    FLAG_COUNTS = "flag_counts";
    HEARTBEATS = "heartbeats";
    HEARTBEATS_ANY = "heartbeats_any";
    HEARTBEATS_DELETE_ENDED = "heartbeats_delete_ended";
    HEARTBEAT_DELETE = "heartbeat_delete";
    HEARTBEAT_PUT = "heartbeat_put";
    HISTORY = "history";
    ID_SKEW = "id_skew";
    ID_SKEW_WIDEN = "id_skew_widen";
    INBOX_CLEAR_CONSUMED = "inbox_clear_consumed";
    INBOX_FIRST_UNCONSUMED = "inbox_first_unconsumed";
    INBOX_INSERT = "inbox_insert";
    INBOX_POSITION = "inbox_position";
    INBOX_READ = "inbox_read";
    LEFTOVERS = "leftovers";
    LEFTOVER_ADD = "leftover_add";
    LEFTOVER_DONE = "leftover_done";
    MARK_COUNTS = "mark_counts";
    OVERDUE_NEXT = "overdue_next";
    PRUNE_CANDIDATES = "prune_candidates";
    PRUNE_CHUNK = "prune_chunk";
    PRUNE_CHUNK_SIZES = "prune_chunk_sizes";
    PRUNE_HEARTBEATS = "prune_heartbeats";
    PRUNE_MESSAGE = "prune_message";
    PRUNE_MESSAGE_SIZES = "prune_message_sizes";
    PRUNE_REPLIES = "prune_replies";
    PRUNE_RUNS = "prune_runs";
    PRUNE_STATES = "prune_states";
    PRUNE_STREAMS = "prune_streams";
    PRUNE_STREAM_WRITERS = "prune_stream_writers";
    PRUNE_TAGS = "prune_tags";
    PRUNE_TOKENS = "prune_tokens";
    PRUNE_TOKENS_KEEP = "prune_tokens_keep";
    PRUNE_TURN = "prune_turn";
    PRUNE_TURN_SIZES = "prune_turn_sizes";
    QUEUES_HELD = "queues_held";
    QUEUES_WITHOUT_CODE = "queues_without_code";
    QUEUE_NEXT_LINE = "queue_next_line";
    QUEUE_NEXT_PRIORITY = "queue_next_priority";
    QUEUE_READY = "queue_ready";
    QUEUE_READY_FAILED = "queue_ready_failed";
    READY_STEPS = "ready_steps";
    RECORDS_ASCENDING = "records_ascending";
    RECORDS_DESCENDING = "records_descending";
    RECORD_COUNT = "record_count";
    RECORD_COUNT_ADD = "record_count_add";
    RECORD_DELETE = "record_delete";
    RECORD_PUT = "record_put";
    RECORD_READ = "record_read";
    REPLIES_OLD = "replies_old";
    REPLY_DELETE = "reply_delete";
    REPLY_PUT = "reply_put";
    REPLY_READ = "reply_read";
    RULES_LOWEST = "rules_lowest";
    RUNS_SCAN_END = "runs_scan_end";
    RUN_BY_KEY = "run_by_key";
    RUN_CLAIM = "run_claim";
    RUN_CLEAR_KEY = "run_clear_key";
    RUN_ENDED = "run_ended";
    RUN_ENDS = "run_ends";
    RUN_EXISTS = "run_exists";
    RUN_FORMAT = "run_format";
    RUN_HOLDER = "run_holder";
    RUN_IS_READY = "run_is_ready";
    RUN_MARKS = "run_marks";
    RUN_OWNER = "run_owner";
    RUN_POSITION = "run_position";
    RUN_RAISE_FORMAT = "run_raise_format";
    RUN_RECEIVER = "run_receiver";
    RUN_REOPENABLE = "run_reopenable";
    RUN_RESUME = "run_resume";
    RUN_SENT = "run_sent";
    RUN_SET_MARKS = "run_set_marks";
    SCHEMA_MIN = "schema_min";
    SCHEMA_MIN_SET = "schema_min_set";
    SESSIONS = "sessions";
    SESSIONS_BELOW_SCHEMA = "sessions_below_schema";
    SESSION_ADD_FOREIGN_WRITE = "session_add_foreign_write";
    SESSION_BEAT = "session_beat";
    SESSION_DELETE = "session_delete";
    SESSION_EXISTS = "session_exists";
    SESSION_FOREIGN_WRITES = "session_foreign_writes";
    SESSION_INSERT = "session_insert";
    STATE_PUT = "state_put";
    STATE_READ = "state_read";
    STREAMS = "streams";
    STREAMS_COUNT = "streams_count";
    STREAM_PUT = "stream_put";
    STREAM_READ = "stream_read";
    STREAM_WRITERS = "stream_writers";
    STREAM_WRITER_PUT = "stream_writer_put";
    TAG_PUT = "tag_put";
    TOKENS_OVER = "tokens_over";
    TOKEN_DELETE = "token_delete";
    TOKEN_FREE = "token_free";
    TOKEN_KEEP = "token_keep";
    TOKEN_PUT = "token_put";
    TOKEN_READ = "token_read";
    TURNS_COUNT = "turns_count";
    TURNS_COPY = "turns_copy";
    TURNS_DELETE_RANGE = "turns_delete_range";
    TURN_INSERT = "turn_insert";
    TURN_WITH_EVENT = "turn_with_event";
    UNREAD = "unread";
    WORKERS = "workers";
}
