//! Access keys.
//!
//! A key is `olk_`, an id of 8 characters, `_`, 43 characters with 256 random bits, and 6 characters of checksum. Only its
//! SHA-256 is stored: the bits are random, so a slow hash would protect nothing. Digests are compared in constant time.

mod base62;
mod key_file;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use outlast::core::Clock;
use outlast::{Error, SystemClock};
use outlast_api::{Caller, Rfc3339, Role};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use key_file::KeyFile;

/// The beginning of every key.
pub(crate) const PREFIX: &str = "olk_";

const ID_CHARACTERS: usize = 8;
const SECRET_CHARACTERS: usize = 43;
const CHECKSUM_CHARACTERS: usize = 6;

/// An access key: a secret that a program or person sends with its requests.
#[derive(Clone)]
pub struct AccessKey {
    text: String,
}

/// An access key as a server stores it: without the secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredKey {
    /// The id, which is a part of the key.
    pub id: String,
    /// Who has it. Histories show it.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// The SHA-256 of the key, in hexadecimal digits.
    pub sha256: String,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
}

impl AccessKey {
    /// Makes a key, and what a server stores of it.
    ///
    /// # Errors
    ///
    /// If the operating system has no random numbers.
    pub fn generate(name: impl Into<String>, role: Role) -> Result<(Self, StoredKey), Error> {
        let mut bits = [0_u8; 40];
        let no_bits = |error| Error::msg(format!("the operating system has no random numbers: {error}"));
        getrandom::fill(&mut bits).map_err(no_bits)?;
        let id = base62::encode(&bits[..8], ID_CHARACTERS);
        let secret = base62::encode(&bits[8..], SECRET_CHARACTERS);
        let body = format!("{PREFIX}{id}_{secret}");
        let key = Self { text: format!("{body}{}", checksum(&body)) };
        let stored = StoredKey { id, name: name.into(), role, sha256: hex(&key.digest()), expires_at: None };
        Ok((key, stored))
    }

    /// Reads a key; `None` if the text is not one, for example because of a typing error.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(PREFIX)?;
        let length = ID_CHARACTERS + 1 + SECRET_CHARACTERS + CHECKSUM_CHARACTERS;
        let is_key = rest.len() == length && rest.is_ascii() && rest.as_bytes()[ID_CHARACTERS] == b'_';
        let (body, sum) = text.split_at_checked(text.len().checked_sub(CHECKSUM_CHARACTERS)?)?;
        (is_key && checksum(body) == sum).then(|| Self { text: text.into() })
    }

    /// The secret, to be shown once.
    pub fn secret(&self) -> &str {
        &self.text
    }

    fn id(&self) -> &str {
        &self.text[PREFIX.len()..PREFIX.len() + ID_CHARACTERS]
    }

    fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.text.as_bytes()).into()
    }
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccessKey({})", self.id())
    }
}

/// The access keys that a server accepts.
#[derive(Clone, Debug, Default)]
pub struct AccessKeys {
    keys: Arc<RwLock<BTreeMap<String, StoredKey>>>,
    /// The file that they are read from again when it changes.
    file: Option<Arc<KeyFile>>,
}

impl AccessKeys {
    /// These keys.
    pub fn new(keys: impl IntoIterator<Item = StoredKey>) -> Self {
        let keys = keys.into_iter().map(|key| (key.id.clone(), key)).collect();
        Self { keys: Arc::new(RwLock::new(keys)), file: None }
    }

    /// Reads keys from a file, and reads it again when it changes: a key that is removed from the file is refused 5 s later
    /// at most. Without the file, all keys are refused. A file that cannot be read changes nothing, and is logged.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let (file, keys) = KeyFile::open(path.as_ref())?;
        Ok(Self { file: Some(Arc::new(file)), ..keys })
    }

    /// The keys, without their secrets.
    pub fn stored(&self) -> Vec<StoredKey> {
        self.keys.read().values().cloned().collect()
    }

    /// Adds a key.
    pub fn add(&self, key: StoredKey) {
        self.keys.write().insert(key.id.clone(), key);
    }

    /// Removes a key by its id. Returns whether it was there.
    pub fn remove(&self, id: &str) -> bool {
        self.keys.write().remove(id).is_some()
    }

    /// Reads a file of keys: a JSON array of [`StoredKey`].
    ///
    /// # Errors
    ///
    /// If the text is not one, or a digest is not that of a SHA-256.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let invalid = |message: String| Error::of_kind(outlast::ErrorKind::Invalid, message);
        let keys: Vec<StoredKey> = serde_json::from_str(text)
            .map_err(|error| invalid(format!("the access keys cannot be read: {error}")))?;
        if let Some(key) = keys.iter().find(|key| key.sha256.len() != 64) {
            let message = format!("access key `{}` ({}) has no SHA-256; make a new one", key.id, key.name);
            return Err(invalid(message));
        }
        Ok(Self::new(keys))
    }

    /// The file of these keys.
    pub fn to_json(&self) -> String {
        let keys = self.stored();
        serde_json::to_string_pretty(&keys).unwrap_or_default() + "\n"
    }

    /// The caller that sends a key, if it is one of these and has not expired.
    pub fn caller(&self, text: &str) -> Option<Caller> {
        let key = AccessKey::parse(text)?;
        let digest = hex(&key.digest());
        self.read_changed_file();
        let keys = self.keys.read();
        let stored = keys.get(key.id());
        // Compare even if there is no such id, so that the time does not tell which ids exist.
        let expected = stored.map_or("", |stored| &stored.sha256);
        let expected = format!("{expected:0>64}");
        let is_equal = bool::from(digest.as_bytes().ct_eq(expected.as_bytes()));
        let stored = stored.filter(|_| is_equal)?;
        caller_of(stored)
    }

    /// The caller that has the key with this id, if it is one of these and has not expired. A session of a dashboard
    /// names its key in this way.
    pub fn caller_of_id(&self, id: &str) -> Option<Caller> {
        self.read_changed_file();
        self.keys.read().get(id).and_then(caller_of)
    }

    /// Takes over the keys of the file, if it has changed.
    fn read_changed_file(&self) {
        if let Some(changed) = self.file.as_ref().and_then(|file| file.changed()) {
            *self.keys.write() = std::mem::take(&mut *changed.keys.write());
        }
    }
}

fn caller_of(stored: &StoredKey) -> Option<Caller> {
    let is_expired = stored.expires_at.is_some_and(|at| at.0 <= SystemClock.now());
    let scope = stored.id.clone();
    (!is_expired).then(|| Caller { actor: stored.name.clone(), scope, role: stored.role })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The CRC-32 of a text, which finds typing errors.
fn checksum(text: &str) -> String {
    let crc = text.bytes().fold(u32::MAX, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(byte),
            |crc, _| {
                if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 }
            },
        )
    });
    base62::encode(&(!crc).to_be_bytes(), CHECKSUM_CHARACTERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_accepted_and_its_holder_known() {
        let (key, stored) = AccessKey::generate("ci", Role::Operate).unwrap();
        let keys = AccessKeys::from_json(&AccessKeys::new([stored.clone()]).to_json()).unwrap();
        let caller = keys.caller(key.secret()).unwrap();
        assert_eq!((caller.actor.as_str(), caller.scope, caller.role), ("ci", stored.id, Role::Operate));
        assert!(!keys.to_json().contains(key.secret()));
        assert!(!format!("{key:?}").contains(&key.secret()[13..]));
    }

    #[test]
    fn another_key_a_typing_error_and_an_expired_key_are_refused() {
        let (key, mut stored) = AccessKey::generate("ci", Role::Read).unwrap();
        let (other, _) = AccessKey::generate("ci", Role::Read).unwrap();
        let keys = AccessKeys::new([stored.clone()]);
        assert_eq!(keys.caller(other.secret()), None);
        // A key with the id of another one.
        let body = format!("{PREFIX}{}_{}", stored.id, &other.secret()[13..56]);
        assert_eq!(keys.caller(&format!("{body}{}", checksum(&body))), None);
        let last = key.secret().chars().last().unwrap();
        let wrong = format!("{}{}", &key.secret()[..61], if last == 'a' { 'b' } else { 'a' });
        assert!(AccessKey::parse(&wrong).is_none());
        for text in ["", "olk_", "olk_12345678", &key.secret()[1..], "olk_é"] {
            assert!(AccessKey::parse(text).is_none(), "{text}");
        }
        stored.expires_at = Some(Rfc3339(SystemClock.now()));
        assert_eq!(AccessKeys::new([stored]).caller(key.secret()), None);
    }

    #[test]
    fn a_file_is_read_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        let (ci, stored) = AccessKey::generate("ci", Role::Read).unwrap();
        std::fs::write(&path, AccessKeys::new([stored.clone()]).to_json()).unwrap();
        let keys = AccessKeys::from_file(&path).unwrap();
        let accepts = |key: &AccessKey| {
            keys.file.as_ref().unwrap().expire();
            keys.caller(key.secret()).is_some()
        };
        assert!(accepts(&ci));
        let (ada, second) = AccessKey::generate("ada", Role::Admin).unwrap();
        std::fs::write(&path, AccessKeys::new([stored, second]).to_json()).unwrap();
        assert!(accepts(&ada) && accepts(&ci));
        std::fs::write(&path, "not JSON").unwrap();
        assert!(accepts(&ada), "a file that cannot be read changes nothing");
        std::fs::write(&path, "[]").unwrap();
        assert!(!accepts(&ada) && !accepts(&ci), "revoked");
        std::fs::remove_file(&path).unwrap();
        assert!(!accepts(&ci));
        assert!(AccessKeys::from_file(&path).is_err());
    }

    #[test]
    fn the_checksum_is_frozen() {
        assert_eq!(checksum("123456789"), base62::encode(&0xCBF4_3926_u32.to_be_bytes(), 6));
        assert_eq!(checksum("123456789"), "3jZRME");
    }
}
