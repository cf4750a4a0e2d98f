//! Whose the other end of a TCP connection is. The port is open to everybody on the machine; the socket in its directory is not.

use std::fs;
use std::net::{SocketAddr, TcpStream};

/// Whether a program of our own user has connected. Where the system does not tell, it counts as somebody else's.
pub(super) fn is_ours(stream: &TcpStream) -> bool {
    let (Ok(ours), Ok(theirs)) = (stream.local_addr(), stream.peer_addr()) else { return false };
    let user = rustix::process::geteuid().as_raw();
    // A program may use a socket of version 6 for an address of version 4.
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .any(|table| owner(&table, theirs, ours) == Some(user))
}

/// The user of the socket that is connected from here to there, in a table of the kernel's.
fn owner(table: &str, from: SocketAddr, to: SocketAddr) -> Option<u32> {
    let (from, to) = (written(from)?, written(to)?);
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = |fields: &Vec<&str>| {
        fields.get(1).is_some_and(|address| address.ends_with(&from))
            && fields.get(2).is_some_and(|address| address.ends_with(&to))
    };
    fields.into_iter().find(found)?.get(7)?.parse().ok()
}

/// An address as the kernel writes it: its bytes as a number of this machine, and the port.
fn written(address: SocketAddr) -> Option<String> {
    let SocketAddr::V4(address) = address else { return None };
    Some(format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_of_ours_is_found_and_one_of_another_user_is_not() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(is_ours(&accepted));
        drop(client);
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
               1: 0100007F:A0C2 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 65534        0 42 1\n\
               2: 0000000000000000FFFF00000100007F:A0C3 0000000000000000FFFF00000100007F:1F90 01 0:0 00:0 0 1000 0 43 1";
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        if cfg!(target_endian = "little") {
            assert_eq!(owner(table, address(0xA0C2), address(8080)), Some(65534));
            assert_eq!(owner(table, address(0xA0C3), address(8080)), Some(1000));
        }
        assert_eq!(owner(table, address(8080), address(0xA0C2)), None);
    }
}
