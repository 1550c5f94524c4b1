//! What the way to the network costs: our egress program beside haproxy, each behind a namespace
//! that is wired like a sandbox's, both dialling the same server.

mod egress;
mod haproxy;
mod namespace;
mod server;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::contest::{Allowance, Bound, Contest, Settings};
use crate::output;
use crate::processes::share;
use egress::Egress;
use haproxy::Haproxy;
use namespace::Namespace;
use server::{NAME, Server};

/// At least nine tenths of haproxy's throughput.
const MOST_TIME: f64 = 1.0 / 0.9;
const PATIENCE: Duration = Duration::from_secs(30);

const ONE: u64 = 512 << 20;
const MANY: usize = 50;
const EACH: u64 = 16 << 20;

const CROWD: usize = 1000;
/// In KiB.
const MOST_FOR_CROWD: u64 = 100 << 10;

pub(crate) fn print(settings: &Settings) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        output::line("\nThe network: not measured: only root can put haproxy into a namespace");
        return Ok(());
    }
    let server = Server::start()?;
    let egress = Egress::start(settings, &server)?;
    let ours = Namespace::new("soma-bench-ours")?;
    egress.attach(&ours)?;
    let address = ours.within(|| resolve(NAME, egress::RESOLVER))??;
    let there = Namespace::new("soma-bench-peer")?;
    let haproxy = Haproxy::start(&there, server.address());
    let port = server.address().port();
    let behind_haproxy = SocketAddr::from(([192, 0, 2, 1], port));
    let behind_ours = SocketAddr::from((address, port));

    throughput(
        settings,
        "One connection, 512 MiB",
        &haproxy,
        |address| move || fetch(address, ONE),
        [(&there, behind_haproxy), (&ours, behind_ours)],
    );
    throughput(
        settings,
        "50 connections, 16 MiB each",
        &haproxy,
        |address| move || fetch_many(address),
        [(&there, behind_haproxy), (&ours, behind_ours)],
    );
    set_up(settings, &haproxy, [(&there, behind_haproxy), (&ours, behind_ours)]);
    questions(settings, &ours, server.resolver());
    ready(settings, &egress);
    crowd(&egress)
}

fn throughput<F>(
    settings: &Settings,
    title: &str,
    haproxy: &anyhow::Result<Haproxy>,
    fetch: impl Fn(SocketAddr) -> F,
    [(there, behind_haproxy), (ours, behind_ours)]: [(&Namespace, SocketAddr); 2],
) where
    F: Fn() -> anyhow::Result<Duration> + Send + Copy + 'static,
{
    let mut contest = Contest::new(title);
    let (theirs, own) = (fetch(behind_haproxy), fetch(behind_ours));
    let bounds = match haproxy {
        Ok(_) => {
            let peer = contest.row("haproxy, TCP mode", &[], move || there.within(theirs)?);
            vec![Bound { peer, most: MOST_TIME }]
        }
        Err(error) => {
            contest.absent("haproxy, TCP mode", format!("{error:#}"));
            Vec::new()
        }
    };
    contest.row("soma egress", &bounds, move || ours.within(own)?);
    // Each is long enough to be steady.
    contest.run(&Settings { rounds: settings.rounds.min(10), ..settings.clone() });
}

fn set_up(
    settings: &Settings,
    haproxy: &anyhow::Result<Haproxy>,
    [(there, behind_haproxy), (ours, behind_ours)]: [(&Namespace, SocketAddr); 2],
) {
    let mut contest = Contest::new("A connection, until the server's first byte");
    let own = move || ours.within(move || first_byte(behind_ours))?;
    match haproxy {
        Ok(_) => {
            let call = move || there.within(move || first_byte(behind_haproxy))?;
            let peer = contest.row("haproxy, TCP mode", &[], call);
            let allowance = Allowance { peer, most: Duration::from_millis(1) };
            contest.row_above("soma egress", allowance, own);
        }
        Err(error) => {
            contest.absent("haproxy, TCP mode", format!("{error:#}"));
            contest.row("soma egress", &[], own);
        }
    }
    contest.run(settings);
}

fn questions(settings: &Settings, ours: &Namespace, upstream: SocketAddr) {
    let mut contest = Contest::new("A question for a name that nobody asked for before");
    let mut number = 0;
    let mut next = move |prefix: &str| {
        number += 1;
        format!("{prefix}{number}.{NAME}")
    };
    let mut other = next;
    let peer = contest.row("the resolver behind it", &[], move || {
        let (name, begin) = (next("a"), Instant::now());
        resolve(&name, upstream)?;
        Ok(begin.elapsed())
    });
    let allowance = Allowance { peer, most: Duration::from_millis(1) };
    contest.row_above("soma egress", allowance, move || {
        let name = other("b");
        ours.within(move || {
            let begin = Instant::now();
            resolve(&name, egress::RESOLVER)?;
            Ok(begin.elapsed())
        })?
    });
    contest.run(settings);
}

/// What a sandbox's network adds to its create: the sockets, and the word of the egress program.
fn ready(settings: &Settings, egress: &Egress) {
    let mut contest = Contest::new("The network of a sandbox, from its namespace to its rules");
    let most = Duration::from_millis(2);
    contest.row_within("soma egress", most, || {
        let namespace = Namespace::new("soma-bench-new")?;
        let begin = Instant::now();
        egress.attach(&namespace)?;
        Ok(begin.elapsed())
    });
    contest.run(settings);
}

fn crowd(egress: &Egress) -> anyhow::Result<()> {
    let before = share(&egress.process())?;
    for _ in 0..CROWD {
        let namespace = Namespace::unnamed()?;
        egress.attach(&namespace)?;
    }
    let after = share(&egress.process())?;
    let word = if after <= MOST_FOR_CROWD { "kept" } else { "MISSED" };
    output::line(&format!(
        "\n{CROWD} sandboxes with rules\n  soma egress has {after} KiB (before {before} KiB), \
         wanted at most {MOST_FOR_CROWD}: {word}"
    ));
    Ok(())
}

/// Asks for so much, and reads all of it.
fn fetch(address: SocketAddr, amount: u64) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let mut stream = connect(address)?;
    writeln!(stream, "{amount}")?;
    let mut bytes = vec![0; 256 << 10];
    let mut left = amount;
    while left > 0 {
        let length = stream.read(&mut bytes)?;
        ensure!(length > 0, "{left} bytes did not come");
        left = left.saturating_sub(length as u64);
    }
    Ok(begin.elapsed())
}

fn fetch_many(address: SocketAddr) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    // A thread is in the namespace of the one that began it.
    let all: Vec<_> = (0..MANY).map(|_| thread::spawn(move || fetch(address, EACH))).collect();
    for one in all {
        one.join().ok().context("a connection's thread died")??;
    }
    Ok(begin.elapsed())
}

fn first_byte(address: SocketAddr) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    connect(address)?;
    Ok(begin.elapsed())
}

/// Connects, and takes the greeting.
fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.read_exact(&mut [0])?;
    Ok(stream)
}

fn resolve(name: &str, resolver: SocketAddr) -> anyhow::Result<Ipv4Addr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(resolver)?;
    // A number of its own, recursion wanted, one question.
    let mut question = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        question.push(u8::try_from(label.len())?);
        question.extend(label.as_bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    socket.send(&question)?;
    let mut answer = [0; 1500];
    let length = socket.recv(&mut answer)?;
    // One answer is all that is asked for, and its address comes last but for what extends it.
    let begins = question.len() + 12;
    let address = answer[..length].get(begins..begins + 4).context("no address came")?;
    Ok(Ipv4Addr::new(address[0], address[1], address[2], address[3]))
}
