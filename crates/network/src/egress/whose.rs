//! Whose a connection is, as the sandbox's own guest says.
//!
//! Nobody waits long for it: what is let through goes on meanwhile, and what is refused is held for
//! a moment, because its maker forgets it with the refusal. The way to a guest is asked of the
//! engine when it is needed and let go soon after, because a sandbox with an open connection to the
//! outside cannot be put to sleep. What a guest says is text of a stranger's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::{LONGEST_HOLDER, NetworkEnds, SandboxId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::world::World;

/// How long a refusal waits for the name of whoever is refused.
const MOMENT: Duration = Duration::from_millis(40);
/// How long a guest may take for one answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long the way to a guest is kept without a question, and how long none is sought again.
const IDLE: Duration = Duration::from_secs(1);
/// Questions that wait; what comes beyond them is nobody's.
const MOST_WAITING: usize = 32;

/// A question under way. It can be looked at again and again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked(Option<watch::Receiver<Option<String>>>);

impl Asked {
    /// The answer, if it is there.
    pub(crate) fn now(&self) -> Option<String> {
        self.0.as_ref()?.borrow().clone()
    }

    /// The answer, if it comes in a moment.
    pub(crate) async fn soon(&mut self) -> Option<String> {
        let receiver = self.0.as_mut()?;
        let answered = timeout(MOMENT, receiver.wait_for(Option::is_some)).await;
        answered.ok()?.ok()?.clone()
    }
}

#[derive(Debug)]
struct Question {
    ends: NetworkEnds,
    answer: watch::Sender<Option<String>>,
}

/// Where questions about one sandbox's connections are put.
#[derive(Debug, Default)]
pub(crate) struct Whose(Mutex<Option<mpsc::Sender<Question>>>);

impl Whose {
    /// Asks whose a connection is.
    pub(crate) fn ask(&self, ends: NetworkEnds) -> Asked {
        let questions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(questions) = questions.as_ref() else { return Asked::default() };
        let (answer, asked) = watch::channel(None);
        match questions.try_send(Question { ends, answer }) {
            Ok(()) => Asked(Some(asked)),
            Err(_) => Asked::default(),
        }
    }

    /// Begins anew; what this returns answers, as long as it is run.
    pub(crate) fn open(
        &self,
        world: Arc<World>,
        sandbox: SandboxId,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (sender, mut questions) = mpsc::channel(MOST_WAITING);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        async move {
            while let Some(first) = questions.recv().await {
                let Some(mut guest) = reach(&world, &sandbox).await else {
                    // One of an earlier version, most likely. Whoever asks meanwhile is not answered.
                    drop(first);
                    tokio::time::sleep(IDLE).await;
                    while questions.try_recv().is_ok() {}
                    continue;
                };
                let mut next = Some(first);
                while let Some(Question { ends, answer }) = next {
                    // Unless nobody wants to know any more.
                    if !answer.is_closed() {
                        match timeout(PATIENCE, put(&mut guest, ends)).await {
                            Ok(Ok(holder)) => drop(answer.send(holder)),
                            // It is out of step, and of no use any more.
                            _ => break,
                        }
                    }
                    next = timeout(IDLE, questions.recv()).await.ok().flatten();
                }
            }
        }
    }
}

async fn reach(world: &World, sandbox: &SandboxId) -> Option<UnixStream> {
    let socket = timeout(PATIENCE, world.engine.whose(sandbox)).await.ok()?.ok()?;
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true).ok()?;
    UnixStream::from_std(socket).ok()
}

async fn put(guest: &mut UnixStream, ends: NetworkEnds) -> std::io::Result<Option<String>> {
    guest.write_all(&ends.to_bytes()).await?;
    let length = usize::from(guest.read_u8().await?);
    if length > LONGEST_HOLDER {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut words = vec![0; length];
    guest.read_exact(&mut words).await?;
    let words = String::from_utf8_lossy(&words);
    let harmless: String = words.chars().filter(|letter| !letter.is_control()).collect();
    Ok(Some(harmless).filter(|words| !words.is_empty()))
}

#[cfg(test)]
mod tests {
    use domain::NetworkTransport;

    use super::*;

    fn ends() -> NetworkEnds {
        NetworkEnds {
            transport: NetworkTransport::Tcp,
            from: "127.0.0.1:40000".parse().unwrap(),
            to: "198.18.1.1:443".parse().unwrap(),
        }
    }

    #[tokio::test]
    async fn what_a_guest_says_is_bounded_and_made_harmless() {
        let (mut here, mut guest) = UnixStream::pair().unwrap();
        guest.write_all(b"\x0ccu\x1b[2Jrl\n[7]").await.unwrap();
        assert_eq!(put(&mut here, ends()).await.unwrap().as_deref(), Some("cu[2Jrl[7]"));
        guest.write_all(&[0]).await.unwrap();
        assert_eq!(put(&mut here, ends()).await.unwrap(), None);
        guest.write_all(&[255; 256]).await.unwrap();
        assert!(put(&mut here, ends()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_a_moment() {
        let (sender, receiver) = watch::channel(None);
        let mut asked = Asked(Some(receiver));
        assert_eq!(asked.soon().await, None);
        sender.send(Some("curl[7]".to_owned())).unwrap();
        assert_eq!(asked.clone().soon().await.as_deref(), Some("curl[7]"));
        drop(sender);
        // An answer stays one when nobody is left to change it.
        assert_eq!(asked.soon().await.as_deref(), Some("curl[7]"));
        assert_eq!(Asked::default().soon().await, None);
        assert_eq!(Whose::default().ask(ends()).soon().await, None);
    }
}
