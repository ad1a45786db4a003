//! The statements, one file each, with their reasons.

use std::sync::LazyLock;

macro_rules! statements {
    ($($name:ident = $file:literal;)*) => {$(
        pub(crate) const $name: &str = include_str!(concat!("../../sql/", $file, ".sql"));
    )*};
}

/// Statements that name the columns which only a run's holder changes.
macro_rules! statements_with_columns {
    ($($name:ident = $file:literal;)*) => {$(
        pub(crate) static $name: LazyLock<String> =
            LazyLock::new(|| crate::schema::columns::fill(include_str!(concat!("../../sql/", $file, ".sql"))));
    )*};
}

statements_with_columns! {
    DUE_IN_LINE = "due_in_line";
    HELD_LIST = "held_list";
    READY_BY_CODE = "ready_by_code";
    READY_CODELESS = "ready_without_code";
    READY_IN_LINE = "ready_in_line";
    READY_OVERDUE = "ready_overdue";
    RUN_CHANGE = "run_change";
    RUN_FREE = "run_release";
    RUN_INSERT = "run_insert";
    RUN_VIEW = "run_view";
    RUNS_PAGE = "runs_page";
}

statements! {
    CLOCK_NOTE = "clock_save";
    CLOCK_READ = "clock_read";
    COUNTS = "counts";
    COUNTS_ADD = "counts_add";
    FIRST_BUILD = "first_build";
    HEARTBEAT_FORGET = "heartbeat_delete";
    HEARTBEAT_PUT = "heartbeat_put";
    HEARTBEATS = "heartbeats";
    HEARTBEATS_ANY = "heartbeats_any";
    HEARTBEATS_ENDED = "heartbeats_delete_ended";
    HISTORY = "history";
    INBOX_BLANK = "inbox_clear_consumed";
    INBOX_INSERT = "inbox_insert";
    INBOX_MISSED = "inbox_first_unconsumed";
    INBOX_POSITION = "inbox_position";
    INBOX_READ = "inbox_read";
    LEFTOVER_ADD = "leftover_add";
    LEFTOVER_DONE = "leftover_done";
    LEFTOVERS = "leftovers";
    OVERDUE_NEXT = "overdue_next";
    PRUNE_HEARTBEATS = "prune_heartbeats";
    PRUNE_INBOX_LOOK = "prune_message_sizes";
    PRUNE_LOOK = "prune_candidates";
    PRUNE_MESSAGE = "prune_message";
    PRUNE_RUNS = "prune_runs";
    PRUNE_TAGS = "prune_tags";
    PRUNE_TURN = "prune_turn";
    PRUNE_TURNS_LOOK = "prune_turn_sizes";
    READY_STEPS = "ready_steps";
    RULES_LOWEST = "rules_lowest";
    RUN_BY_KEY = "run_by_key";
    RUN_CLAIM = "run_claim";
    RUN_ENDS = "run_ends";
    RUN_EXISTS = "run_exists";
    RUN_HOLDER = "run_holder";
    RUN_IS_READY = "run_is_ready";
    RUN_RAISE = "run_raise_format";
    RUN_RECEIVER = "run_receiver";
    RUN_RESUME = "run_resume";
    RUN_SENT = "run_sent";
    RUN_TIP = "run_position";
    RUN_UNKEY = "run_clear_key";
    RUNS_EDGE = "runs_scan_end";
    SCHEMA_MIN = "schema_min";
    SCHEMA_MIN_SET = "schema_min_set";
    SESSION_ALIVE = "session_exists";
    SESSION_ALL = "sessions";
    SESSION_BEAT = "session_beat";
    SESSION_BELOW = "sessions_below_schema";
    SESSION_DELETE = "session_delete";
    SESSION_INSERT = "session_insert";
    SESSION_ROW = "session_foreign_writes";
    SESSION_STRANGER = "session_add_foreign_write";
    SKEW = "id_skew";
    SKEW_WIDEN = "id_skew_widen";
    TAG_PUT = "tag_put";
    TURN_INSERT = "turn_insert";
    UNREAD = "unread";
    WORKERS = "workers";
}
