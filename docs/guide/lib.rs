//! The pages of the guide as documentation tests: a snippet that does not compile fails the tests.

/// Defines an item per page, whose documentation is the page, and a list of all pages for the tests below.
macro_rules! pages {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("src/", $file))]
            pub struct $name;
        )*

        #[cfg(test)]
        const PAGES: &[(&str, &str)] = &[$(($file, include_str!(concat!("src/", $file)))),*];
    };
}

pages! {
    Introduction = "introduction.md",
    FirstSteps = "first-steps.md",
    Steps = "steps.md",
    LongSteps = "long-steps.md",
    TransactionalSteps = "transactional-steps.md",
    Http = "http.md",
    Time = "time.md",
    Hooks = "hooks.md",
    Tokens = "tokens.md",
    Webhooks = "webhooks.md",
    Streams = "streams.md",
    Stopping = "stopping.md",
    Sagas = "sagas.md",
    FailingAndEnding = "failing-and-ending.md",
    Parallel = "parallel.md",
    Races = "races.md",
    Children = "children.md",
    LongLives = "long-lives.md",
    Schedules = "schedules.md",
    Fleets = "fleets.md",
    Secrets = "secrets.md",
    HttpApi = "http-api.md",
    HttpAccess = "access.md",
    HttpBulkAndSchedules = "http-bulk-and-schedules.md",
    CommandLine = "command-line.md",
    CommandLineSettings = "command-line-settings.md",
    Dashboard = "dashboard.md",
    Looking = "looking.md",
    Controlling = "controlling.md",
    Forks = "forks.md",
    Logging = "logging.md",
    MetricsAndTraces = "metrics-and-traces.md",
    Deployment = "deployment.md",
    Assistants = "mcp.md",
    Versions = "versions.md",
    CheckingABuild = "checking-a-build.md",
    BadDeploys = "bad-deploys.md",
    ShortLivedWorkers = "short-lived-workers.md",
    Upgrading = "upgrading.md",
    Handles = "handles.md",
    Transactions = "transactions.md",
    Errors = "errors.md",
    Limits = "limits.md",
    WebService = "web-service.md",
    Testing = "testing.md",
    TestingCrashes = "testing-crashes.md",
    Sqlite = "sqlite.md",
    RetentionAndBackup = "retention-and-backup.md",
    Postgres = "postgres.md",
    ComingFrom = "coming-from.md",
}

#[cfg(test)]
mod tests {
    use super::PAGES;

    const SUMMARY: &str = include_str!("src/SUMMARY.md");
    const PAGE_LINES_MAX: usize = 150;

    #[test]
    fn every_page_is_in_the_summary_and_compiled() {
        let listed = SUMMARY.matches("](").count();
        assert_eq!(listed, PAGES.len(), "the summary and the list of pages differ");
        for (file, _) in PAGES {
            assert!(SUMMARY.contains(&format!("]({file})")), "{file} is not in SUMMARY.md");
        }
    }

    #[test]
    fn a_page_is_read_in_one_go() {
        for (file, text) in PAGES {
            // Lines that begin with `# ` are hidden in code blocks. The title of the page begins that way too.
            let lines = text.lines().filter(|line| !line.starts_with("# ")).count();
            assert!(lines <= PAGE_LINES_MAX, "{file} has {lines} lines, the limit is {PAGE_LINES_MAX}");
        }
    }
}
