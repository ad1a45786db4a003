//! The outside: a bank that knows nothing of workflows.
//!
//! As a good outside does, it recognises a request that it has seen: the answer to a key never
//! changes, a refusal neither. What it did is one file of lines.

use std::collections::{BTreeMap, HashMap};
use std::io;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::notebook::{Care, Notebook, Open};

/// The accounts that can pay. There is one more, which is closed.
pub(crate) const ACCOUNTS: u32 = 12;

/// An account that takes nothing.
pub(crate) const CLOSED: u32 = ACCOUNTS;

/// What each account has at first.
pub(crate) const OPENING_CENTS: i64 = 20_000;

/// One answer of the bank, for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The key of the request.
    pub(crate) key: String,
    /// What it is for.
    pub(crate) transfer: u64,
    /// Which part of it.
    pub(crate) leg: Leg,
    /// The account, and what was added to it.
    pub(crate) account: u32,
    pub(crate) cents: i64,
    /// The receipt, or why nothing was done.
    pub(crate) answer: Result<u64, String>,
}

/// A part of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Leg {
    Debit,
    Credit,
    Refund,
}

/// A request to add to an account.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) key: String,
    pub(crate) transfer: u64,
    pub(crate) leg: Leg,
    pub(crate) account: u32,
    pub(crate) cents: i64,
}

/// The bank as one process sees it.
pub(crate) struct Bank {
    file: Notebook,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    answers: HashMap<String, Result<u64, String>>,
    balances: BTreeMap<u32, i64>,
    receipts: u64,
}

impl Bank {
    /// The bank whose entries are in this file.
    pub(crate) fn new(file: Notebook) -> Self {
        Self { file, books: Mutex::default() }
    }

    /// Does what is asked, once per key, and answers every time the same.
    pub(crate) fn post(&self, request: Request) -> io::Result<Result<u64, String>> {
        self.file.exclusively(|open| {
            let mut books = self.books.lock();
            for entry in open.news::<Entry>()? {
                books.enter(&entry);
            }
            if let Some(answer) = books.answers.get(&request.key) {
                return Ok(answer.clone());
            }
            books.decide(request, open)
        })
    }
}

impl Books {
    fn decide(&mut self, request: Request, open: &mut Open) -> io::Result<Result<u64, String>> {
        let Request { key, transfer, leg, account, cents } = request;
        let answer = match self.refusal(account, cents) {
            Some(refusal) => Err(refusal),
            None => Ok(self.receipts + 1),
        };
        let entry = Entry { key, transfer, leg, account, cents, answer };
        open.append(&entry, Care::Synced)?;
        self.enter(&entry);
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

    fn enter(&mut self, entry: &Entry) {
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

    fn request(key: &str, account: u32, cents: i64) -> Request {
        Request { key: key.into(), transfer: 1, leg: Leg::Debit, account, cents }
    }

    #[test]
    fn a_key_is_answered_once_for_ever_by_every_process() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Bank::new(Notebook::open(&folder.path().join("bank")).unwrap());
        let (one, two) = (open(), open());
        assert_eq!(one.post(request("a", 0, -OPENING_CENTS)).unwrap(), Ok(1));
        let refusal = two.post(request("b", 0, -5)).unwrap().unwrap_err();
        assert_eq!(refusal, "account 0 lacks 5 cents");
        assert_eq!(two.post(request("a", 0, -OPENING_CENTS)).unwrap(), Ok(1));
        assert_eq!(two.post(request("c", 0, 10)).unwrap(), Ok(2));
        assert_eq!(one.post(request("b", 0, -5)).unwrap(), Err(refusal), "a refusal stays one");
        assert!(one.post(request("d", CLOSED, 1)).unwrap().unwrap_err().contains("is closed"));
    }
}
