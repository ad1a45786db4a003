//! Each mechanic of the design has a test here, named after the rule it proves, on every world.
//!
//! Time is virtual: nothing sleeps. Workers replay after every turn, unless a test is about caching.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod mechanics {
    mod faulty;
    mod rig;

    mod blocking;
    mod cancel;
    mod children;
    mod control;
    mod crashes;
    mod direct;
    mod door;
    mod drops;
    mod explain;
    mod failed_builds;
    mod fleets;
    mod handles;
    mod heartbeat;
    mod inbox;
    mod kept;
    mod keys;
    mod length;
    mod lists;
    mod losers;
    mod once;
    mod operations;
    mod order;
    mod outages;
    mod outside;
    mod parallel;
    mod parts;
    mod policies;
    mod polling;
    mod queued;
    mod reconcile;
    mod regressions;
    mod rejected;
    mod release;
    mod retention;
    mod retries;
    mod shields;
    mod starts;
    mod stuck;
    mod takeover;
    mod traps;
    mod turns;
    mod undecodable;
    mod unknown;
    mod unreadable;
    mod values;
    mod versions;
    mod views;
    mod withdrawn;
    mod withheld;
}
