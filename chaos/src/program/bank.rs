//! The external system: a bank that knows nothing of workflows.
//!
//! Its requests are idempotent: the answer to a key never changes, nor does a refusal. Its entries are one log.

use std::collections::{BTreeMap, HashMap};
use std::io;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::append_log::{AppendLog, LockedLog, SyncMode};

/// The number of open accounts. One more account is closed.
pub(crate) const ACCOUNTS: u32 = 12;

/// The account that is closed.
pub(crate) const CLOSED: u32 = ACCOUNTS;

/// The initial balance of each account.
pub(crate) const OPENING_CENTS: i64 = 20_000;

/// One permanent answer of the bank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BankEntry {
    /// The key of the request.
    pub(crate) key: String,
    /// The number of the transfer.
    pub(crate) transfer: u64,
    /// The part of the transfer.
    pub(crate) leg: Leg,
    /// The account, and the amount that was added to it.
    pub(crate) account: u32,
    pub(crate) cents: i64,
    /// The receipt, or the reason of the refusal.
    pub(crate) answer: Result<u64, String>,
}

/// A part of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Leg {
    Debit,
    Credit,
    Refund,
}

/// A request to add an amount to an account.
#[derive(Clone, Debug)]
pub(crate) struct BankRequest {
    pub(crate) key: String,
    pub(crate) transfer: u64,
    pub(crate) leg: Leg,
    pub(crate) account: u32,
    pub(crate) cents: i64,
}

/// One process's access to the bank.
pub(crate) struct Bank {
    file: AppendLog,
    accounts: Mutex<AccountState>,
}

#[derive(Debug, Default)]
struct AccountState {
    answers: HashMap<String, Result<u64, String>>,
    balances: BTreeMap<u32, i64>,
    receipts: u64,
}

impl Bank {
    /// The bank whose entries are in this file.
    pub(crate) fn new(file: AppendLog) -> Self {
        Self { file, accounts: Mutex::default() }
    }

    /// Executes a request once per key. Every repeat gets the same answer.
    pub(crate) fn post(&self, request: BankRequest) -> io::Result<Result<u64, String>> {
        self.file.with_lock(|log| {
            let mut accounts = self.accounts.lock();
            for entry in log.read_new::<BankEntry>()? {
                accounts.apply(&entry);
            }
            if let Some(answer) = accounts.answers.get(&request.key) {
                return Ok(answer.clone());
            }
            accounts.decide(request, log)
        })
    }
}

impl AccountState {
    fn decide(&mut self, request: BankRequest, log: &mut LockedLog) -> io::Result<Result<u64, String>> {
        let BankRequest { key, transfer, leg, account, cents } = request;
        let answer = match self.refusal(account, cents) {
            Some(refusal) => Err(refusal),
            None => Ok(self.receipts + 1),
        };
        let entry = BankEntry { key, transfer, leg, account, cents, answer };
        log.append(&entry, SyncMode::Synced)?;
        self.apply(&entry);
        Ok(entry.answer)
    }

    fn refusal(&self, account: u32, cents: i64) -> Option<String> {
        let left = self.balances.get(&account).unwrap_or(&OPENING_CENTS) + cents;
        match account {
            CLOSED => Some(format!("account {account} is closed")),
            _ if left < 0 => Some(format!("account {account} lacks {} cents", -left)),
            _ => None,
        }
    }

    fn apply(&mut self, entry: &BankEntry) {
        if let Ok(receipt) = entry.answer {
            *self.balances.entry(entry.account).or_insert(OPENING_CENTS) += entry.cents;
            self.receipts = receipt;
        }
        self.answers.insert(entry.key.clone(), entry.answer.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: &str, account: u32, cents: i64) -> BankRequest {
        BankRequest { key: key.into(), transfer: 1, leg: Leg::Debit, account, cents }
    }

    #[test]
    fn every_process_gets_the_same_answer_to_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let log = || Bank::new(AppendLog::open(&folder.path().join("bank")).unwrap());
        let (one, two) = (log(), log());
        assert_eq!(one.post(request("a", 0, -OPENING_CENTS)).unwrap(), Ok(1));
        let refusal = two.post(request("b", 0, -5)).unwrap().unwrap_err();
        assert_eq!(refusal, "account 0 lacks 5 cents");
        assert_eq!(two.post(request("a", 0, -OPENING_CENTS)).unwrap(), Ok(1));
        assert_eq!(two.post(request("c", 0, 10)).unwrap(), Ok(2));
        assert_eq!(one.post(request("b", 0, -5)).unwrap(), Err(refusal), "a refusal stays one");
        assert!(one.post(request("d", CLOSED, 1)).unwrap().unwrap_err().contains("is closed"));
    }
}
