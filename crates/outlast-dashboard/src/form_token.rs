//! Form tokens: a form can only be sent by a page of this dashboard, for the caller who has seen it.

use outlast_core::{NewRecord, World, WorldError};
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The space of the records of secrets.
const SECRETS: &str = "secrets";

/// The id of the record of the secret. A later form of the secret gets another id.
const SECRET_ID: &str = "dashboard-1";

/// The secret of the tokens and sessions: random, until that of the world is known.
pub(crate) struct FormSecret(RwLock<[u8; 32]>);

impl std::fmt::Debug for FormSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FormSecret")
    }
}

impl FormSecret {
    /// A random secret.
    ///
    /// # Panics
    ///
    /// If the operating system has no random numbers.
    pub(crate) fn new() -> Self {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).expect("the operating system provides random numbers");
        Self(RwLock::new(secret))
    }

    /// A given secret.
    pub(crate) fn of(secret: [u8; 32]) -> Self {
        Self(RwLock::new(secret))
    }

    /// Replaces the secret by that of the world, so that sessions survive a restart and are known to all servers of the
    /// world. If the world has none, this one becomes it, unless `may_write` is false.
    pub(crate) async fn load(&self, world: &dyn World, may_write: bool) -> Result<(), WorldError> {
        let own = hex(&*self.0.read());
        if may_write {
            let record = NewRecord { id: SECRET_ID.into(), body: own };
            world.put_record_if_absent(SECRETS, record).await?;
        }
        let stored = world.record(SECRETS, SECRET_ID).await?;
        if let Some(secret) = stored.and_then(|record| of_hex(&record.body)) {
            *self.0.write() = secret;
        }
        Ok(())
    }

    /// The token of the forms of a caller. It is an HMAC: a hash in a hash, with two paddings of the secret.
    pub(crate) fn token(&self, actor: &str) -> String {
        let secret = *self.0.read();
        let padded = |padding: u8| {
            let mut block = [padding; 64];
            block.iter_mut().zip(secret).for_each(|(byte, secret)| *byte ^= secret);
            block
        };
        let inner = Sha256::new().chain_update(padded(0x36)).chain_update(actor).finalize();
        let outer = Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize();
        hex(&outer)
    }

    /// Whether a form of this caller carries the right token.
    pub(crate) fn accepts(&self, actor: &str, token: &str) -> bool {
        self.token(actor).as_bytes().ct_eq(token.as_bytes()).into()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of_hex(text: &str) -> Option<[u8; 32]> {
    let mut secret = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in secret.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn servers_of_one_world_have_the_same_secret() {
        let world = outlast::open("memory:").await.unwrap();
        let (first, reader, second) = (FormSecret::new(), FormSecret::new(), FormSecret::new());
        reader.load(&*world, false).await.unwrap();
        assert_eq!(
            world.record(SECRETS, SECRET_ID).await.unwrap(),
            None,
            "a read-only dashboard writes nothing"
        );
        for secret in [&first, &second, &reader] {
            secret.load(&*world, true).await.unwrap();
        }
        assert_eq!(first.token("ada"), second.token("ada"));
        assert_eq!(first.token("ada"), reader.token("ada"));
        assert_eq!(of_hex("00"), None);
        assert_eq!(of_hex(&"zz".repeat(32)), None);
    }

    #[test]
    fn a_token_belongs_to_one_caller_and_one_process() {
        let (secret, other) = (FormSecret::new(), FormSecret::new());
        assert!(secret.accepts("ada", &secret.token("ada")));
        assert!(!secret.accepts("grace", &secret.token("ada")));
        assert!(!secret.accepts("ada", &other.token("ada")));
        assert!(!secret.accepts("ada", ""));
    }
}
