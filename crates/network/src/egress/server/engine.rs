//! Does what the engine says: attaches sandboxes, changes their rules, lets them go.

use std::collections::HashSet;
use std::io;
use std::net;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use domain::SandboxId;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, UdpSocket};

use crate::Rules;
use crate::attach::{FromEgress, ToEgress};
use crate::egress::packets::{self, Packets};
use crate::egress::sandbox::{Attachment, Sandbox};
use crate::egress::settings::Settings;
use crate::egress::world::World;
use crate::egress::{dns, gate};

/// Serves one engine until it leaves. What it attached stays.
pub(super) async fn serve(world: &Arc<World>, engine: Arc<Packets>) -> io::Result<()> {
    world.engine.enter(Arc::clone(&engine));
    let result = listen(world, &engine).await;
    world.engine.leave(&engine);
    result
}

async fn listen(world: &Arc<World>, engine: &Packets) -> io::Result<()> {
    while let Some((message, descriptors)) = engine.receive::<ToEgress>().await? {
        let (number, result) = match message {
            ToEgress::Dialled { number, failure } => {
                let first = descriptors.into_iter().next();
                let answer = match failure {
                    Some(reason) => Err(reason),
                    None => first.ok_or_else(|| "no descriptor came with it".to_owned()),
                };
                world.engine.answered(number, answer);
                continue;
            }
            ToEgress::Configure { number, configuration } => {
                (number, configure(world, &configuration))
            }
            ToEgress::Attach { number, sandbox, rules } => {
                (number, attach(world, sandbox, &rules, descriptors))
            }
            ToEgress::Change { number, sandbox, rules } => {
                (number, change(world, &sandbox, &rules))
            }
            ToEgress::Detach { number, sandbox, forget } => {
                detach(world, &sandbox).await;
                if forget {
                    world.forget(&sandbox);
                }
                (number, Ok(()))
            }
            ToEgress::Known { number, sandboxes } => {
                forget_others(world, &sandboxes).await;
                (number, Ok(()))
            }
        };
        let answer = match result {
            Ok(()) => FromEgress::Done { number },
            Err(reason) => FromEgress::Failed { number, reason },
        };
        engine.send(&answer, &[]).await?;
    }
    Ok(())
}

fn configure(world: &World, text: &str) -> Result<(), String> {
    match Settings::read(text) {
        Ok(settings) => {
            world.configure(settings);
            Ok(())
        }
        Err(reason) => {
            world.configure(Settings::unreadable());
            Err(reason)
        }
    }
}

fn attach(
    world: &Arc<World>,
    id: SandboxId,
    rules: &str,
    descriptors: Vec<OwnedFd>,
) -> Result<(), String> {
    let descriptors = <[OwnedFd; 3]>::try_from(descriptors);
    let [gate, resolver, process] =
        descriptors.map_err(|_| "two sockets and a process must come along".to_owned())?;
    let unusable = |error: io::Error| format!("the sandbox's sockets cannot be used: {error}");
    let gate = adopt_listener(gate).map_err(unusable)?;
    let resolver = adopt_resolver(resolver).map_err(unusable)?;
    let process = packets::watch(process).map_err(unusable)?;
    let (rules, failure) = read(&id, rules);
    let known = world.sandboxes().get(&id).cloned();
    let sandbox = if let Some(sandbox) = known {
        sandbox.change(rules, &world.settings());
        sandbox
    } else {
        let sandbox = Arc::new(Sandbox::new(id.clone(), rules, world.log(&id)));
        world.sandboxes().insert(id, Arc::clone(&sandbox));
        sandbox
    };
    let attachment = sandbox.attach();
    let tcp = gate::serve(Arc::clone(world), Arc::clone(&sandbox), gate);
    let udp = dns::serve(Arc::clone(world), Arc::clone(&sandbox), resolver, attachment.clone());
    attachment.spawn(tcp);
    attachment.spawn(udp);
    attachment.spawn(sandbox.whose.open(Arc::clone(world), sandbox.id.clone()));
    // It ends the others, so it is none of them.
    world.tasks.spawn(leave_with(Arc::clone(world), sandbox, attachment, process));
    failure.map_or(Ok(()), Err)
}

fn change(world: &World, id: &SandboxId, rules: &str) -> Result<(), String> {
    let sandbox = world.sandboxes().get(id).cloned();
    let sandbox = sandbox.ok_or_else(|| format!("sandbox `{}` is not attached", id.as_str()))?;
    let (rules, failure) = read(id, rules);
    sandbox.change(rules, &world.settings());
    failure.map_or(Ok(()), Err)
}

async fn detach(world: &World, id: &SandboxId) {
    let sandbox = world.sandboxes().remove(id);
    if let Some(sandbox) = sandbox {
        sandbox.detach().await;
    }
}

/// Sandboxes that the engine does not know are gone, also when nobody said so.
async fn forget_others(world: &World, known: &[SandboxId]) {
    let known: HashSet<&SandboxId> = known.iter().collect();
    let mut all = world.logged();
    all.extend(world.sandboxes().keys().cloned());
    for id in all.iter().filter(|id| !known.contains(id)) {
        detach(world, id).await;
        world.forget(id);
    }
}

/// Detaches a sandbox when its first process ends.
async fn leave_with(
    world: Arc<World>,
    sandbox: Arc<Sandbox>,
    attachment: Attachment,
    process: AsyncFd<OwnedFd>,
) {
    // It is readable from its end on.
    let is_over = attachment.until_ended(process.readable()).await;
    if let Some(Ok(_)) = is_over {
        detach(&world, &sandbox.id).await;
    }
}

/// Rules that cannot be read, or are another sandbox's, let nothing pass.
fn read(id: &SandboxId, text: &str) -> (Rules, Option<String>) {
    match Rules::read(text) {
        Ok(rules) if rules.sandbox == *id => (rules, None),
        Ok(_) => {
            let reason = "the rules are another sandbox's".to_owned();
            (Rules::nothing(id.clone()), Some(reason))
        }
        Err(reason) => (Rules::nothing(id.clone()), Some(reason)),
    }
}

fn adopt_listener(socket: OwnedFd) -> io::Result<TcpListener> {
    let listener = net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    listener.local_addr()?;
    TcpListener::from_std(listener)
}

fn adopt_resolver(socket: OwnedFd) -> io::Result<UdpSocket> {
    let socket = net::UdpSocket::from(socket);
    socket.set_nonblocking(true)?;
    socket.local_addr()?;
    UdpSocket::from_std(socket)
}
