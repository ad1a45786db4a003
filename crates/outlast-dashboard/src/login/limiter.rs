//! Limits failed logins: five a minute for each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use outlast_core::Timestamp;
use parking_lot::Mutex;

/// The failed logins that an address has in a minute.
const FAILURES_MAX: u32 = 5;

/// The time over which failures are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// The addresses that are remembered. When there are more, all that have expired are forgotten first, then all.
const ADDRESSES_MAX: usize = 1_000;

/// The failed logins of each address.
#[derive(Debug, Default)]
pub(crate) struct LoginLimiter(Mutex<HashMap<Option<IpAddr>, (Timestamp, u32)>>);

impl LoginLimiter {
    /// Whether this address may try again.
    pub(crate) fn allows(&self, address: Option<IpAddr>, now: Timestamp) -> bool {
        let failures = self.0.lock();
        failures
            .get(&address)
            .is_none_or(|(since, count)| now.since(*since) >= WINDOW || *count < FAILURES_MAX)
    }

    /// Counts a failed login.
    pub(crate) fn count(&self, address: Option<IpAddr>, now: Timestamp) {
        let mut failures = self.0.lock();
        if failures.len() >= ADDRESSES_MAX {
            failures.retain(|_, (since, _)| now.since(*since) < WINDOW);
        }
        if failures.len() >= ADDRESSES_MAX {
            failures.clear();
        }
        let entry = failures.entry(address).or_insert((now, 0));
        if now.since(entry.0) >= WINDOW {
            *entry = (now, 0);
        }
        entry.1 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_failures_a_minute_are_allowed() {
        let limiter = LoginLimiter::default();
        let at = |second: i64| Timestamp::from_micros(second * 1_000_000);
        for second in 0..5 {
            assert!(limiter.allows(None, at(second)));
            limiter.count(None, at(second));
        }
        assert!(!limiter.allows(None, at(59)));
        assert!(limiter.allows(Some(IpAddr::from([10, 0, 0, 1])), at(59)), "another address");
        assert!(limiter.allows(None, at(60)));
    }

    #[test]
    fn the_number_of_addresses_is_limited() {
        let limiter = LoginLimiter::default();
        for number in 0..3_000_u32 {
            limiter.count(Some(IpAddr::from(number.to_be_bytes())), Timestamp::from_micros(0));
        }
        assert!(limiter.0.lock().len() <= ADDRESSES_MAX);
    }
}
