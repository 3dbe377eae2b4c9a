//! What lies in the receive queues of the connections to the targets, by the kernel's own table: no socket is touched.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;

/// Bytes of the table that are read at most: some 25,000 connections. Of more, nothing is known.
const MAX_TABLE_BYTES: u64 = 4 << 20;

/// Bytes received and not yet read, over this machine's connections to `targets`; `None` where the table cannot be read to
/// its end.
pub(crate) fn receive_backlog(targets: &[SocketAddr]) -> Option<i64> {
    let mut sum = 0;
    for (family, path) in [(true, "/proc/self/net/tcp"), (false, "/proc/self/net/tcp6")] {
        let wanted: Vec<String> = targets
            .iter()
            .filter(|target| target.is_ipv4() == family)
            .map(|target| written(*target))
            .collect();
        if !wanted.is_empty() {
            let table = BufReader::with_capacity(1 << 16, File::open(path).ok()?);
            sum += backlog(table, &wanted, MAX_TABLE_BYTES)?;
        }
    }
    Some(sum)
}

fn backlog(table: impl BufRead, targets: &[String], most: u64) -> Option<i64> {
    let mut table = table.take(most);
    let (mut line, mut sum) = (String::new(), 0);
    loop {
        line.clear();
        if table.read_line(&mut line).ok()? == 0 {
            // A table that ends where the reading had to was longer.
            return (table.limit() > 0).then_some(sum);
        }
        let mut fields = line.split_ascii_whitespace().skip(2);
        if fields.next().is_some_and(|remote| targets.iter().any(|target| target == remote)) {
            let queues = fields.nth(1)?;
            sum += i64::from_str_radix(queues.split_once(':')?.1, 16).ok()?;
        }
    }
}

/// An address as the table writes it: words of the address in the machine's byte order, then the port.
fn written(target: SocketAddr) -> String {
    let octets = match target {
        SocketAddr::V4(v4) => v4.ip().octets().to_vec(),
        SocketAddr::V6(v6) => v6.ip().octets().to_vec(),
    };
    let words = octets.chunks_exact(4).map(|word| {
        let word = word.try_into().expect("chunks of four bytes");
        format!("{:08X}", u32::from_ne_bytes(word))
    });
    format!("{}:{:04X}", words.collect::<String>(), target.port())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
           0: 0100007F:1F90 0100007F:C000 01 00000000:00000FFF 00:00000000 00000000     0        0 1 1 0 20 4 30 10 -1\n\
           1: 0100007F:C000 0100007F:1F90 01 00000007:00000010 00:00000000 00000000     0        0 2 1 0 20 4 30 10 -1\n\
           2: 0100007F:C001 0100007F:1F90 01 00000000:0000000A 00:00000000 00000000     0        0 3 1 0 20 4 30 10 -1\n";

    #[test]
    fn only_the_queues_of_connections_to_the_targets_count() {
        let read = |targets: &[&str], most| {
            let targets: Vec<String> = targets.iter().map(|target| (*target).to_owned()).collect();
            backlog(TABLE.as_bytes(), &targets, most)
        };
        assert_eq!(read(&["0100007F:1F90"], 4_096), Some(26));
        assert_eq!(read(&["0100007F:1F91"], 4_096), Some(0));
        assert_eq!(read(&["0100007F:1F90", "0100007F:C000"], 4_096), Some(26 + 0xFFF), "of several targets");
        assert_eq!(read(&["0100007F:1F90"], 300), None, "a table that is too long says nothing");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn addresses_are_written_as_the_kernel_does() {
        assert_eq!(written("127.0.0.1:8080".parse().unwrap()), "0100007F:1F90");
        assert_eq!(written("[::1]:80".parse().unwrap()), "00000000000000000000000001000000:0050");
    }

    #[test]
    fn bytes_that_nobody_read_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap();
        let stream = TcpStream::connect(target).unwrap();
        let Some(before) = receive_backlog(&[target]) else { return };
        assert_eq!(before, 0);
        // Kept open: the end of a stream counts as a byte.
        let mut peer = listener.accept().unwrap().0;
        peer.write_all(&[7; 1_000]).unwrap();
        let mut peeked = [0; 1];
        assert_eq!(stream.peek(&mut peeked).unwrap(), 1);
        assert_eq!(receive_backlog(&[target]), Some(1_000));
    }
}
