//! The engine's clients: its verbs, one by one, and their answers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use domain::{Ending, Lifetime, Limits, SandboxId};
use provider::{Condition, Observed};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with};

use super::bodies::Stage;
use super::lifecycle::Sandbox;
use super::{Engine, Key, reach};
use crate::failure::Step;
use crate::link;
use crate::missing;
use crate::verbs::{Answer, Refusal, Reply, Request, Verb};

pub(super) struct Client {
    pub(super) socket: OwnedFd,
}

/// Who waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiter {
    client: Key,
    number: u64,
}

impl Engine {
    /// Takes a new client in: one that was connected by the engine's own user.
    pub(super) fn welcome(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(&self.host.listener, flags) {
            Ok(socket) => socket,
            Err(rustix::io::Errno::AGAIN) => return,
            // No descriptors left, most likely: asking again at once would only burn time.
            Err(_) => {
                self.welcome_after = Instant::now() + Duration::from_millis(50);
                return;
            }
        };
        let own = rustix::process::geteuid();
        if socket_peercred(&socket).is_ok_and(|peer| peer.uid == own) {
            let key = self.new_key();
            self.clients.insert(key, Client { socket });
        }
    }

    /// Serves one request of a client, or its departure.
    pub(super) fn serve(&mut self, key: Key) {
        let Some(client) = self.clients.get(&key) else { return };
        match link::receive::<Request>(&client.socket, RecvFlags::DONTWAIT) {
            Ok(Some((request, _))) => {
                let waiter = Waiter { client: key, number: request.number };
                self.busy_until = Instant::now();
                self.obey(waiter, request.verb);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // It left, or sent what is no request: neither is served again.
            Ok(None) | Err(_) => self.dismiss(key),
        }
    }

    /// Lets a client go, and with it the sandboxes that live with it.
    fn dismiss(&mut self, key: Key) {
        self.clients.remove(&key);
        let own: Vec<SandboxId> = self
            .sandboxes
            .iter()
            .filter(|(_, sandbox)| sandbox.caller == Some(key))
            .map(|(id, _)| id.clone())
            .collect();
        for id in own {
            self.doom(&id);
        }
    }

    fn obey(&mut self, waiter: Waiter, verb: Verb) {
        match verb {
            Verb::Create { id, limits, lifetime, allow_unenforced } => {
                self.create(waiter, &id, limits, lifetime, allow_unenforced);
            }
            Verb::Destroy { id } => self.destroy(waiter, &id),
            Verb::Connect { id } => self.connect(waiter, &id),
            Verb::Inspect { id } => {
                let answer = self.observe(&id).map(Answer::Observed).ok_or(Refusal::NotFound);
                self.answer(waiter, answer, &[]);
            }
            Verb::List => {
                let all = self.sandboxes.keys().filter_map(|id| self.observe(id)).collect();
                self.answer(waiter, Ok(Answer::Sandboxes(all)), &[]);
            }
            Verb::Steps => {
                let steps = self.last_steps.clone();
                self.answer(waiter, Ok(Answer::Steps(steps)), &[]);
            }
            Verb::Prepared => {
                let count = self.bodies.values().filter(|body| body.is_prepared()).count();
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                self.answer(waiter, Ok(Answer::Prepared(count)), &[]);
            }
            Verb::Leave => {
                self.begin_to_leave();
                self.answer(waiter, Ok(Answer::Done), &[]);
            }
        }
    }

    fn create(
        &mut self,
        waiter: Waiter,
        id: &SandboxId,
        limits: Limits,
        lifetime: Lifetime,
        allow_unenforced: bool,
    ) {
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            if let Some(ending) = &sandbox.ending {
                let refusal = Refusal::NotRunning(ending.clone());
                return self.answer(waiter, Err(refusal), &[]);
            }
            if sandbox.doomed {
                let refusal = Refusal::Invalid(format!("sandbox `{id}` is being destroyed"));
                return self.answer(waiter, Err(refusal), &[]);
            }
            if self.is_running(id) {
                return self.answer(waiter, Ok(Answer::Done), &[]);
            }
            if let Some(sandbox) = self.sandboxes.get_mut(id) {
                sandbox.waiting.push(waiter);
            }
            return;
        }
        let limits = match limits.check() {
            Ok(limits) => limits,
            Err(error) => {
                return self.answer(waiter, Err(Refusal::Invalid(error.to_string())), &[]);
            }
        };
        let unenforced = self.host.unenforced();
        if !unenforced.is_empty() && !allow_unenforced {
            let fix = missing::enforcement(&unenforced, self.host.rights);
            return self.answer(waiter, Err(Refusal::Unenforced(unenforced, fix)), &[]);
        }
        if self.leaving {
            let refusal = Refusal::Invalid("the engine is about to leave: ask again".to_owned());
            return self.answer(waiter, Err(refusal), &[]);
        }
        let caller = (lifetime == Lifetime::WithCaller).then_some(waiter.client);
        let sandbox = Sandbox {
            limits,
            unenforced,
            lifetime,
            caller,
            body: None,
            ending: None,
            doomed: false,
            waiting: vec![waiter],
        };
        self.sandboxes.insert(id.clone(), sandbox);
        self.embody(id);
    }

    fn destroy(&mut self, waiter: Waiter, id: &SandboxId) {
        self.doom(id);
        match self.sandboxes.get_mut(id) {
            Some(sandbox) => sandbox.waiting.push(waiter),
            // Nothing was there, or it is gone already.
            None => self.answer(waiter, Ok(Answer::Done), &[]),
        }
    }

    fn connect(&mut self, waiter: Waiter, id: &SandboxId) {
        let reached = self.reach(id);
        match reached {
            Ok(stream) => self.answer(waiter, Ok(Answer::Done), &[stream.as_fd()]),
            Err(refusal) => self.answer(waiter, Err(refusal), &[]),
        }
    }

    fn reach(&self, id: &SandboxId) -> Result<OwnedFd, Refusal> {
        let sandbox = self.sandboxes.get(id).ok_or(Refusal::NotFound)?;
        if let Some(ending) = &sandbox.ending {
            return Err(Refusal::NotRunning(ending.clone()));
        }
        let body = sandbox.body.and_then(|key| self.bodies.get(&key));
        match body.map(|body| &body.stage) {
            Some(Stage::Ready(reach)) if !sandbox.doomed => {
                let stream = reach::dial_guest(&reach.network, &self.host.network);
                Ok(stream.step("reach the guest")?)
            }
            Some(Stage::Launching { .. }) | None if !sandbox.doomed => {
                Err(Refusal::Invalid(format!("sandbox `{id}` is not ready yet")))
            }
            _ => Err(Refusal::NotRunning(Ending::Stopped)),
        }
    }

    fn is_running(&self, id: &SandboxId) -> bool {
        let sandbox = self.sandboxes.get(id);
        let body = sandbox.and_then(|sandbox| self.bodies.get(&sandbox.body?));
        body.is_some_and(|body| matches!(body.stage, Stage::Ready(_)))
    }

    fn observe(&self, id: &SandboxId) -> Option<Observed> {
        let sandbox = self.sandboxes.get(id)?;
        let condition = match (&sandbox.ending, self.is_running(id)) {
            (Some(ending), _) => Condition::Ended(ending.clone()),
            (None, true) => Condition::Running,
            // On its way: who asked for it has no answer yet, so for others it is not there.
            (None, false) => return None,
        };
        let unenforced = sandbox.unenforced.clone();
        Some(Observed { id: id.clone(), condition, unenforced })
    }

    /// Answers everybody who waits for this sandbox.
    pub(super) fn answer_waiting(&mut self, id: &SandboxId, answer: &Result<Answer, Refusal>) {
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        for waiter in std::mem::take(&mut sandbox.waiting) {
            self.answer(waiter, answer.clone(), &[]);
        }
    }

    pub(super) fn answer(
        &mut self,
        waiter: Waiter,
        answer: Result<Answer, Refusal>,
        descriptors: &[BorrowedFd<'_>],
    ) {
        let Some(client) = self.clients.get(&waiter.client) else { return };
        let reply = Reply { number: waiter.number, answer };
        // A client that does not read its answers must not hold up the others.
        if link::send(&client.socket, &reply, descriptors, SendFlags::DONTWAIT).is_err() {
            self.dismiss(waiter.client);
        }
    }
}
