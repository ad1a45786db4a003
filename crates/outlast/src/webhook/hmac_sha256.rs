//! The plain signature of a body: `sha256=` and the hexadecimal HMAC.

use super::{Keys, WebhookError};

/// The prefix of a signature.
const PREFIX: &str = "sha256=";

/// Signs and verifies webhooks whose signature is `sha256=` followed by the HMAC-SHA256 of the body in hexadecimal, as
/// GitHub sends it in `X-Hub-Signature-256`.
///
/// This form has neither a time nor an id, so an old request can be repeated: use the sender's delivery id as the key of
/// the send.
///
/// ```
/// use outlast::webhook::HmacSha256;
///
/// let webhooks = HmacSha256::new("It's a Secret to Everybody")?;
/// let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
/// webhooks.verify(signature, b"Hello, World!")?;
/// # Ok::<(), outlast::webhook::WebhookError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HmacSha256 {
    keys: Keys,
}

impl HmacSha256 {
    /// Creates a verifier with this secret.
    ///
    /// # Errors
    ///
    /// `BadSecret` if it is empty.
    pub fn new(secret: impl AsRef<[u8]>) -> Result<Self, WebhookError> {
        Ok(Self { keys: Keys(vec![key_of(secret.as_ref())?]) })
    }

    /// Adds another secret that is accepted, while a secret is replaced. New signatures are made with the first one.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn or(mut self, secret: impl AsRef<[u8]>) -> Result<Self, WebhookError> {
        self.keys.0.push(key_of(secret.as_ref())?);
        Ok(self)
    }

    /// Verifies the value of the signature's header, and the body as it was received.
    ///
    /// # Errors
    ///
    /// `BadSignature` if none of the secrets made the signature.
    pub fn verify(&self, signature: &str, body: &[u8]) -> Result<(), WebhookError> {
        let signature =
            signature.strip_prefix(PREFIX).and_then(bytes_of_hex).ok_or(WebhookError::BadSignature)?;
        if self.keys.verify(&[body], &signature) { Ok(()) } else { Err(WebhookError::BadSignature) }
    }

    /// Returns the value of the signature's header for a body.
    pub fn sign(&self, body: &[u8]) -> String {
        let signature = self.keys.sign(&[body]);
        signature.iter().fold(PREFIX.to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }
}

fn key_of(secret: &[u8]) -> Result<Vec<u8>, WebhookError> {
    if secret.is_empty() {
        return Err(WebhookError::BadSecret("it is empty"));
    }
    Ok(secret.to_vec())
}

fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    #[test]
    fn the_published_example_is_signed_and_verified() {
        let webhooks = HmacSha256::new("It's a Secret to Everybody").unwrap();
        assert_eq!(webhooks.sign(b"Hello, World!"), SIGNED);
        assert_eq!(webhooks.verify(SIGNED, b"Hello, World!"), Ok(()));
        assert_eq!(webhooks.verify(&SIGNED.to_uppercase().replace("SHA", "sha"), b"Hello, World!"), Ok(()));
    }

    #[test]
    fn the_vector_of_rfc_4231_is_signed() {
        let webhooks = HmacSha256::new("Jefe").unwrap();
        let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(webhooks.sign(b"what do ya want for nothing?"), expected);
    }

    #[test]
    fn either_secret_is_accepted_while_one_is_replaced() {
        let webhooks = HmacSha256::new("new").unwrap().or("It's a Secret to Everybody").unwrap();
        assert_eq!(webhooks.verify(SIGNED, b"Hello, World!"), Ok(()));
        assert_eq!(webhooks.verify(&webhooks.sign(b"x"), b"x"), Ok(()));
    }

    #[test]
    fn anything_else_is_refused() {
        let webhooks = HmacSha256::new("It's a Secret to Everybody").unwrap();
        let longer = format!("{SIGNED}00");
        for signature in ["", "sha256=", &SIGNED[..70], &SIGNED[7..], &longer, "sha256=zz", "sha1=75"] {
            assert_eq!(
                webhooks.verify(signature, b"Hello, World!"),
                Err(WebhookError::BadSignature),
                "{signature}"
            );
        }
        assert_eq!(webhooks.verify(SIGNED, b"Hello, World?"), Err(WebhookError::BadSignature));
        assert!(matches!(HmacSha256::new(""), Err(WebhookError::BadSecret(_))));
    }
}
