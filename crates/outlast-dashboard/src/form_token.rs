//! Form tokens: a form can only be sent by a page of this dashboard, for the caller who has seen it.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The secret of the tokens and sessions.
pub(crate) struct FormSecret([u8; 32]);

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
        Self(secret)
    }

    /// A given secret.
    pub(crate) fn of(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// The token of the forms of a caller. It is an HMAC: a hash in a hash, with two paddings of the secret.
    pub(crate) fn token(&self, actor: &str) -> String {
        let padded = |padding: u8| {
            let mut block = [padding; 64];
            block.iter_mut().zip(self.0).for_each(|(byte, secret)| *byte ^= secret);
            block
        };
        let inner = Sha256::new().chain_update(padded(0x36)).chain_update(actor).finalize();
        let outer = Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize();
        outer.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether a form of this caller carries the right token.
    pub(crate) fn accepts(&self, actor: &str, token: &str) -> bool {
        self.token(actor).as_bytes().ct_eq(token.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_belongs_to_one_caller_and_one_process() {
        let (secret, other) = (FormSecret::new(), FormSecret::new());
        assert!(secret.accepts("ada", &secret.token("ada")));
        assert!(!secret.accepts("grace", &secret.token("ada")));
        assert!(!secret.accepts("ada", &other.token("ada")));
        assert!(!secret.accepts("ada", ""));
    }
}
