//! The program that sandboxes reach the network through: started, told of sandboxes, started anew.
//!
//! It holds the sockets that are made here inside each sandbox's namespace. When it dies they are
//! gone, so that a sandbox is refused at once and reaches nothing; then another one is started and
//! told of all of them again. What it is told is kept in the sandboxes' folders, unread.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use domain::{Lifetime, SandboxId};
use network::attach::{FromEgress, Hello, ToEgress, version};
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendFlags};

use super::bodies::Stage;
use super::client::Connection;
use super::clients::Waiter;
use super::nursery::Nursery;
use super::{Engine, log, reach};
use crate::durable;
use crate::failure::{Failure, Kind, Step};
use crate::home::Home;
use crate::record::{self, Kept};
use crate::verbs::{Answer, Record, Refusal};

/// After it died soon after its start, the next one waits: something has to be mended.
const AGAIN: Duration = Duration::from_secs(1);

/// So many names fit into a message. With more, what is gone is forgotten another time.
const MOST_NAMED: usize = 4000;

/// Where the operator's wishes lie in the home.
const CONFIGURATION: &str = "network.json";

/// The egress program as the engine knows it.
#[derive(Default)]
pub(super) struct Egress {
    connection: Option<Connection<ToEgress>>,
    /// Who waits until what they wanted holds, by the number of the message.
    waiting: Vec<(u64, Subject, Waiter)>,
    last_number: u64,
    /// Sandboxes that it seemed to have already, by the number of the message.
    unsure: Vec<(u64, SandboxId)>,
    started: Option<Instant>,
    /// No other one is started before then.
    start_after: Option<Instant>,
}

/// What somebody wanted changed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Sandbox(SandboxId),
    Configuration,
}

impl Egress {
    pub(super) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let connection = self.connection.as_ref()?;
        let behind = if connection.is_behind() { PollFlags::OUT } else { PollFlags::empty() };
        Some((connection.socket(), PollFlags::IN | behind))
    }

    /// When to look whether another one is to be started.
    pub(super) fn wants_attention(&self) -> Option<Instant> {
        self.connection.is_none().then_some(self.start_after).flatten()
    }

    /// A sandbox does not run any more, or is gone for good.
    pub(super) fn detach(&mut self, id: &SandboxId, forget: bool) {
        let number = self.new_number();
        self.tell(ToEgress::Detach { number, sandbox: id.clone(), forget }, Vec::new());
    }

    fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Says something, or nothing where nobody listens: the next one is told everything.
    fn tell(&mut self, message: ToEgress, descriptors: Vec<OwnedFd>) {
        let Some(connection) = &mut self.connection else { return };
        if connection.send(message, descriptors).is_err() {
            self.lose();
        }
    }

    fn lose(&mut self) {
        self.connection = None;
        self.unsure.clear();
        let quickly = self.started.is_some_and(|started| started.elapsed() < AGAIN);
        self.start_after = Some(Instant::now() + if quickly { AGAIN } else { Duration::ZERO });
    }

    /// What somebody waits for is now what this message is about.
    fn renumber(&mut self, subject: &Subject, number: u64) {
        for (theirs, of, _) in &mut self.waiting {
            if of == subject {
                *theirs = number;
            }
        }
    }
}

impl Engine {
    /// Sees to it that there is one, and that it knows every sandbox.
    pub(super) fn keep_egress(&mut self) {
        let due = self.egress.start_after.is_none_or(|moment| Instant::now() >= moment);
        if self.leaving || self.egress.connection.is_some() {
            return;
        }
        if !due {
            // It ended as soon as it was started: nobody is left to wait for it.
            let log = self.host.options.home.egress_log();
            let cause = format!("the egress program ends at once; `{}` says why", log.display());
            return self.disappoint(&cause);
        }
        match self.connect_egress() {
            Ok(connection) => {
                self.egress.connection = Some(connection);
                self.tell_everything();
            }
            Err(error) => {
                log(&format!("sandboxes have no network: {error}"));
                self.egress.start_after = Some(Instant::now() + AGAIN);
                self.disappoint(&format!("the egress program cannot be started: {error}"));
                if error.kind() == io::ErrorKind::BrokenPipe {
                    self.replace_nursery();
                }
            }
        }
    }

    /// Tells everybody who waits for the egress program that it is in vain. What they wanted is
    /// written down, and holds when there is one again.
    fn disappoint(&mut self, cause: &str) {
        let failure = Failure::new("change the network", cause, Kind::NoCapacity);
        for (.., waiter) in std::mem::take(&mut self.egress.waiting) {
            self.answer(waiter, Err(failure.clone().into()));
        }
    }

    /// Somebody killed what starts programs. A user's engine cannot fork another on the host, so it
    /// makes room for the next engine, which can.
    fn replace_nursery(&mut self) {
        if !self.host.rights.is_root() {
            return self.begin_to_leave();
        }
        match Nursery::open() {
            Ok(nursery) => self.host.nursery = nursery,
            Err(error) => log(&format!("programs cannot be started: {error}")),
        }
    }

    /// The one that an earlier engine left, or a new one.
    fn connect_egress(&mut self) -> io::Result<Connection<ToEgress>> {
        let home = &self.host.options.home;
        let socket = if let Ok(socket) = link::dial_at_once(home.path(), Home::EGRESS) {
            socket
        } else {
            self.host.nursery.start(home)?;
            self.egress.started = Some(Instant::now());
            link::dial_at_once(home.path(), Home::EGRESS)?
        };
        link::send(&socket, &Hello::Engine { version: version() }, &[], SendFlags::DONTWAIT)?;
        Ok(Connection::new(socket))
    }

    fn tell_everything(&mut self) {
        let first = self.egress.last_number + 1;
        let configuration = match durable::read(self.host.options.home.path(), CONFIGURATION) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // What cannot be read lets nothing pass, which is what the program makes of no text.
            read => Some(read.ok().and_then(|it| String::from_utf8(it).ok()).unwrap_or_default()),
        };
        if let Some(configuration) = configuration {
            let number = self.egress.new_number();
            self.egress.renumber(&Subject::Configuration, number);
            self.egress.tell(ToEgress::Configure { number, configuration }, Vec::new());
        }
        let ids: Vec<SandboxId> = self.sandboxes.keys().cloned().collect();
        if ids.len() <= MOST_NAMED {
            let number = self.egress.new_number();
            self.egress.tell(ToEgress::Known { number, sandboxes: ids.clone() }, Vec::new());
        }
        for id in ids.iter().filter(|id| self.is_running(id)).cloned().collect::<Vec<_>>() {
            self.attach(&id);
        }
        // What was wanted for those that do not run any more is written down for their next start.
        let settled: Vec<u64> = self.egress.waiting.iter().map(|(number, ..)| *number).collect();
        for number in settled.into_iter().filter(|number| *number < first) {
            self.conclude(number, &Ok(Answer::Done));
        }
    }

    /// Gives a sandbox that runs its network.
    pub(super) fn attach(&mut self, id: &SandboxId) {
        self.try_to_attach(id, true);
    }

    fn try_to_attach(&mut self, id: &SandboxId, once_more: bool) {
        if self.egress.connection.is_none() {
            return;
        }
        let Some(sandbox) = self.sandboxes.get(id) else { return };
        let body = sandbox.body.and_then(|key| self.bodies.get(&key));
        let Some(Stage::Ready(reach)) = body.map(|body| &body.stage) else { return };
        let rules = sandbox.network.0.clone();
        let opened = reach::listen_inside(&reach.network, &self.host.network)
            .and_then(|sockets| Ok((sockets, reach.first_descriptor.try_clone()?)));
        match opened {
            Ok((sockets, first)) => {
                let number = self.egress.new_number();
                self.egress.renumber(&Subject::Sandbox(id.clone()), number);
                let message = ToEgress::Attach { number, sandbox: id.clone(), rules };
                self.egress.tell(message, sockets.into_iter().chain([first]).collect());
            }
            // The program that an earlier engine started still has them, and this sandbox.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let number = self.egress.new_number();
                self.egress.renumber(&Subject::Sandbox(id.clone()), number);
                if once_more {
                    self.egress.unsure.push((number, id.clone()));
                }
                let message = ToEgress::Change { number, sandbox: id.clone(), rules };
                self.egress.tell(message, Vec::new());
            }
            // One of an earlier version has no wires.
            Err(error) => log(&format!("sandbox `{id}` has no network: {error}")),
        }
    }

    pub(super) fn change_network(&mut self, waiter: Waiter, id: &SandboxId, rules: Record) {
        match self.keep_network(id, rules) {
            Ok(()) if self.is_running(id) => {
                let number = self.egress.new_number();
                let subject = Subject::Sandbox(id.clone());
                self.egress.waiting.push((number, subject, waiter));
                let rules = self.sandboxes.get(id).map(|sandbox| sandbox.network.0.clone());
                let rules = rules.unwrap_or_default();
                let message = ToEgress::Change { number, sandbox: id.clone(), rules };
                self.egress.tell(message, Vec::new());
            }
            Ok(()) => self.answer(waiter, Ok(Answer::Done)),
            Err(refusal) => self.answer(waiter, Err(refusal)),
        }
    }

    /// Writes down what a sandbox may reach, before it may.
    fn keep_network(&mut self, id: &SandboxId, rules: Record) -> Result<(), Refusal> {
        let rules = rules.check()?;
        if self.find(id)?.lifetime == Lifetime::Kept {
            let folder = self.host.options.home.sandbox(id);
            record::write(&folder, Kept::Network, &rules).step("write what it may reach")?;
        }
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.network = rules;
        }
        Ok(())
    }

    pub(super) fn configure_network(&mut self, waiter: Waiter, configuration: Record) {
        let home = self.host.options.home.path();
        let kept = configuration.check().and_then(|Record(text)| {
            let put = durable::put(home, CONFIGURATION, text.as_bytes());
            put.and_then(|()| durable::settle(home)).step("write the network's configuration")?;
            Ok(text)
        });
        match kept {
            Ok(configuration) => {
                let number = self.egress.new_number();
                self.egress.waiting.push((number, Subject::Configuration, waiter));
                self.egress.tell(ToEgress::Configure { number, configuration }, Vec::new());
            }
            Err(refusal) => self.answer(waiter, Err(refusal)),
        }
    }

    /// What a sandbox may reach, as it was written down.
    pub(super) fn read_rules(&self, id: &SandboxId) -> Result<Record, Refusal> {
        Ok(self.find(id)?.network.clone())
    }

    /// A connection to the egress program for whoever reads logs.
    pub(super) fn read_network(&mut self, waiter: Waiter) {
        let dialled = link::dial_at_once(self.host.options.home.path(), Home::EGRESS);
        match dialled.step("reach the egress program") {
            Ok(socket) => self.send(waiter, Ok(Answer::Done), vec![socket]),
            Err(failure) => self.answer(waiter, Err(failure.into())),
        }
    }

    /// It has said something, can be told more, or is gone.
    pub(super) fn hear_egress(&mut self) {
        let Some(connection) = &mut self.egress.connection else { return };
        if connection.catch_up().is_err() {
            return self.egress.lose();
        }
        match link::receive::<FromEgress>(connection.socket(), RecvFlags::DONTWAIT) {
            Ok(Some((FromEgress::Done { number }, _))) => self.conclude(number, &Ok(Answer::Done)),
            Ok(Some((FromEgress::Failed { number, .. }, _))) if self.attach_again(number) => {}
            Ok(Some((FromEgress::Failed { number, reason }, _))) => {
                log(&format!("the egress program: {reason}"));
                let failure = Failure::new("change the network", reason, Kind::Broken);
                self.conclude(number, &Err(failure.into()));
            }
            Ok(Some((FromEgress::Dial { number, sandbox, port }, _))) => {
                self.dial(number, &sandbox, |inside, own| reach::dial_port(inside, own, port));
            }
            Ok(Some((FromEgress::Whose { number, sandbox }, _))) => {
                self.dial(number, &sandbox, reach::dial_whose);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(None) | Err(_) => {
                log("the egress program is gone: another one is started");
                self.egress.lose();
            }
        }
    }

    /// The program had let go of a sandbox in the moment in which that was given to it again.
    fn attach_again(&mut self, number: u64) -> bool {
        let mut unsure = self.egress.unsure.extract_if(.., |(theirs, _)| *theirs <= number);
        let again = unsure.find(|(theirs, _)| *theirs == number);
        drop(unsure);
        if let Some((_, id)) = &again {
            self.try_to_attach(id, false);
        }
        again.is_some()
    }

    fn conclude(&mut self, number: u64, answer: &Result<Answer, Refusal>) {
        let theirs: Vec<_> =
            self.egress.waiting.extract_if(.., |(theirs, ..)| *theirs == number).collect();
        for (.., waiter) in theirs {
            self.answer(waiter, answer.clone());
        }
    }

    /// Connects for the egress program: to a port of a sandbox that another may reach, or to where
    /// a guest says whose a connection is.
    fn dial(
        &mut self,
        number: u64,
        id: &SandboxId,
        dial: impl FnOnce(&File, &File) -> io::Result<OwnedFd>,
    ) {
        let sandbox = self.sandboxes.get(id).filter(|sandbox| !sandbox.doomed);
        let body = sandbox.and_then(|sandbox| self.bodies.get(&sandbox.body?));
        let dialled = match body.map(|body| &body.stage) {
            Some(Stage::Ready(reach)) => {
                dial(&reach.network, &self.host.network).map_err(|error| error.to_string())
            }
            _ => Err(format!("sandbox `{id}` does not run")),
        };
        let (failure, descriptors) = match dialled {
            Ok(socket) => (None, vec![socket]),
            Err(reason) => (Some(reason), Vec::new()),
        };
        self.egress.tell(ToEgress::Dialled { number, failure }, descriptors);
    }
}
