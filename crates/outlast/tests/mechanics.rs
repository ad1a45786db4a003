//! Tests of the engine's rules, one per rule, on every world.
//!
//! Time is virtual. Workers replay after every turn, unless a test is about caching.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod mechanics {
    mod faulty_world;
    mod test_engine;

    mod actors;
    mod at_most_once;
    mod blocking;
    mod cancel;
    mod cancel_operation;
    mod children;
    mod client_retries;
    mod compensation;
    mod context_outside_turn;
    mod control;
    mod crashes;
    mod current;
    mod deploy_check;
    mod direct_step_calls;
    mod dropped_attempts;
    mod drops;
    mod durable_bulk;
    mod event_order;
    mod explain;
    mod failed_builds;
    mod forks;
    mod forks_apart;
    mod generations;
    mod handles;
    mod heartbeat;
    mod history_length;
    mod idle;
    mod inbox;
    mod input_checks;
    mod iterations;
    mod kept_outcomes;
    mod keys;
    mod known_pitfalls;
    mod lists;
    mod operations;
    mod outages;
    mod output_waiting;
    mod parallel;
    mod pause;
    mod policies;
    mod polling;
    mod queued;
    mod reconcile;
    mod recorded_values;
    mod refused_commits;
    mod regressions;
    mod rejected_payloads;
    mod release;
    mod replies;
    mod reserved_names;
    mod restart_and_delete;
    mod retention;
    mod retried_runs;
    mod retried_tokens;
    mod retries;
    mod schedules;
    mod session_logs;
    mod shields;
    mod slow_drops;
    mod starts;
    mod step_context;
    mod strategies;
    mod streams;
    mod stuck;
    mod takeover;
    mod tokens;
    mod transactional;
    mod turn_parts;
    mod turns;
    mod unanswered_controls;
    mod undecodable_values;
    mod unknown_answers;
    mod unreadable_histories;
    mod versions;
    mod views;
    mod webhooks;
    mod withdrawn_queued_steps;
    mod withheld_attempts;
    mod worker_selection;
    mod world_gone;
}
