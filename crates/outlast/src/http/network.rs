//! Which addresses a worker connects to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses, such as `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    /// The number of leading bits that addresses of the network share.
    prefix: u8,
}

impl Network {
    /// Parses an address, or an address with the length of a prefix.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let problem =
            || format!("`{text}` is not a network; write an address such as `10.1.2.3` or `10.1.0.0/16`");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().map_err(|_| problem())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| problem())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        match prefix.unwrap_or(bits) {
            prefix if prefix <= bits => Ok(Self { address, prefix }),
            _ => Err(problem()),
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => in_v4(address, network, self.prefix),
            (IpAddr::V6(network), IpAddr::V6(address)) => in_v6(address, network, self.prefix),
            _ => false,
        }
    }
}

/// Whether a worker may connect to an address: it is public, or in one of the allowed networks.
pub(super) fn is_allowed(address: IpAddr, allowed: &[Network]) -> bool {
    let address = address.to_canonical();
    is_public(address) || allowed.iter().any(|network| network.contains(address))
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// The ranges of IPv4 that are not public: those of the IANA registry of special-purpose addresses, and multicast.
const SPECIAL_V4: [(Ipv4Addr, u8); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|(network, prefix)| in_v4(address, *network, *prefix))
}

/// The ranges inside of the global unicast addresses of IPv6 that are not public: IETF assignments with Teredo,
/// documentation.
const SPECIAL_V6: [(Ipv6Addr, u8); 3] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

const GLOBAL_UNICAST: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const SIX_TO_FOUR: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16);
const NAT64: (Ipv6Addr, u8) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Only global unicast addresses are public. An address that leads to an IPv4 address is as public as that.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [_, b, c, .., y, z] = address.segments();
    let embedded = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    if in_v6(address, SIX_TO_FOUR.0, SIX_TO_FOUR.1) {
        return is_public_v4(embedded(b, c));
    }
    if in_v6(address, NAT64.0, NAT64.1) {
        return is_public_v4(embedded(y, z));
    }
    in_v6(address, GLOBAL_UNICAST.0, GLOBAL_UNICAST.1)
        && !SPECIAL_V6.iter().any(|(network, prefix)| in_v6(address, *network, *prefix))
}

fn in_v4(address: Ipv4Addr, network: Ipv4Addr, prefix: u8) -> bool {
    let difference = address.to_bits() ^ network.to_bits();
    difference.leading_zeros() >= u32::from(prefix)
}

fn in_v6(address: Ipv6Addr, network: Ipv6Addr, prefix: u8) -> bool {
    let difference = address.to_bits() ^ network.to_bits();
    difference.leading_zeros() >= u32::from(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(address: &str, networks: &[&str]) -> bool {
        let networks: Vec<_> = networks.iter().map(|text| Network::parse(text).unwrap()).collect();
        is_allowed(address.parse().unwrap(), &networks)
    }

    #[test]
    fn public_addresses_are_allowed() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert!(allowed(address, &[]), "{address}");
        }
    }

    #[test]
    fn addresses_inside_of_a_network_are_not_in_any_form() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::808:808",
            "2002:7f00:1::1",
            "2002:a00:1::1",
            "2002:a9fe:a9fe::1",
            "2001:0:808:808::1",
            "2001:db8::1",
            "3fff::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "5f00::1",
        ] {
            assert!(!allowed(address, &[]), "{address}");
        }
    }

    #[test]
    fn exceptions_are_networks() {
        assert!(allowed("10.1.2.3", &["10.1.0.0/16"]));
        assert!(allowed("::ffff:10.1.2.3", &["10.1.0.0/16"]));
        assert!(!allowed("10.2.2.3", &["10.1.0.0/16"]));
        assert!(allowed("127.0.0.1", &["127.0.0.1"]));
        assert!(!allowed("127.0.0.2", &["127.0.0.1"]));
        assert!(allowed("fd00::7", &["fd00::/8"]) && allowed("10.0.0.1", &["0.0.0.0/0"]));
        for text in ["", "10.1", "10.0.0.0/33", "::/129", "10.0.0.0/x", "localhost"] {
            assert!(Network::parse(text).unwrap_err().contains("is not a network"), "{text}");
        }
    }
}
