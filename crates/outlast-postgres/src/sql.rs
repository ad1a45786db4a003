//! The statements, one file each, with their reasons.

macro_rules! statements {
    ($($name:ident;)*) => {
        /// The statements of one schema.
        #[derive(Debug)]
        pub(crate) struct Sql {
            /// The schema's name, as statements write it.
            pub(crate) schema: String,
            /// The set of functions that they call.
            pub(crate) interface: u32,
            /// The channel on which processes tell each other.
            pub(crate) channel: String,
            $(pub(crate) $name: String,)*
        }

        impl Sql {
            /// The statements of the schema.
            pub(crate) fn of(schema: &str, interface: u32) -> Self {
                let channel = channel(schema);
                let schema = quoted(schema);
                let fill = |text: &str| {
                    let text = without_reason(text).replace("{schema}", &schema).replace("{v}", &suffix(interface));
                    crate::columns::fill(&text, interface)
                };
                Self {
                    $($name: fill(include_str!(concat!("../sql/", stringify!($name), ".sql"))),)*
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
    counts;
    details;
    free;
    held;
    hint;
    histories;
    history;
    identity;
    inboxes;
    join;
    leave;
    lock;
    probe;
    prune;
    remove_session;
    resume;
    row_is_free;
    row_lock;
    run_by_key;
    run_ends;
    run_exists;
    run_views;
    runs_edge;
    runs_page;
    send;
    skew;
    start;
    start_one;
    sweep_leftovers;
    table_locks;
    takeover;
    unlock;
    unread;
    workers;
}

/// The set of functions that this program calls. A migration that changes one of them makes a new set, and keeps the one
/// before for the programs that still run.
pub(crate) const INTERFACE: u32 = 2;

/// What the names of the functions of an interface end in.
pub(crate) fn suffix(interface: u32) -> String {
    format!("_v{interface}")
}

/// A name as an identifier in a statement.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The channel of a schema. A name has at most 63 bytes; the schema's may have as many.
pub(crate) fn channel(schema: &str) -> String {
    let hash = schema.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("outlast_{hash:016x}")
}

/// The statement without the comment on top: it is looked up by its text, and sent.
fn without_reason(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
    lines.join("\n")
}
