//! Cells asked for, run and shown, until somebody leaves.

use std::time::Duration;

use client::{ClientError, Executing};
use guest_proto::code::EventKind;

use super::history::History;
use super::image::Pictures;
use super::prompt::{Prompt, Question, Reply, Tab, Typed};
use super::show::Show;
use super::whole;
use crate::cells::{Cell, Workplace};
use crate::failure::{Failure, refused};
use crate::output::{self, Broken, Console, one_line};
use crate::session::{Interrupt, Interrupts};

/// How long the daemon may take to pass an interrupt on before it is said that it does not.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often Ctrl-C asks before it no longer does.
const ASKED: u32 = 2;

/// Why there is no next cell.
enum Over {
    /// Somebody left, with this exit code.
    Left(u8),
    /// Nothing can be asked any more.
    Failed(Failure),
}

impl From<ClientError> for Over {
    fn from(error: ClientError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Broken> for Over {
    fn from(broken: Broken) -> Self {
        Self::Failed(broken.into())
    }
}

/// Runs cells until somebody leaves, and returns the exit code.
pub(super) async fn hold(
    workplace: &Workplace,
    interrupts: &mut Interrupts,
    history: History,
) -> Result<u8, Failure> {
    let language = workplace.language();
    output::talk(&format!("{language} in sandbox {}; leave with Ctrl-D\n", workplace.sandbox()));
    let prompt = Prompt::start(language, history.of(language));
    let pictures = if rustix::termios::isatty(rustix::stdio::stdout()) {
        Pictures::of(|name| std::env::var(name).ok())
    } else {
        Pictures::No
    };
    let mut conversation = Conversation {
        workplace,
        interrupts,
        history,
        prompt: prompt.map_err(|error| Failure::own(&error))?,
        console: whole::console()?,
        show: Show::new(pictures),
    };
    match conversation.go_on().await {
        Over::Left(code) => Ok(code),
        Over::Failed(failure) => Err(failure),
    }
}

struct Conversation<'a> {
    workplace: &'a Workplace,
    interrupts: &'a mut Interrupts,
    history: History,
    prompt: Prompt,
    console: Console,
    show: Show,
}

impl Conversation<'_> {
    async fn go_on(&mut self) -> Over {
        loop {
            match self.turn().await {
                Ok(()) => {}
                Err(over) => {
                    self.console.flush().await;
                    return over;
                }
            }
        }
    }

    async fn turn(&mut self) -> Result<(), Over> {
        if let Some((stream, bytes)) = self.show.end_line() {
            self.console.write(stream, bytes).await?;
        }
        self.console.flush().await;
        let code = match self.ask(Question::Cell).await? {
            Reply::Text(code) => code,
            Reply::Interrupted => return Ok(()),
            Reply::End => return Err(Over::Left(0)),
        };
        if code.trim().is_empty() {
            return Ok(());
        }
        self.history.add(self.workplace.language(), &code);
        let limits = Some(whole::TOLD);
        let cell = Cell { code, limits, answers: true, timeout: None };
        match self.workplace.execute(cell).await {
            Ok(executing) => self.attend(executing).await,
            Err(error) if is_passing(&error) => {
                output::failure(&refused(error));
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Asks on the terminal, and completes meanwhile.
    async fn ask(&mut self, question: Question) -> Result<Reply, Over> {
        self.prompt.ask(question);
        loop {
            tokio::select! {
                typed = self.prompt.next() => match typed {
                    Typed::Reply(reply) => return Ok(reply),
                    Typed::Tab(tab) => complete(self.workplace, tab).await,
                },
                interrupt = self.interrupts.next() => match interrupt {
                    // The editor takes keys itself, so somebody sent it; a prompt has no cell.
                    Interrupt::CtrlC => {}
                    interrupt => return Err(Over::Left(interrupt.code())),
                },
            }
        }
    }

    /// Follows a cell to its end.
    async fn attend(&mut self, mut executing: Executing) -> Result<(), Over> {
        let mut asked = 0;
        loop {
            let event = tokio::select! {
                event = executing.next() => event?,
                interrupt = self.interrupts.next() => {
                    stop(self.workplace, &executing, interrupt, &mut asked).await?;
                    continue;
                }
            };
            let Some(event) = event else { return Ok(()) };
            if let EventKind::Input { prompt, password } = &event.kind {
                self.answer(&executing, prompt, *password).await?;
                continue;
            }
            for (stream, bytes) in self.show.event(event.kind) {
                let writing = self.console.write(stream, bytes);
                tokio::pin!(writing);
                // A terminal that takes nothing must not take Ctrl-C either.
                loop {
                    tokio::select! {
                        written = &mut writing => break written?,
                        interrupt = self.interrupts.next() => {
                            stop(self.workplace, &executing, interrupt, &mut asked).await?;
                        }
                    }
                }
            }
        }
    }

    /// Asks what a cell asks.
    async fn answer(
        &mut self,
        executing: &Executing,
        prompt: &str,
        password: bool,
    ) -> Result<(), Over> {
        if let Some((stream, bytes)) = self.show.end_line() {
            self.console.write(stream, bytes).await?;
        }
        self.console.flush().await;
        // The last line stands before the answer.
        let (above, last) = prompt.rsplit_once('\n').unwrap_or(("", prompt));
        for line in above.lines() {
            output::talk(&format!("{}\n", one_line(line)));
        }
        let last: String = one_line(last).chars().take(200).collect();
        let question = if password { Question::Secret(last) } else { Question::Line(last) };
        let id = executing.id().unwrap_or_default();
        let told = match self.ask(question).await? {
            Reply::Text(text) => self.workplace.answer(id, &text).await,
            Reply::Interrupted | Reply::End => self.workplace.interrupt().await,
        };
        match told {
            Ok(()) => Ok(()),
            // The cell may be over meanwhile.
            Err(error) if error.status().is_some() => {
                output::failure(&refused(error));
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// What Ctrl-C means while a cell runs: it is asked to stop, and in the end made to.
async fn stop(
    workplace: &Workplace,
    executing: &Executing,
    interrupt: Interrupt,
    asked: &mut u32,
) -> Result<(), Over> {
    if interrupt != Interrupt::CtrlC {
        return Err(Over::Left(interrupt.code()));
    }
    *asked += 1;
    let done = async {
        match executing.id() {
            Some(id) if *asked > ASKED => workplace.cancel(id).await,
            _ => workplace.interrupt().await,
        }
    };
    if *asked == ASKED {
        output::talk("\nsoma: one more Ctrl-C ends the kernel, and variables are lost\n");
    }
    match tokio::time::timeout(PATIENCE, done).await {
        Ok(Ok(())) => Ok(()),
        // It is over meanwhile.
        Ok(Err(error))
            if is_passing(&error) || error.status() == Some(http::StatusCode::NOT_FOUND) =>
        {
            Ok(())
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_) => {
            output::talk("soma: the sandbox does not answer\n");
            Ok(())
        }
    }
}

async fn complete(workplace: &Workplace, tab: Tab) {
    let found = workplace.complete(&tab.asked).await.unwrap_or_default();
    // Who typed on does not wait any more.
    let _ = tab.answer.try_send(found);
}

/// Whether a refusal is about one cell, and the next may run.
fn is_passing(error: &ClientError) -> bool {
    error.status().is_some_and(|status| {
        status.is_client_error()
            && ![
                http::StatusCode::NOT_FOUND,
                http::StatusCode::GONE,
                http::StatusCode::UNAUTHORIZED,
            ]
            .contains(&status)
    })
}
