//! The line to the engine: one connection at a time, which is replaced when it broke.
//!
//! Engines come and go: one is killed, one has nothing to do, one makes place for a newer. Every
//! verb may be asked twice, so a question that got no answer because its engine went away is
//! asked again of the next one.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use provider::ProviderError;
use tokio::sync::Mutex;

use super::backend;
use super::connection::{Answered, Connection};
use crate::verbs::Verb;

/// Gets a fresh connection to an engine. May take its time.
type Connect = dyn Fn() -> Result<OwnedFd, ProviderError> + Send + Sync;

/// An engine that lived so long with a question did not die of it, so the question may be asked
/// once more than others are.
const LONG: Duration = Duration::from_secs(5);

pub(super) struct Line {
    connect: Arc<Connect>,
    current: Mutex<Option<Arc<Connection>>>,
}

impl Line {
    /// A line that gets its connections by `connect`, the first one with the first question.
    pub(super) fn new(
        connect: impl Fn() -> Result<OwnedFd, ProviderError> + Send + Sync + 'static,
    ) -> Self {
        Self { connect: Arc::new(connect), current: Mutex::new(None) }
    }

    /// The same line, with a connection that is there already.
    pub(super) fn starting_with(self, socket: OwnedFd) -> Result<Self, ProviderError> {
        Ok(Self { current: Mutex::new(Some(speak(socket)?)), ..self })
    }

    /// Asks, and asks again when the engine went away over it.
    pub(super) async fn ask(&self, verb: Verb) -> Result<Answered, ProviderError> {
        let mut again = true;
        loop {
            let connection = self.connection().await?;
            let begun = Instant::now();
            let error = match connection.ask(verb.clone()).await {
                Ok(answered) => return Ok(answered),
                Err(error) => error,
            };
            let broke = error.kind() == io::ErrorKind::ConnectionReset;
            if broke {
                self.replace(&connection).await;
            }
            if !broke || !(again || begun.elapsed() > LONG) {
                return Err(backend("ask the engine", error));
            }
            again = false;
        }
    }

    /// The connection as it is, working or not; none when there never was one or it broke.
    pub(super) async fn current(&self) -> Option<Arc<Connection>> {
        self.current.lock().await.clone()
    }

    /// A connection that is not known to be broken.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, ProviderError> {
        // Held while connecting: one new connection is enough for all who wait for it.
        let mut current = self.current.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        *current = None;
        let connect = Arc::clone(&self.connect);
        let socket = tokio::task::spawn_blocking(move || connect())
            .await
            .map_err(|error| backend("connect to the engine", io::Error::other(error)))??;
        let connection = speak(socket)?;
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Forgets a connection that broke, unless another one has taken its place.
    async fn replace(&self, broken: &Arc<Connection>) {
        let mut current = self.current.lock().await;
        current.take_if(|connection| Arc::ptr_eq(connection, broken));
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Line").field("current", &self.current).finish_non_exhaustive()
    }
}

fn speak(socket: OwnedFd) -> Result<Arc<Connection>, ProviderError> {
    let connection =
        Connection::new(socket).map_err(|error| backend("talk to the engine", error))?;
    Ok(Arc::new(connection))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Locked;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::JoinHandle;

    use rustix::net::{RecvFlags, SendFlags};

    use super::*;
    use crate::verbs::{Answer, Reply, Request};

    type Engines = Arc<Locked<Vec<JoinHandle<()>>>>;

    /// Engines that leave without a word after so many questions each, in turn.
    fn line_of(answers: Vec<usize>) -> (Line, Arc<AtomicUsize>, Engines) {
        let (started, engines) = (Arc::new(AtomicUsize::new(0)), Engines::default());
        let (count, threads) = (Arc::clone(&started), Arc::clone(&engines));
        let line = Line::new(move || {
            let number = count.fetch_add(1, Ordering::SeqCst);
            let Some(answers) = answers.get(number).copied() else {
                return Err(backend("connect", io::Error::other("there are no more engines")));
            };
            let (near, far) = link::pair().unwrap();
            let engine = std::thread::spawn(move || answer(&far, answers));
            threads.lock().unwrap().push(engine);
            Ok(near)
        });
        (line, started, engines)
    }

    fn answer(socket: &OwnedFd, answers: usize) {
        for turn in 0.. {
            match link::receive::<Request>(socket, RecvFlags::empty()) {
                Ok(Some((Request { number, .. }, _))) if turn < answers => {
                    let reply = Reply { number, answer: Ok(Answer::Done) };
                    link::send(socket, &reply, &[], SendFlags::empty()).unwrap();
                }
                _ => return,
            }
        }
    }

    fn finish(line: Line, engines: &Engines) {
        drop(line);
        for engine in std::mem::take(&mut *engines.lock().unwrap()) {
            engine.join().unwrap();
        }
    }

    #[tokio::test]
    async fn nothing_is_connected_before_the_first_question() {
        let (line, started, engines) = line_of(vec![9]);
        assert_eq!(started.load(Ordering::SeqCst), 0);
        line.ask(Verb::List).await.unwrap().0.unwrap();
        line.ask(Verb::List).await.unwrap().0.unwrap();
        assert_eq!(started.load(Ordering::SeqCst), 1);
        finish(line, &engines);
    }

    #[tokio::test]
    async fn a_question_without_an_answer_is_asked_of_the_next_engine() {
        let (line, started, engines) = line_of(vec![1, 0, 9]);
        line.ask(Verb::List).await.unwrap().0.unwrap();
        // The first one leaves over it, and the second too: once is asked again, not twice.
        let error = line.ask(Verb::List).await.unwrap_err();
        assert!(matches!(error, ProviderError::Backend { .. }), "{error:?}");
        line.ask(Verb::List).await.unwrap().0.unwrap();
        assert_eq!(started.load(Ordering::SeqCst), 3);
        finish(line, &engines);
    }

    #[tokio::test]
    async fn many_who_lost_their_engine_share_the_next_one() {
        let (line, started, engines) = line_of(vec![0, 99]);
        let questions = (0..20).map(|_| line.ask(Verb::List));
        for answered in futures::future::join_all(questions).await {
            answered.unwrap().0.unwrap();
        }
        assert_eq!(started.load(Ordering::SeqCst), 2);
        finish(line, &engines);
    }

    #[tokio::test]
    async fn no_engine_is_an_error_and_no_reason_to_give_up() {
        let (line, _, engines) = line_of(vec![]);
        let error = line.ask(Verb::List).await.unwrap_err();
        assert_eq!(error.to_string(), "could not connect");
        line.ask(Verb::List).await.unwrap_err();
        finish(line, &engines);
    }

    #[tokio::test]
    async fn a_watch_that_was_given_up_is_told_to_the_engine() {
        let (near, far) = link::pair().unwrap();
        let line = Line::new(|| unreachable!()).starting_with(near).unwrap();
        let id = crate::random_id().unwrap();
        let asking = line.ask(Verb::Ended { id });
        tokio::time::timeout(Duration::from_millis(20), asking).await.unwrap_err();
        let next = || link::receive::<Request>(&far, RecvFlags::empty()).unwrap().unwrap().0;
        let (asked, forgotten) = (next(), next());
        assert!(matches!(asked.verb, Verb::Ended { .. }));
        assert!(matches!(forgotten.verb, Verb::Forget));
        assert_eq!(asked.number, forgotten.number);
    }
}
