//! How often a caller may call: limits per process, in memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;

use outlast::Timestamp;
use outlast::core::TokenHash;
use outlast::core::limits::{WEBHOOK_BURST, WEBHOOK_REQUESTS_PER_SECOND};
use outlast_api::{Problem, ProblemCode};
use parking_lot::Mutex;

/// The number of requests of one caller per second, and at once.
const REQUESTS_PER_SECOND: f64 = 1_000.0;

/// The number of wrong access keys from one address in [`FAILURES_TIME`], and at once.
const FAILURES_MAX: f64 = 5.0;
const FAILURES_TIME: Duration = Duration::from_secs(60);

/// The number of callers and addresses that are known at the same time. The ones that have been idle are forgotten.
const KNOWN_MAX: usize = 10_000;

/// The limits of a server.
#[derive(Debug)]
pub(crate) struct RateLimits {
    requests: TokenBuckets<String>,
    failures: TokenBuckets<IpAddr>,
    /// By the hash of the token of a webhook that exists.
    webhooks: TokenBuckets<TokenHash>,
}

impl Default for RateLimits {
    fn default() -> Self {
        let per_second = FAILURES_MAX / FAILURES_TIME.as_secs_f64();
        Self {
            requests: TokenBuckets::new(REQUESTS_PER_SECOND, REQUESTS_PER_SECOND),
            failures: TokenBuckets::new(FAILURES_MAX, per_second),
            webhooks: TokenBuckets::new(WEBHOOK_BURST.into(), WEBHOOK_REQUESTS_PER_SECOND.into()),
        }
    }
}

impl RateLimits {
    /// Refuses a request of a caller that has made too many.
    pub(crate) fn check_request(&self, scope: &str, now: Timestamp) -> Result<(), Problem> {
        if self.requests.take(scope.to_owned(), now) {
            return Ok(());
        }
        let detail =
            format!("a caller may make {REQUESTS_PER_SECOND} requests per second; wait, or use batches");
        Err(Problem::new(ProblemCode::RateLimited, detail))
    }

    /// Refuses a request to a webhook that gets too many. Call it for webhooks that exist, so that nobody can fill the memory.
    pub(crate) fn check_webhook(&self, token: TokenHash, now: Timestamp) -> Result<(), Problem> {
        if self.webhooks.take(token, now) {
            return Ok(());
        }
        let detail = format!(
            "a webhook accepts {WEBHOOK_REQUESTS_PER_SECOND} requests per second, and {WEBHOOK_BURST} at once; send the request \
             again later"
        );
        Err(Problem::new(ProblemCode::RateLimited, detail))
    }

    /// Counts a request with a wrong access key. Refuses it in other words if there were too many, so that guessing is slow.
    pub(crate) fn count_failure(&self, address: Option<IpAddr>, now: Timestamp) -> Result<(), Problem> {
        let Some(address) = address else { return Ok(()) };
        if self.failures.take(address, now) {
            return Ok(());
        }
        let detail = "too many requests with wrong access keys came from this address; wait a minute";
        Err(Problem::new(ProblemCode::RateLimited, detail))
    }
}

/// A number of tokens for each key, which are refilled over time.
#[derive(Debug)]
struct TokenBuckets<K> {
    size: f64,
    per_second: f64,
    by_key: Mutex<HashMap<K, TokenBucket>>,
}

#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    tokens: f64,
    filled_at: Timestamp,
}

impl<K: Eq + Hash> TokenBuckets<K> {
    fn new(size: f64, per_second: f64) -> Self {
        Self { size, per_second, by_key: Mutex::default() }
    }

    /// Takes a token. Returns whether there was one.
    fn take(&self, key: K, now: Timestamp) -> bool {
        let mut by_key = self.by_key.lock();
        if by_key.len() >= KNOWN_MAX && !by_key.contains_key(&key) {
            by_key.retain(|_, bucket| self.tokens_at(bucket, now) < self.size);
            if by_key.len() >= KNOWN_MAX {
                // Somebody uses very many addresses at once. Forgetting them all favours nobody for long.
                by_key.clear();
            }
        }
        let bucket = by_key.entry(key).or_insert(TokenBucket { tokens: self.size, filled_at: now });
        let tokens = self.tokens_at(bucket, now);
        let has_token = tokens >= 1.0;
        let tokens = if has_token { tokens - 1.0 } else { tokens };
        *bucket = TokenBucket { tokens, filled_at: now };
        has_token
    }

    fn tokens_at(&self, bucket: &TokenBucket, now: Timestamp) -> f64 {
        let filled = now.since(bucket.filled_at).as_secs_f64() * self.per_second;
        (bucket.tokens + filled).min(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_caller_makes_a_thousand_requests_per_second() {
        let limits = RateLimits::default();
        let allowed =
            |scope: &str, now| (0..5_000).filter(|_| limits.check_request(scope, now).is_ok()).count();
        assert_eq!(allowed("a", at(10)), 1_000);
        assert_eq!(allowed("b", at(10)), 1_000, "another caller has its own limit");
        assert_eq!(allowed("a", at(11)), 1_000);
        assert_eq!(allowed("a", at(1_000)), 1_000, "unused requests do not add up");
        assert_eq!(allowed("a", at(999)), 0, "a clock that is set back gives nothing");
        assert!(limits.check_request("a", at(999)).unwrap_err().is(ProblemCode::RateLimited));
    }

    #[test]
    fn a_webhook_gets_fifty_requests_per_second_and_a_hundred_at_once() {
        let limits = RateLimits::default();
        let (one, other) = (TokenHash::of("one"), TokenHash::of("other"));
        let allowed = |token, now| (0..500).filter(|_| limits.check_webhook(token, now).is_ok()).count();
        assert_eq!(
            (allowed(one, at(0)), allowed(other, at(0)), allowed(one, at(1)), allowed(one, at(9))),
            (100, 100, 50, 100)
        );
        assert!(limits.check_webhook(one, at(9)).unwrap_err().is(ProblemCode::RateLimited));
    }

    #[test]
    fn five_wrong_keys_per_minute_come_from_an_address() {
        let limits = RateLimits::default();
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let counted =
            |address, now| (0..20).filter(|_| limits.count_failure(Some(address), now).is_ok()).count();
        assert_eq!((counted(one, at(0)), counted(other, at(0)), counted(one, at(60))), (5, 5, 5));
    }

    #[test]
    fn the_number_of_known_callers_is_limited() {
        let limits = RateLimits::default();
        for number in 0..3 * KNOWN_MAX {
            assert!(limits.check_request(&number.to_string(), at(0)).is_ok());
        }
        assert!(limits.requests.by_key.lock().len() <= KNOWN_MAX);
    }
}
