//! Kernels: interpreters that remember, and what is run in them.
//!
//! A *context* is the state that a user sees; its *kernel* is a process that has that state, made
//! when it is first needed and again when it died. Each context has a task ([`runner`]) that runs
//! one cell after the other ([`cell`]). An *execution* belongs to the sandbox and not to the
//! connection that asked for it: its events are kept in a [`log`] for whoever reads them.
//!
//! What is between a kernel and the guest is told in `kernels/README.md`; [`kernel`] and [`frame`]
//! are this side of it. What clients see is in [`http`], in two dialects.

mod background;
mod bundle;
mod cell;
mod context;
mod cut;
mod execution;
mod frame;
mod fresh;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
pub(crate) mod http;
mod kernel;
mod log;
mod nursery;
mod packages;
mod pipes;
mod programs;
mod room;
mod runner;
mod spool;
mod start;
mod text;
mod voice;
mod words;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use guest_proto::code::{ContextState, Language};

use self::context::Context;
use self::execution::Executions;
use self::nursery::Nurseries;
use self::runner::Runner;
use self::spool::Spools;
use crate::state::State;
use crate::{paths, users};

pub(crate) use spool::PLACE;

/// As many contexts as there are at most.
const MOST_CONTEXTS: usize = 64;

/// Everything about kernels.
#[derive(Debug)]
pub(crate) struct Code {
    contexts: Mutex<Contexts>,
    executions: Executions,
    nurseries: Nurseries,
    spools: Arc<Spools>,
}

#[derive(Debug)]
struct Contexts {
    /// In the order in which they were made.
    all: Vec<Arc<Context>>,
    /// The names of those that are used where none is named, by the language of their kernel.
    usual: BTreeMap<Language, String>,
}

/// Why there is no context.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContextError {
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// There are too many.
    #[error("there are {MOST_CONTEXTS} contexts already; delete one that is not needed")]
    TooMany,
}

/// What a new context shall be.
#[derive(Debug)]
struct Wanted {
    language: Language,
    cwd: Option<String>,
    environment: BTreeMap<String, String>,
    /// It came with an execution.
    passing: bool,
}

impl Code {
    /// No contexts yet. `place` is where output goes that is over its limit.
    pub(crate) fn new(place: PathBuf) -> Self {
        let usual = [Language::Python, Language::Javascript].map(|language| (language, new_id()));
        let contexts = Contexts { all: Vec::new(), usual: BTreeMap::from(usual) };
        Self {
            contexts: Mutex::new(contexts),
            executions: Executions::default(),
            nurseries: Nurseries::default(),
            spools: Arc::new(Spools::new(place)),
        }
    }

    /// Makes a context. Its kernel is started when it is first used.
    fn create(state: &Arc<State>, wanted: Wanted) -> Result<Arc<Context>, ContextError> {
        Self::create_named(state, wanted, new_id())
    }

    fn create_named(
        state: &Arc<State>,
        wanted: Wanted,
        id: String,
    ) -> Result<Arc<Context>, ContextError> {
        let Wanted { language, cwd, environment, passing } = wanted;
        let cwd = folder(state, cwd.as_deref())?;
        check_variables(&environment)?;
        let mut contexts = state.code.lock();
        if contexts.all.len() >= MOST_CONTEXTS {
            contexts.make_room()?;
        }
        let (context, ends) = Context::new(id, language.kernel(), cwd, environment, passing);
        contexts.all.push(Arc::clone(&context));
        drop(contexts);
        let runner = Runner::new(Arc::clone(state), Arc::clone(&context), ends);
        crate::spawn(runner.run());
        Ok(context)
    }

    /// A context by its name.
    fn find(state: &Arc<State>, id: &str) -> Result<Option<Arc<Context>>, ContextError> {
        let (found, usual) = {
            let contexts = state.code.lock();
            let found = contexts.all.iter().find(|context| context.id == id).cloned();
            let usual = contexts.usual.iter().find(|(_, name)| *name == id);
            (found, usual.map(|(language, _)| *language))
        };
        match (found, usual) {
            (Some(context), _) => Ok(Some(context)),
            (None, Some(language)) => Self::usual(state, language).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// The context that is used for a language where none is named.
    fn usual(state: &Arc<State>, language: Language) -> Result<Arc<Context>, ContextError> {
        let language = language.kernel();
        let id = {
            let mut contexts = state.code.lock();
            let id = contexts.usual.entry(language).or_insert_with(new_id).clone();
            if let Some(context) = contexts.all.iter().find(|context| context.id == id) {
                return Ok(Arc::clone(context));
            }
            id
        };
        let environment = BTreeMap::new();
        Self::create_named(state, Wanted { language, cwd: None, environment, passing: false }, id)
    }

    /// Deletes a context and kills its processes; false where there is none of that name.
    fn delete(&self, id: &str) -> bool {
        let mut contexts = self.lock();
        let Some(place) = contexts.all.iter().position(|context| context.id == id) else {
            let unused = contexts.usual.iter().find(|(_, name)| *name == id);
            let unused = unused.map(|(language, _)| *language);
            return unused.is_some_and(|language| contexts.usual.remove(&language).is_some());
        };
        let context = contexts.all.remove(place);
        contexts.usual.retain(|_, name| *name != id);
        context.orders.send_modify(|orders| orders.deleted = true);
        true
    }

    /// All contexts, in the order in which they were made.
    fn all(&self) -> Vec<Arc<Context>> {
        self.lock().all.clone()
    }

    /// The names and languages of those that will be made when they are first used.
    fn unused(&self) -> Vec<(String, Language)> {
        let contexts = self.lock();
        let is_made = |id: &String| contexts.all.iter().any(|context| context.id == *id);
        let unused = contexts.usual.iter().filter(|(_, id)| !is_made(id));
        unused.map(|(language, id)| (id.clone(), *language)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Contexts> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contexts {
    /// Lets the context go that came with an execution and was used least of late.
    fn make_room(&mut self) -> Result<(), ContextError> {
        let idle = self.all.iter().filter(|context| context.passing && context.is_idle());
        let oldest = idle.min_by_key(|context| context.standing.borrow().used);
        let oldest = Arc::clone(oldest.ok_or(ContextError::TooMany)?);
        self.all.retain(|context| !Arc::ptr_eq(context, &oldest));
        oldest.orders.send_modify(|orders| orders.deleted = true);
        Ok(())
    }
}

/// Whether a context has done something, or is doing it.
fn was_used(context: &Context) -> bool {
    let standing = context.standing.borrow();
    standing.state != ContextState::Starting || standing.execution_count > 0
}

/// Where a context begins: a folder that is there.
fn folder(state: &State, asked: Option<&str>) -> Result<String, ContextError> {
    let defaults = state.defaults().clone();
    let user = users::require(&defaults.user).map_err(ContextError::Invalid)?;
    let folder = paths::expand(asked.unwrap_or_default(), &user, None);
    let folder = folder.map_err(ContextError::Invalid)?;
    let shown = folder.display();
    match std::fs::metadata(&folder) {
        Ok(metadata) if metadata.is_dir() => Ok(shown.to_string()),
        // A home that is not there is not what anybody asked for.
        Err(_) if asked.unwrap_or_default().is_empty() => Ok("/".to_owned()),
        Ok(_) => Err(ContextError::Invalid(format!("cwd '{shown}' is not a directory"))),
        Err(error) => {
            let reason = match error.kind() {
                std::io::ErrorKind::NotFound => "does not exist".to_owned(),
                _ => format!("cannot be entered: {error}"),
            };
            Err(ContextError::Invalid(format!("cwd '{shown}' {reason}")))
        }
    }
}

/// The longest environment, in bytes: about as much as a process can be given.
const MOST_VARIABLES: usize = 1 << 20;

/// Refuses what cannot be an environment variable.
fn check_variables(variables: &BTreeMap<String, String>) -> Result<(), ContextError> {
    let length: usize = variables.iter().map(|(name, value)| name.len() + value.len()).sum();
    if length > MOST_VARIABLES {
        let problem = format!("the variables are longer than {MOST_VARIABLES} bytes together");
        return Err(ContextError::Invalid(problem));
    }
    for (name, value) in variables {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let name: String = name.chars().take(40).collect();
            let problem = format!("`{name}` cannot be an environment variable");
            return Err(ContextError::Invalid(problem));
        }
    }
    Ok(())
}

/// A name that nobody guesses.
fn new_id() -> String {
    let mut bytes = [0; 12];
    // The kernel always has some, once it has started.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    let mut id = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a text does not fail.
        let _ = write!(id, "{byte:02x}");
    }
    id
}
