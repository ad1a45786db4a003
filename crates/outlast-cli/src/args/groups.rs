//! The help of the program: commands in groups.

use clap::Command;

/// The groups of commands, in the order of the help.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Runs",
        &[
            "start", "list", "show", "explain", "watch", "send", "ask", "run", "stream", "hook", "failure",
            "bulk", "schedule",
        ],
    ),
    ("Serve and work", &["dev", "serve", "access", "audit", "worker", "mcp", "check"]),
    ("World", &["queue", "workflow", "world", "doctor"]),
    ("Program", &["config", "new", "completions", "man", "version"]),
];

/// How the help of the program ends.
pub(super) const ENDING: &str = "\
Where it connects: --server or --world, OUTLAST_SERVER or OUTLAST_WORLD, the configuration file, \
DATABASE_URL, and then an existing sqlite:.outlast/outlast.db. Only `dev` and `world migrate` create anything.

Exit codes: 0 done, 1 failure, 2 usage or configuration, 3 not found, 4 not allowed, 5 conflict, 6 timed \
out, 7 the awaited run did not complete, 8 world or server unavailable, 130 interrupted.";

/// The command with a help that lists its subcommands in groups.
pub(crate) fn grouped_help(command: Command) -> Command {
    let mut text = String::from("{about}\n\n{usage-heading} {usage}\n");
    for (title, names) in GROUPS {
        text.push_str(&format!("\n{title}:\n"));
        for name in names {
            if let Some(found) = command.find_subcommand(name).filter(|found| !found.is_hide_set()) {
                let about = found.get_about().map(ToString::to_string).unwrap_or_default();
                text.push_str(&format!("  {name:<12} {about}\n"));
            }
        }
    }
    text.push_str("\nOptions:\n{options}\n\nUse `{name} COMMAND --help` for the options and examples of a command.{after-help}");
    command.help_template(text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Arguments;

    #[test]
    fn every_command_is_in_one_group() {
        let command = Arguments::command();
        let mut listed: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let mut existing: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        listed.sort_unstable();
        existing.sort_unstable();
        assert_eq!(listed, existing);
    }

    /// Options of lists and actions are not filters, and what follows a heading of clap belongs to it.
    #[test]
    fn only_filters_are_below_the_heading_of_filters() {
        let mut command = Arguments::command();
        command.build();
        for path in
            [&["list"][..], &["run", "cancel"], &["run", "retry"], &["run", "restart"], &["run", "terminate"]]
        {
            let found = path.iter().fold(&command, |command, name| command.find_subcommand(name).unwrap());
            for argument in found.get_arguments() {
                let is_filter = argument.get_help_heading() == Some("Filters");
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                let says_so = help.starts_with("Only runs")
                    || help.starts_with("Only children")
                    || help.starts_with("Only descendants")
                    || help.starts_with("Also list");
                assert_eq!(is_filter, says_so, "{path:?}: {argument}: {help}");
            }
        }
    }

    /// Help is at most 100 columns wide. Lines of examples that are longer would be broken.
    #[test]
    fn examples_are_not_broken() {
        fn check(command: &Command) {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in examples.lines().filter(|line| line.starts_with("  ")) {
                assert!(line.chars().count() <= 96, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Arguments::command());
    }

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    /// Check 35, as far as the command line is concerned.
    #[test]
    fn every_action_has_a_command() {
        use outlast_api::Action;
        for action in Action::ALL {
            let path = match action {
                // Many starts are lines of a file.
                Action::Start | Action::StartBatch => "start".to_owned(),
                Action::Send | Action::SendToToken => "send".to_owned(),
                // A command with a filter instead of a run.
                Action::Bulk => "run cancel".to_owned(),
                Action::StopBulk => "bulk stop".to_owned(),
                Action::Prune => "world prune".to_owned(),
                other => match other.as_str().trim_end_matches('s').strip_suffix("_schedule") {
                    Some(verb) => format!("schedule {verb}"),
                    None => format!("run {other}"),
                },
            };
            let mut command = Arguments::command();
            for name in path.split(' ') {
                let found = command.find_subcommand(name).cloned();
                command = found.unwrap_or_else(|| panic!("{action} has no command `outlast {path}`"));
            }
        }
    }
}
