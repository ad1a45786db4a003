//! The statements of `sql/`, one per file.

macro_rules! statements {
    ($($name:ident;)*) => {
        /// The statements of one schema.
        #[derive(Debug)]
        pub(crate) struct Statements {
            /// The schema's name as a quoted identifier.
            pub(crate) schema: String,
            /// The interface: the number of the set of functions that they call.
            pub(crate) interface: u32,
            /// The channel of `LISTEN` and `NOTIFY`.
            pub(crate) channel: String,
            $(pub(crate) $name: String,)*
        }

        impl Statements {
            /// The statements for a schema and an interface.
            pub(crate) fn of(schema: &str, interface: u32) -> Self {
                let channel = channel(schema);
                let schema = quoted(schema);
                let fill = |text: &str| {
                    let text = without_comments(text).replace("{schema}", &schema).replace("{v}", &function_suffix(interface));
                    crate::schema::holder_columns::fill_placeholders(&text, interface)
                };
                Self {
                    $($name: fill(include_str!(concat!("../../sql/", stringify!($name), ".sql"))),)*
                    schema,
                    interface,
                    channel,
                }
            }
        }
    };
}

statements! {
    beat;
    blockers;
    claim;
    claim_one;
    clock;
    commit;
    commit_one;
    commit_tokens;
    commit_writes;
    counts;
    delete;
    delete_records;
    delete_turns;
    details;
    event_count;
    failures;
    failures_by_fingerprint;
    flag_counts;
    fork;
    free;
    held;
    hint;
    histories;
    history_containing;
    identity;
    inboxes;
    join;
    leave;
    lock;
    mark_counts;
    probe;
    prune;
    prune_tokens;
    put_records;
    quarantine;
    queues;
    record;
    record_outcome;
    records_ascending;
    records_descending;
    remove_session;
    reopen;
    reply;
    resume;
    row_is_free;
    row_lock;
    run_by_key;
    run_ends;
    run_exists;
    run_views;
    runs_last_examined;
    runs_page;
    send;
    send_to_token;
    skew;
    start;
    start_and_send;
    start_one;
    state;
    stream_chunks;
    streams;
    sweep_chunks;
    sweep_leftovers;
    table_locks;
    takeover;
    token;
    unlock;
    unread;
    workers;
    write_chunks;
}

/// The interface: the number of the set of functions that this program calls. A migration that changes a function
/// creates a new set, and keeps the previous one for programs that are still running.
pub(crate) const INTERFACE: u32 = 3;

/// The suffix of the names of an interface's functions.
pub(crate) fn function_suffix(interface: u32) -> String {
    format!("_v{interface}")
}

/// A name as a quoted identifier.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The channel of a schema. It contains a hash of the schema's name, since names of channels have at most 63 bytes,
/// which the schema's name alone may need.
pub(crate) fn channel(schema: &str) -> String {
    let hash = schema.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("outlast_{hash:016x}")
}

/// The statement without its comments, which need not be sent: the cache of prepared statements uses the text as its
/// key.
fn without_comments(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
    lines.join("\n")
}
