//! The statements, one file each, with their reasons.

macro_rules! statements {
    ($($name:ident;)*) => {
        /// The statements of one schema.
        #[derive(Debug)]
        pub(crate) struct Sql {
            /// The schema's name, as statements write it.
            pub(crate) schema: String,
            $(pub(crate) $name: String,)*
        }

        impl Sql {
            /// The statements of the schema.
            pub(crate) fn of(schema: &str) -> Self {
                let schema = quoted(schema);
                let fill = |text: &str| without_reason(text).replace("{schema}", &schema);
                Self {
                    $($name: fill(include_str!(concat!("../sql/", stringify!($name), ".sql"))),)*
                    schema,
                }
            }
        }
    };
}

statements! {
    barrier;
    beat;
    claim;
    clock;
    commit;
    commit_each;
    counts;
    held;
    histories;
    history;
    inboxes;
    join;
    leave;
    lock;
    prune;
    resume;
    run_by_key;
    run_ends;
    run_exists;
    run_view;
    runs_edge;
    runs_page;
    send;
    skew;
    start;
    sweep_leftovers;
    takeover;
    unlock;
    unread;
    workers;
}

/// A name as an identifier in a statement.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The statement without the comment on top: it is looked up by its text, and sent.
fn without_reason(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
    lines.join("\n")
}
