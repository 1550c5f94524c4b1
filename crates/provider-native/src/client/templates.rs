//! Templates: an archive goes in, what became of it comes out.
//!
//! The unpacker reads the archive from a pipe of ours and writes what became of it into another.
//! The engine has both for a moment and reads neither. A pipe holds little, so whoever sends the
//! archive is held to the pace of the unpacker.

use std::io;
use std::os::fd::OwnedFd;

use domain::{LARGEST_REPORT, TemplateName};
use provider::{Archive, ProviderError, Staged, Template, TemplateKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use super::{NativeProvider, backend, checked, explain, odd};
use crate::launch::import::Outcome;
use crate::verbs::{Answer, Listed, Verb};

/// As much is read at once as a pipe holds.
const PIECE: usize = 64 << 10;

impl NativeProvider {
    pub(super) async fn stage(&self, archive: Archive) -> Result<Staged, ProviderError> {
        let step = "send the image";
        let pipes = || -> io::Result<_> {
            let ((theirs, ours), (report, written)) = (io::pipe()?, io::pipe()?);
            let ours = pipe::Sender::from_owned_fd(OwnedFd::from(ours))?;
            let report = pipe::Receiver::from_owned_fd(OwnedFd::from(report))?;
            Ok((ours, report, vec![OwnedFd::from(theirs), OwnedFd::from(written)]))
        };
        let (ours, report, theirs) = pipes().map_err(|error| backend(step, error))?;
        // Not asked again: what was read of the archive is gone.
        let connection = self.line.connection().await?;
        let asked = async {
            let answered = connection.ask_with(Verb::Import, theirs).await;
            answered.map_err(|error| backend("ask the engine", error))
        };
        let ((), text, answered) =
            tokio::try_join!(pump(archive, ours), read_report(report), asked)?;
        let outcome = serde_json::from_slice::<Outcome>(&text);
        match (answered.0, outcome) {
            (Ok(Answer::Staged(slot)), Ok(Outcome::Unpacked(report))) => {
                Ok(Staged { slot, report: *report })
            }
            (Ok(Answer::Staged(slot)), _) => {
                let _ = self.ask(Verb::Discard { slot }, None).await;
                Err(backend("unpack the image", io::Error::other("its report cannot be read")))
            }
            (_, Ok(Outcome::Refused(reason))) => Err(ProviderError::Invalid { reason }),
            // Names nothing of the host's: whoever sent the image may know.
            (_, Ok(Outcome::Failed(reason))) => {
                Err(backend(&format!("unpack the image: {reason}"), io::Error::other(reason)))
            }
            (Err(crate::verbs::Refusal::Invalid(_)), _) => {
                let step = "unpack the image: it took too long, or too much memory";
                Err(backend(step, io::Error::other("what unpacked it was killed")))
            }
            (Err(refusal), _) => Err(explain(refusal, None)),
            (Ok(answer), _) => Err(odd(&answer)),
        }
    }

    pub(super) async fn keep(
        &self,
        staged: Staged,
        name: &TemplateName,
        (record, kind): (&str, TemplateKind),
        replace: bool,
    ) -> Result<(), ProviderError> {
        let (slot, record) = (staged.slot, checked(record)?);
        let verb = Verb::Keep { slot: slot.clone(), name: name.clone(), record, kind, replace };
        let kept = self.ask(verb, None).await;
        if kept.is_err() {
            let _ = self.ask(Verb::Discard { slot }, None).await;
        }
        kept.map(|_| ())
    }

    pub(super) async fn all_templates(&self) -> Result<Vec<Template>, ProviderError> {
        let all = match self.ask(Verb::Templates, None).await?.0 {
            Answer::Templates(all) => all,
            other => return Err(odd(&other)),
        };
        let mut templates = Vec::with_capacity(all.len());
        for Listed { name, sandboxes, is_stale } in all {
            match self.ask(Verb::ReadTemplate { name: name.clone() }, None).await {
                Ok((Answer::Record(record), _)) => {
                    templates.push(Template { name, record: record.0, sandboxes, is_stale });
                }
                Ok((other, _)) => return Err(odd(&other)),
                // Removed meanwhile.
                Err(ProviderError::NoTemplate { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(templates)
    }
}

/// So much of an archive is taken that nobody unpacks any more.
const MOST_WASTE: u64 = 4 << 30;

/// Passes the archive on. Whoever unpacks it may have had enough of it: that is no failure here,
/// but one of whoever sends it is. What is left then is read all the same, because many clients
/// hear no answer before they have sent everything.
async fn pump(mut archive: Archive, pipe: pipe::Sender) -> Result<(), ProviderError> {
    let (mut pipe, mut waste) = (Some(pipe), 0);
    let mut piece = vec![0; PIECE];
    while waste < MOST_WASTE {
        let read = archive.read(&mut piece).await;
        let read = read.map_err(|error| ProviderError::Invalid {
            reason: format!("the image did not arrive whole: {error}"),
        })?;
        if read == 0 {
            break;
        }
        let taken = match &mut pipe {
            Some(pipe) => pipe.write_all(&piece[..read]).await.is_ok(),
            None => false,
        };
        if !taken {
            pipe = None;
            waste += read as u64;
        }
    }
    Ok(())
}

async fn read_report(pipe: pipe::Receiver) -> Result<Vec<u8>, ProviderError> {
    let mut text = Vec::new();
    // Whoever unpacks is a stranger by now: no more than fits is read.
    let read = pipe.take(LARGEST_REPORT as u64).read_to_end(&mut text).await;
    read.map_err(|error| backend("read what became of the image", error))?;
    Ok(text)
}

/// The report of an image is within what a record can hold.
const _: () = assert!(LARGEST_REPORT < provider::LARGEST_RECORD);
