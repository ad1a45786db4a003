//! Base64 (RFC 4648, with padding), for bytes in JSON.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0_u32, |word, byte| (word << 8) | u32::from(*byte));
        let word = word << (8 * (3 - group.len()));
        for digit in 0..4 {
            if digit <= group.len() {
                text.push(char::from(ALPHABET[(word >> (18 - 6 * digit)) as usize & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// Decodes a text. `None` if it is not Base64 in its canonical form.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.as_bytes().chunks(4) {
        let padding = group.iter().rev().take_while(|digit| **digit == b'=').count();
        if padding > 2 {
            return None;
        }
        let mut word = 0_u32;
        for digit in &group[..4 - padding] {
            word = (word << 6) | u32::from(value_of(*digit)?);
        }
        word <<= 6 * padding;
        bytes.extend_from_slice(&word.to_be_bytes()[1..4 - padding]);
    }
    // Padding in the middle, and bits that an encoder leaves 0, have more than one form.
    (encode(&bytes) == text).then_some(bytes)
}

fn value_of(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
    }

    #[test]
    fn every_byte_survives_and_other_texts_are_refused() {
        let bytes: Vec<u8> = (0..=255).collect();
        for length in 253..=256 {
            assert_eq!(decode(&encode(&bytes[..length])).as_deref(), Some(&bytes[..length]));
        }
        for text in ["Z", "Zg=", "Z===", "Zh==", "Zg==Zg==", "Zm 9v", "===="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
