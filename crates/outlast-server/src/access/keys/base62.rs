//! Numbers in digits and letters.

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The lowest `length` digits of a number that is given as bytes, the highest byte first.
pub(super) fn encode(number: &[u8], length: usize) -> String {
    let mut number = number.to_vec();
    let mut digits = vec![ALPHABET[0]; length];
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[divide(&mut number)];
    }
    digits.into_iter().map(char::from).collect()
}

/// Divides a number by 62, and returns the remainder.
fn divide(number: &mut [u8]) -> usize {
    let mut rest = 0_u32;
    for byte in number {
        let dividend = (rest << 8) | u32::from(*byte);
        *byte = (dividend / 62) as u8;
        rest = dividend % 62;
    }
    rest as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_with_leading_zeros() {
        assert_eq!(encode(&[61], 3), "00z");
        assert_eq!(encode(&[1, 0], 3), "048");
        assert_eq!(encode(&[0xff; 32], 43).len(), 43);
    }

    #[test]
    fn all_256_bits_fit_into_43_characters() {
        let mut left = [0xff_u8; 32];
        (0..43).for_each(|_| {
            divide(&mut left);
        });
        assert_eq!(left, [0; 32]);
    }
}
