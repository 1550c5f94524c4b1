//! `soma template`: what sandboxes can be made from, beside this machine's own system.
//!
//! An image is sent as one tar stream: a file as it is, a folder as it is read ([`folder`]). It is
//! unpacked on the other side, by a process that could do no harm.

mod folder;

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use api_v1::templates::Template;
use bytes::Bytes;
use clap::{Args, Subcommand};
use domain::TemplateName;
use guest_proto::client::BoxError;
use tokio::sync::mpsc;

use crate::failure::{FAILED, Failure, refused};
use crate::output::building::watched;
use crate::output::progress::Progress;
use crate::output::{self, table};
use crate::{daemon, moment};

/// How many pieces of an image wait to be sent.
const WAITING: usize = 4;

/// What is typed after `soma template`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma template import --name debian rootfs.tar.gz
  soma template build code-interpreter
  soma template ls
  soma template rm debian

Exit codes: 0; 1 when something was refused; 2 when this line makes no sense; 125 when Soma
failed.")]
pub(crate) struct TemplateArguments {
    #[command(subcommand)]
    command: TemplateCommand,
}

#[derive(Debug, Subcommand)]
enum TemplateCommand {
    /// Make a template from an image: a folder, a tar file or an OCI layout.
    Import(ImportArguments),
    /// Build `code-interpreter` ahead: this machine's own system, and packages for data in Python.
    Build(BuildArguments),
    /// List the templates.
    Ls(LsArguments),
    /// Remove templates that no sandbox stands on.
    Rm(RmArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma template import --name debian rootfs.tar.gz
  soma template import --name debian ./rootfs
  soma template import ./my-layout
  docker save my-image | soma template import --name my-image -
  soma new --template debian

An image is a folder or tar file (plain, gzip or zstd) with the files of a system, an OCI layout as
a folder or tar file, or what `docker save` writes. It is unpacked where it can do no harm: device
files, set-user-id bits and links out of the image do not come along.

Exit codes: 0 when sandboxes can be made from it; 1 when the image was refused or cannot be read; 2
when this line makes no sense; 125 when Soma failed.")]
struct ImportArguments {
    /// What to call it [default: the file's or folder's name].
    #[arg(long, short, value_name = "NAME")]
    name: Option<TemplateName>,
    /// Take the place of a template that has this name; its sandboxes keep it.
    #[arg(long)]
    replace: bool,
    /// Write all about it as JSON.
    #[arg(long)]
    json: bool,
    /// A folder, a tar file, or `-` for standard input.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soma template build code-interpreter
  soma new --template code-interpreter

The first sandbox that is made from it would wait for the same, which takes a few minutes. The
packages are `code_packages` of the configuration. A build goes on when this command is ended.

Exit codes: 0 when sandboxes can be made from it; 1 when it is not one that is built; 2 when this
line makes no sense; 125 when it could not be built, or Soma failed.")]
struct BuildArguments {
    /// Write all about it as JSON.
    #[arg(long)]
    json: bool,
    /// The name of the template.
    #[arg(value_name = "NAME")]
    name: TemplateName,
}

#[derive(Debug, Args)]
struct LsArguments {
    /// Write one JSON document instead of a table.
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Write names only, one to a line.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Args)]
struct RmArguments {
    /// Names of templates.
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

/// Does it.
pub(crate) fn run(home: &Path, arguments: TemplateArguments) -> Result<u8, Failure> {
    match arguments.command {
        TemplateCommand::Import(arguments) => import(home, arguments),
        TemplateCommand::Build(arguments) => build(home, &arguments),
        TemplateCommand::Ls(arguments) => list(home, &arguments),
        TemplateCommand::Rm(arguments) => remove(home, &arguments),
    }
}

fn import(home: &Path, arguments: ImportArguments) -> Result<u8, Failure> {
    let ImportArguments { name, replace, json, image } = arguments;
    let name = name.map_or_else(|| name_of(&image), Ok)?;
    let source = open(&image)?;
    // Whoever called owns the files here, so this stays whoever called.
    let client = daemon::privileged_client(home)?;
    let template = daemon::block_on(async {
        if !replace {
            // Before all of it is sent in vain.
            let known = client.templates().await.map_err(refused)?;
            let is_there =
                |known: &Template| known.name == name.as_str() && !known.created_at.is_empty();
            if known.items.iter().any(is_there) {
                let message = format!("there is a template `{name}` already");
                return Err(Failure::new(FAILED, message)
                    .hint("choose another name, or take its place with --replace"));
            }
        }
        let progress = Progress::begin();
        let (sender, mut pieces) = mpsc::channel::<Result<Bytes, BoxError>>(WAITING);
        let thread = std::thread::Builder::new().name("image".to_owned());
        let path = image.clone();
        let reading = thread
            .spawn(move || send(source, &path, &sender))
            .map_err(|error| Failure::own(&error))?;
        let shown = progress.clone();
        let body = futures::stream::poll_fn(move |context| {
            let piece = pieces.poll_recv(context);
            if let std::task::Poll::Ready(Some(Ok(bytes))) = &piece {
                shown.passed(bytes.len());
            }
            piece
        });
        let imported = client.import_template(name.as_str(), replace, body).await;
        progress.end();
        match imported {
            Ok(template) => Ok(template),
            Err(error) => {
                // What could not be read here says more than that the rest did not arrive.
                let read = if reading.is_finished() { reading.join().ok() } else { None };
                Err(read.and_then(Result::err).unwrap_or_else(|| not_taken(error)))
            }
        }
    })?;
    if json {
        return output::json(&template);
    }
    for warning in &template.warnings {
        output::talk(&format!("soma: {}\n", output::one_line(warning)));
    }
    output::words(&format!("{}\n", template.name))
}

fn build(home: &Path, arguments: &BuildArguments) -> Result<u8, Failure> {
    let name = arguments.name.as_str();
    let template = daemon::ask(home, async |client| {
        let built = watched(&client, Some(name), client.build_template(name)).await;
        built.map_err(refused)
    })?;
    if arguments.json {
        return output::json(&template);
    }
    output::words(&format!("{}\n", template.name))
}

/// A refusal is about the image, not about what was typed.
fn not_taken(error: client::ClientError) -> Failure {
    let is_refusal = error.status().is_some_and(|status| status.is_client_error());
    let failure = refused(error);
    if is_refusal { Failure { code: FAILED, ..failure } } else { failure }
}

/// What an image is read from.
enum Source {
    Stream(OwnedFd),
    Folder(OwnedFd),
}

fn open(image: &Path) -> Result<Source, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::new(FAILED, format!("`{}` cannot be read: {error}", image.display()))
    };
    if image == Path::new("-") {
        let own = std::io::stdin().as_fd().try_clone_to_owned();
        return own.map(Source::Stream).map_err(|error| Failure::own(&error));
    }
    let file = File::open(image).map_err(|error| unreadable(&error))?;
    let kind = file.metadata().map_err(|error| unreadable(&error))?.file_type();
    Ok(if kind.is_dir() { Source::Folder(file.into()) } else { Source::Stream(file.into()) })
}

/// Sends an image in pieces, and says what could not be read of it.
fn send(
    source: Source,
    image: &Path,
    sender: &mpsc::Sender<Result<Bytes, BoxError>>,
) -> Result<(), Failure> {
    let mut pieces = folder::Pieces::new(sender);
    let sent = match source {
        Source::Stream(stream) => std::io::copy(&mut File::from(stream), &mut pieces).map(|_| ()),
        Source::Folder(root) => folder::write(&root, &mut pieces),
    };
    let sent = sent.and_then(|()| std::io::Write::flush(&mut pieces));
    match sent {
        // An answer that came early is no failure of ours.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            let message = format!("`{}` cannot be read: {error}", image.display());
            let _ = sender.blocking_send(Err(message.clone().into()));
            Err(Failure::new(FAILED, message))
        }
        Ok(()) => Ok(()),
    }
}

/// A name for a template from that of a file or folder.
fn name_of(image: &Path) -> Result<TemplateName, Failure> {
    let name = image.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    stem.parse().map_err(|_| {
        Failure::usage(format!("`{}` gives the template no name", image.display()))
            .hint("say what to call it with --name")
    })
}

fn list(home: &Path, arguments: &LsArguments) -> Result<u8, Failure> {
    let listed = daemon::ask(home, async |client| client.templates().await.map_err(refused))?;
    if arguments.json {
        return output::json(&listed.items);
    }
    if arguments.quiet {
        let names = listed.items.iter().flat_map(|item| [item.name.as_str(), "\n"]);
        return output::words(&names.collect::<String>());
    }
    let now = moment::now();
    let rows = listed.items.iter().map(|item| row(item, now)).collect();
    let headings = ["NAME", "STATE", "AGE", "SIZE", "FILES", "FROM", "SANDBOXES"];
    output::words(&table::table(&headings, rows, &[]))
}

fn row(item: &Template, now: i64) -> Vec<String> {
    let age = moment::seconds_of(&item.created_at).map(|made| moment::spell(now - made));
    vec![
        item.name.clone(),
        item.state.clone(),
        age.unwrap_or_default(),
        format!("{} MiB", item.counts.bytes >> 20),
        item.counts.files.to_string(),
        item.format.clone(),
        item.sandboxes.len().to_string(),
    ]
}

fn remove(home: &Path, arguments: &RmArguments) -> Result<u8, Failure> {
    daemon::ask(home, async |client| {
        let mut code = 0;
        for name in &arguments.names {
            match client.remove_template(name).await {
                Ok(()) => drop(output::words(&format!("{}\n", output::one_line(name)))?),
                // Whom nobody answers need not be asked again.
                Err(error) if error.status().is_none() => return Err(error.into()),
                Err(error) => {
                    output::failure(&refused(error));
                    code = FAILED;
                }
            }
        }
        Ok(code)
    })
}
