//! A plain TCP socket without any protocol on top: both ends poll
//! without sleeping, each on its own core. The reference of latency and of
//! both directions at once; and, with ends that sleep, of a flow that touches as
//! much memory as the Writes it is compared with.
//!
//! ```text
//! clearstream-bench bare serve PORT CORE
//! clearstream-bench bare ping|stream|walk|both ADDRESS PORT CORE SIZE COUNT
//! ```

use std::{
    io::{self, IoSlice, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::Instant,
};

use clearstream_sys::affinity;
use rustix::net::sockopt::set_socket_send_buffer_size;

/// Send buffer of a flow whose ends sleep: as of the flow engine's best setting
/// on one core.
const WALK_SEND_BUFFER: usize = 1 << 20;

/// Request of the client to the server, in 24 bytes before the data.
#[derive(Clone, Copy)]
struct Shape {
    kind: Kind,
    size: usize,
    count: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A message there and back, one at a time.
    Ping,
    /// From the client to the server.
    Stream,
    /// Both directions at once over one connection.
    Both,
    /// From the client to the server, which sleep while there is nothing to do.
    /// The messages are read from one place and written to one, all of it,
    /// as by Writes to the same address.
    Walk,
}

impl Kind {
    const NAMES: [(&'static str, Self); 4] =
        [("ping", Self::Ping), ("stream", Self::Stream), ("both", Self::Both), ("walk", Self::Walk)];
}

impl Shape {
    fn encode(self) -> [u8; 24] {
        let kind = Kind::NAMES.iter().position(|(_, kind)| *kind == self.kind).unwrap_or(0);
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&(kind as u64).to_be_bytes());
        bytes[8..16].copy_from_slice(&(self.size as u64).to_be_bytes());
        bytes[16..].copy_from_slice(&self.count.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8; 24]) -> io::Result<Self> {
        let field =
            |at: usize| bytes[at..at + 8].iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let kind = Kind::NAMES.get(field(0) as usize).ok_or(io::ErrorKind::InvalidData)?.1;
        let size = field(8) as usize;
        // A page at least to receive into, and no more than any test here requests.
        if size == 0 || size > 1 << 30 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { kind, size, count: field(16) })
    }

    fn total(self) -> u64 {
        self.size as u64 * self.count
    }
}

/// The program; prints one figure (microseconds of half a round trip, or
/// 10^9 bytes per second).
pub(crate) fn main(arguments: &[String]) -> Result<(), String> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", port, core] => serve(number(port)?, number(core)?).map_err(|error| error.to_string()),
        [kind, address, port, core, size, count] => {
            let kind =
                Kind::NAMES.iter().find(|(name, _)| *name == kind).ok_or("ping, stream, walk or both")?.1;
            let shape = Shape { kind, size: number(size)?, count: number(count)? };
            affinity::pin_to(number(core)?).map_err(|error| error.to_string())?;
            let figure = run(address, number(port)?, shape).map_err(|error| error.to_string())?;
            println!("{figure}");
            Ok(())
        }
        _ => {
            Err("bare serve PORT CORE, or bare ping|stream|walk|both ADDRESS PORT CORE SIZE COUNT".to_owned())
        }
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// One client, then done.
fn serve(port: u16, core: u32) -> io::Result<()> {
    affinity::pin_to(core)?;
    let (mut socket, _) = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.accept()?;
    let mut request = [0; 24];
    socket.read_exact(&mut request)?;
    let shape = Shape::decode(&request)?;
    ready(&socket)?;
    let mut buffer = vec![1; shape.size];
    match shape.kind {
        Kind::Ping => {
            for _ in 0..shape.count {
                fill(&mut socket, &mut buffer)?;
                drain(&mut socket, &buffer)?;
            }
        }
        Kind::Stream => {
            exchange(&mut socket, &mut buffer, 0, shape.total())?;
            drain(&mut socket, &[1])?;
        }
        Kind::Both => {
            exchange(&mut socket, &mut buffer, shape.total(), shape.total())?;
            drain(&mut socket, &[1])?;
        }
        Kind::Walk => {
            socket.set_nonblocking(false)?;
            for _ in 0..shape.count {
                socket.read_exact(&mut buffer)?;
            }
            socket.write_all(&[1])?;
        }
    }
    Ok(())
}

fn run(address: &str, port: u16, shape: Shape) -> io::Result<f64> {
    let mut socket = TcpStream::connect((address, port))?;
    socket.write_all(&shape.encode())?;
    ready(&socket)?;
    let mut buffer = vec![2; shape.size];
    // A tenth first, so that windows and caches are as they stay.
    let warm_up = if shape.kind == Kind::Ping { shape.count / 10 } else { 0 };
    let mut start = Instant::now();
    match shape.kind {
        Kind::Ping => {
            for index in 0..shape.count {
                if index == warm_up {
                    start = Instant::now();
                }
                drain(&mut socket, &buffer)?;
                fill(&mut socket, &mut buffer)?;
            }
        }
        Kind::Stream => exchange(&mut socket, &mut buffer, shape.total(), 0)?,
        Kind::Both => exchange(&mut socket, &mut buffer, shape.total(), shape.total())?,
        Kind::Walk => {
            set_socket_send_buffer_size(&socket, WALK_SEND_BUFFER)?;
            socket.set_nonblocking(false)?;
            send_repeatedly(&mut socket, &buffer, shape.count)?;
        }
    }
    if shape.kind != Kind::Ping {
        fill(&mut socket, &mut [0])?;
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(match shape.kind {
        Kind::Ping => seconds * 1e6 / 2.0 / (shape.count - warm_up) as f64,
        Kind::Stream | Kind::Walk => shape.total() as f64 / seconds / 1e9,
        Kind::Both => 2.0 * shape.total() as f64 / seconds / 1e9,
    })
}

fn ready(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_nonblocking(true)
}

/// Nothing there, or no room: what polling meets most of the time.
fn some(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

fn read(socket: &mut TcpStream, into: &mut [u8]) -> io::Result<usize> {
    match socket.read(into) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        other => some(other),
    }
}

fn fill(socket: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    let mut have = 0;
    while have < buffer.len() {
        have += read(socket, &mut buffer[have..])?;
    }
    Ok(())
}

fn drain(socket: &mut TcpStream, buffer: &[u8]) -> io::Result<()> {
    let mut gone = 0;
    while gone < buffer.len() {
        gone += some(socket.write(&buffer[gone..]))?;
    }
    Ok(())
}

/// Sends a buffer so many times, as many as fit by one call.
fn send_repeatedly(socket: &mut TcpStream, buffer: &[u8], count: u64) -> io::Result<()> {
    let most = (WALK_SEND_BUFFER / buffer.len()).clamp(1, 1024);
    let mut left = count;
    while left > 0 {
        let now = left.min(most as u64);
        let mut slices = vec![IoSlice::new(buffer); now as usize];
        let mut slices = slices.as_mut_slice();
        while !slices.is_empty() {
            let sent = socket.write_vectored(slices)?;
            IoSlice::advance_slices(&mut slices, sent);
        }
        left -= now;
    }
    Ok(())
}

/// Sends and receives so many bytes, whichever the socket takes or has.
fn exchange(socket: &mut TcpStream, buffer: &mut [u8], mut out: u64, mut inward: u64) -> io::Result<()> {
    let size = buffer.len();
    let mut offset = 0;
    while out > 0 || inward > 0 {
        if out > 0 {
            let sent = some(socket.write(&buffer[offset..]))?;
            out -= sent as u64;
            offset = (offset + sent) % size;
        }
        if inward > 0 {
            // No further: what follows is the acknowledgement of all data.
            let most = inward.min(size as u64) as usize;
            inward -= read(socket, &mut buffer[..most])? as u64;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A port without listener.
    fn port() -> u16 {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn each_kind_moves_its_bytes_and_gives_a_figure() {
        for (_, kind) in Kind::NAMES {
            let port = port();
            let server = std::thread::spawn(move || serve(port, 0));
            let shape = Shape { kind, size: 4096, count: 50 };
            let figure = loop {
                match run("127.0.0.1", port, shape) {
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        std::thread::yield_now();
                    }
                    other => break other.unwrap(),
                }
            };
            assert!(figure > 0.0 && figure.is_finite());
            server.join().unwrap().unwrap();
        }
    }

    #[test]
    fn requests_are_decoded_and_invalid_ones_rejected() {
        let shape = Shape { kind: Kind::Both, size: 65536, count: 7 };
        let decoded = Shape::decode(&shape.encode()).unwrap();
        assert!(decoded.kind == Kind::Both && decoded.size == 65536 && decoded.count == 7);
        let mut huge = shape.encode();
        huge[8] = 1;
        assert!(Shape::decode(&huge).is_err() && Shape::decode(&[0xff; 24]).is_err());
        assert!(main(&["ping".to_owned()]).is_err());
    }
}
