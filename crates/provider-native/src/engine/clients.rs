//! The engine's clients: its verbs, one by one, and their answers.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use domain::{Ending, Layer, Lifetime, Rest, SandboxId};
use provider::{Condition, Observed};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SocketFlags, accept_with};

use super::bodies::{Body, Stage};
use super::client::Client;
use super::lifecycle::Sandbox;
use super::{Engine, Key, reach};
use crate::checkpoint::WOKEN;
use crate::failure::Step;
use crate::missing;
use crate::verbs::{Answer, Record, Refusal, Reply, Request, Verb, Wish, version};

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) client: Key,
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
            self.clients.insert(key, Client::new(socket));
        }
    }

    /// Serves one request of a client, or its departure.
    pub(super) fn serve(&mut self, key: Key) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        if client.is_behind() {
            return match client.catch_up() {
                Ok(()) => {}
                Err(_) => self.dismiss(key),
            };
        }
        if self.leaving {
            // It knows of kept sandboxes no more. Whoever has no answer asks the next engine.
            return;
        }
        match link::receive::<Request>(client.socket(), RecvFlags::DONTWAIT) {
            Ok(Some((request, descriptors))) => {
                let waiter = Waiter { client: key, number: request.number };
                self.busy_until = Instant::now();
                self.obey(waiter, request.verb, descriptors);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // It left, or sent what is no request: neither is served again.
            Ok(None) | Err(_) => self.dismiss(key),
        }
    }

    /// Lets a client go, and with it the sandboxes that live with it.
    fn dismiss(&mut self, key: Key) {
        self.clients.remove(&key);
        for sandbox in self.sandboxes.values_mut() {
            sandbox.watching.retain(|waiter| waiter.client != key);
            sandbox.resting.retain(|waiter| waiter.client != key);
            sandbox.dozing.retain(|waiter| waiter.client != key);
        }
        self.abandon_imports_of(key);
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

    fn obey(&mut self, waiter: Waiter, verb: Verb, descriptors: Vec<OwnedFd>) {
        match verb {
            Verb::Create { id, wish } => self.create(waiter, &id, wish),
            Verb::Destroy { id } => self.destroy(waiter, &id),
            Verb::Start { id, timeout, reserves } => self.start(waiter, &id, timeout, &reserves),
            Verb::Stop { id } => self.stop(waiter, &id),
            Verb::Pause { id } => self.pause(waiter, &id),
            Verb::Hibernate { id, reserves } => self.hibernate(waiter, &id, &reserves),
            Verb::Resume { id, timeout, reserves } => self.resume(waiter, &id, timeout, &reserves),
            Verb::Capture { id, wanted } => self.capture(waiter, &id, wanted),
            Verb::Snapshots => {
                let answer = self.list_snapshots().map(Answer::Snapshots);
                self.answer(waiter, answer);
            }
            Verb::ReadSnapshot { id } => {
                let answer = self.read_snapshot(&id).map(Answer::Record);
                self.answer(waiter, answer);
            }
            Verb::RemoveSnapshot { id } => {
                let answer = self.remove_snapshot(&id).map(|()| Answer::Done);
                self.answer(waiter, answer);
            }
            Verb::RollBack { id, origin } => {
                let answer = self.roll_back(&id, &origin).map(|()| Answer::Done);
                self.answer(waiter, answer);
            }
            Verb::Connect { id } => self.connect(waiter, &id),
            Verb::Inspect { id } => {
                let answer = self.observe(&id).map(Answer::Observed).ok_or(Refusal::NotFound);
                self.answer(waiter, answer);
            }
            Verb::List => {
                self.take_stock();
                let all = self.sandboxes.keys().filter_map(|id| self.observe(id)).collect();
                self.answer(waiter, Ok(Answer::Sandboxes(all)));
            }
            Verb::Steps => {
                let steps = self.last_steps.clone();
                self.answer(waiter, Ok(Answer::Steps(steps)));
            }
            Verb::Prepared => {
                let count = self.bodies.values().filter(|body| body.is_prepared()).count();
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                self.answer(waiter, Ok(Answer::Prepared(count)));
            }
            Verb::Version => self.answer(waiter, Ok(Answer::Version(version()))),
            Verb::Leave => {
                self.begin_to_leave();
                self.answer(waiter, Ok(Answer::Done));
            }
            Verb::ReadRecord { id } => {
                let answer = self.read_record(&id).map(Answer::Record);
                self.answer(waiter, answer);
            }
            Verb::WriteRecord { id, record } => {
                let answer = self.write_record(&id, record).map(|()| Answer::Done);
                self.answer(waiter, answer);
            }
            Verb::Ended { id } => self.watch(waiter, &id),
            Verb::Forget => {
                self.stop_watching(waiter);
                self.abandon_import(waiter);
            }
            Verb::Import => self.import(waiter, descriptors),
            Verb::Keep { slot, name, record, kind, replace } => {
                let answer = self.keep_import(waiter, &slot, &name, (record, kind), replace);
                self.answer(waiter, answer.map(|()| Answer::Done));
            }
            Verb::Discard { slot } => {
                self.discard_import(waiter, &slot);
                self.answer(waiter, Ok(Answer::Done));
            }
            Verb::Templates => {
                let answer = Answer::Templates(self.templates());
                self.answer(waiter, Ok(answer));
            }
            Verb::ReadTemplate { name } => {
                let answer = self.read_template(&name).map(Answer::Record);
                self.answer(waiter, answer);
            }
            Verb::RemoveTemplate { name } => {
                let answer = self.remove_template(&name).map(|()| Answer::Done);
                self.answer(waiter, answer);
            }
            Verb::ChangeNetwork { id, rules } => self.change_network(waiter, &id, rules),
            Verb::ConfigureNetwork { configuration } => {
                self.configure_network(waiter, configuration);
            }
            Verb::ReadNetwork => self.read_network(waiter),
            Verb::ReadRules { id } => {
                let answer = self.read_rules(&id).map(Answer::Record);
                self.answer(waiter, answer);
            }
            Verb::Renew { id, timeout } => self.renew(waiter, &id, timeout),
            Verb::Limit { id, limits } => {
                let answer = self.limit(&id, &limits).map(|()| Answer::Done);
                self.answer(waiter, answer);
            }
        }
    }

    fn create(&mut self, waiter: Waiter, id: &SandboxId, wish: Wish) {
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            if let Some(ending) = sandbox.known_ending() {
                let refusal = Refusal::NotRunning(ending.clone());
                return self.answer(waiter, Err(refusal));
            }
            if sandbox.doomed {
                let refusal = Refusal::Invalid(format!("sandbox `{id}` is being destroyed"));
                return self.answer(waiter, Err(refusal));
            }
            if let Some(seen) = self.observe(id) {
                return self.answer(waiter, Ok(Answer::Observed(seen)));
            }
            if let Some(sandbox) = self.sandboxes.get_mut(id) {
                sandbox.waiting.push(waiter);
            }
            return;
        }
        self.room.leave(wish.reserves);
        let origin = wish.origin.clone();
        let accepted = self.accept(waiter, wish).and_then(|sandbox| {
            if let Some(origin) = origin {
                return self.make_from(id, sandbox, &origin);
            }
            self.sandboxes.insert(id.clone(), sandbox);
            self.embody(id);
            Ok(())
        });
        match accepted {
            Ok(()) => {}
            Err(refusal) => self.answer(waiter, Err(refusal)),
        }
    }

    /// The wish for a sandbox that can be, on its way to become one.
    fn accept(&self, waiter: Waiter, wish: Wish) -> Result<Sandbox, Refusal> {
        if wish.needs_network
            && let Some(reason) = &self.host.missing_wires
        {
            return Err(missing::wires(reason).into());
        }
        let Wish {
            limits,
            lifetime,
            allow_unenforced,
            record,
            reserves,
            template,
            network,
            origin,
            ..
        } = wish;
        let limits = limits.check().map_err(|error| Refusal::Invalid(error.to_string()))?;
        let Record(record) = record.check()?;
        let network = network.check()?;
        let unenforced = self.host.unenforced();
        if !unenforced.is_empty() && !allow_unenforced {
            let fix = missing::enforcement(&unenforced, self.host.rights);
            return Err(Refusal::Unenforced(unenforced, fix));
        }
        reserves.check(self.host.options.home.path())?;
        // What was captured stands on what it stood on, be there another of that name by now.
        let template = template.filter(|_| origin.is_none());
        let template = template.map(|name| self.find_template(&name)).transpose()?;
        Ok(Sandbox {
            limits,
            template,
            unenforced,
            lifetime,
            caller: (lifetime == Lifetime::WithCaller).then_some(waiter.client),
            body: None,
            ending: None,
            before: None,
            reserved: None,
            damage: None,
            asleep: false,
            waking: false,
            capturing: None,
            newborn: false,
            dozing: Vec::new(),
            doomed: false,
            waiting: vec![waiter],
            watching: Vec::new(),
            resting: Vec::new(),
            again: Vec::new(),
            record,
            network,
        })
    }

    fn destroy(&mut self, waiter: Waiter, id: &SandboxId) {
        self.doom(id);
        match self.sandboxes.get_mut(id) {
            Some(sandbox) => sandbox.waiting.push(waiter),
            // Nothing was there, or it is gone already.
            None => self.answer(waiter, Ok(Answer::Done)),
        }
    }

    fn connect(&mut self, waiter: Waiter, id: &SandboxId) {
        let reached = self.reach(id);
        match reached {
            Ok(stream) => self.send(waiter, Ok(Answer::Done), vec![stream]),
            Err(refusal) => self.answer(waiter, Err(refusal)),
        }
    }

    fn reach(&self, id: &SandboxId) -> Result<OwnedFd, Refusal> {
        let sandbox = self.sandboxes.get(id).ok_or(Refusal::NotFound)?;
        if let Some(ending) = sandbox.known_ending() {
            return Err(Refusal::NotRunning(ending.clone()));
        }
        if sandbox.asleep {
            return Err(Refusal::Paused);
        }
        let body = sandbox.body.and_then(|key| self.bodies.get(&key));
        match body.map(|body| &body.stage) {
            Some(Stage::Ready(_)) if body.is_some_and(Body::stands_still) => Err(Refusal::Paused),
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

    pub(super) fn is_running(&self, id: &SandboxId) -> bool {
        let sandbox = self.sandboxes.get(id);
        let body = sandbox.and_then(|sandbox| self.bodies.get(&sandbox.body?));
        body.is_some_and(|body| matches!(body.stage, Stage::Ready(_)))
    }

    pub(super) fn observe(&self, id: &SandboxId) -> Option<Observed> {
        let sandbox = self.sandboxes.get(id)?;
        let condition = match (sandbox.known_ending(), self.is_running(id)) {
            _ if sandbox.asleep => Condition::Paused(Rest::Hibernated),
            (Some(ending), _) => Condition::Ended(ending.clone()),
            (None, true) => self.rest(id).map_or(Condition::Running, Condition::Paused),
            // On its way: who asked for it has no answer yet, so for others it is not there.
            (None, false) => return None,
        };
        let unenforced = sandbox.unenforced.clone();
        let mut missing_layers = self.host.missing_layers();
        let folder = self.host.options.home.sandbox(id);
        if folder.join(WOKEN).exists() && !missing_layers.contains(&Layer::Landlock) {
            missing_layers.push(Layer::Landlock);
        }
        let is_kept = sandbox.lifetime == Lifetime::Kept;
        Some(Observed { id: id.clone(), condition, is_kept, unenforced, missing_layers })
    }

    /// Answers everybody who waits for this sandbox.
    pub(super) fn answer_waiting(&mut self, id: &SandboxId, answer: &Result<Answer, Refusal>) {
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        for waiter in std::mem::take(&mut sandbox.waiting) {
            self.answer(waiter, answer.clone());
        }
    }

    pub(super) fn answer(&mut self, waiter: Waiter, answer: Result<Answer, Refusal>) {
        self.send(waiter, answer, Vec::new());
    }

    pub(super) fn send(
        &mut self,
        waiter: Waiter,
        answer: Result<Answer, Refusal>,
        descriptors: Vec<OwnedFd>,
    ) {
        let Some(client) = self.clients.get_mut(&waiter.client) else { return };
        let reply = Reply { number: waiter.number, answer };
        if client.send(reply, descriptors).is_err() {
            self.dismiss(waiter.client);
        }
    }
}
