//! Why something was not done.

use domain::{InvalidLease, InvalidLimit, InvalidPolicy, NoSecret, State, TooLarge};
use guest_proto::GuestError;
use journal::JournalError;
use policy::Denied;
use provider::{BoxError, ProviderError};
use store::StoreError;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no such sandbox, or it is somebody else's.
    #[error("there is no sandbox `{which}`: `soma ps --all` lists those that are there")]
    NotFound {
        /// As it was asked for.
        which: String,
    },
    /// More than one sandbox begins like this.
    #[error("`{which}` could be any of {}: write more of it", candidates.join(", "))]
    Ambiguous {
        /// As it was asked for.
        which: String,
        /// Some of those that begin like it.
        candidates: Vec<String>,
    },
    /// A rule is against it.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Another sandbox of the same owner has the name.
    #[error("there is a sandbox `{name}` already: choose another name, or delete that one")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// There is a sandbox with this id.
    #[error("there is a sandbox `{id}` already")]
    Exists {
        /// Its id.
        id: String,
    },
    /// The same key came with another request.
    #[error(
        "the idempotency key `{key}` was used with another request: send another key, or the same \
         request"
    )]
    KeyReused {
        /// The key.
        key: String,
    },
    /// The sandbox is not in a state for it.
    #[error("sandbox `{which}` is {}{}", state.name(), because(state))]
    WrongState {
        /// Which.
        which: String,
        /// What it is doing instead.
        state: State,
    },
    /// The wish itself is wrong.
    #[error("{reason}")]
    Invalid {
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// There is no such template.
    #[error("{reason}")]
    NoTemplate {
        /// Which, and which there are.
        reason: String,
    },
    /// There is no such snapshot, or it is somebody else's.
    #[error("there is no snapshot `{which}`: `soma snapshot ls` lists those that are there")]
    NoSnapshot {
        /// As it was asked for.
        which: String,
    },
    /// Another snapshot of the same owner has the name.
    #[error("there is a snapshot `{name}` already: choose another name, or delete that one")]
    SnapshotExists {
        /// The name.
        name: String,
    },
    /// The template that was asked for could not be built.
    #[error(
        "the template `{}` could not be built, and the next try starts anew: {reason}",
        crate::build::NAME
    )]
    NotBuilt {
        /// Why, with the last of what was said.
        reason: String,
    },
    /// Too many follow what sandboxes try to reach.
    #[error("{most} follow what sandboxes try to reach, and that is the most: end one of them")]
    TooManyFollow {
        /// How many may.
        most: usize,
    },
    /// The provider does not do it.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// The guest does not do it.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The store does not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What happened cannot be looked up.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The daemon is about to end.
    #[error("the daemon is about to end: ask again when it is back")]
    Closing,
    /// Something else broke.
    #[error("could not {step}")]
    Broken {
        /// What was tried.
        step: String,
        /// Why it did not work.
        #[source]
        source: BoxError,
    },
}

fn because(state: &State) -> String {
    let reason = state.reason().map(|reason| format!(": {reason}")).unwrap_or_default();
    let hint = match state {
        State::Paused(_) => "; `soma resume` lets it go on",
        ended if ended.as_ended().is_some() => "; `soma start` runs it again",
        _ => "",
    };
    format!("{reason}{hint}")
}

/// Whose affair an error is, so that dialects can choose their codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// What was named is not there.
    NotFound,
    /// What was asked for makes no sense.
    Invalid,
    /// It is not allowed: not to this caller, or not by the sandbox's own file permissions.
    Forbidden,
    /// It does not fit the present state of things.
    Conflict,
    /// There is no room for it now.
    Full,
    /// The sandbox's disk has no room for it.
    NoSpace,
    /// It took too long.
    TimedOut,
    /// What is needed for it is away, and may come back.
    Unavailable,
    /// This host or this version cannot do it.
    Unsupported,
    /// Something of ours broke.
    Internal,
}

impl ControlError {
    /// Whose affair it is.
    pub fn fault(&self) -> Fault {
        match self {
            Self::NotFound { .. } | Self::NoTemplate { .. } | Self::NoSnapshot { .. } => {
                Fault::NotFound
            }
            Self::Ambiguous { .. } | Self::Invalid { .. } => Fault::Invalid,
            Self::Denied(denied) => match denied.rule {
                policy::Rule::Sandboxes => Fault::Conflict,
                policy::Rule::Size => Fault::Invalid,
                _ => Fault::Forbidden,
            },
            Self::NameTaken { .. }
            | Self::SnapshotExists { .. }
            | Self::Exists { .. }
            | Self::KeyReused { .. }
            | Self::WrongState { .. }
            | Self::Store(StoreError::NameTaken { .. }) => Fault::Conflict,
            Self::Provider(error) => match error {
                ProviderError::NotFound { .. }
                | ProviderError::NoTemplate { .. }
                | ProviderError::NoSnapshot { .. } => Fault::NotFound,
                ProviderError::NotRunning { .. }
                | ProviderError::Paused { .. }
                | ProviderError::Conflict { .. }
                | ProviderError::TemplateExists { .. }
                | ProviderError::TemplateInUse { .. }
                | ProviderError::SnapshotInUse { .. } => Fault::Conflict,
                ProviderError::NoCapacity { .. } => Fault::Full,
                ProviderError::Invalid { .. } => Fault::Invalid,
                ProviderError::Unsupported { .. } | ProviderError::Unenforced { .. } => {
                    Fault::Unsupported
                }
                _ => Fault::Internal,
            },
            Self::Guest(error) => guest_fault(error),
            Self::TooManyFollow { .. } | Self::Journal(JournalError::TooMany { .. }) => Fault::Full,
            Self::NotBuilt { .. }
            | Self::Closing
            | Self::Journal(JournalError::Closed)
            | Self::Store(StoreError::Unreachable { .. } | StoreError::Lost { .. }) => {
                Fault::Unavailable
            }
            Self::Store(_) | Self::Journal(_) | Self::Broken { .. } => Fault::Internal,
        }
    }
}

fn guest_fault(error: &GuestError) -> Fault {
    match error {
        GuestError::NotFound { .. } => Fault::NotFound,
        GuestError::AlreadyExists { .. } | GuestError::NotEmpty { .. } => Fault::Conflict,
        GuestError::InvalidArgument { .. }
        | GuestError::UnknownUser { .. }
        | GuestError::NotADirectory { .. }
        | GuestError::IsADirectory { .. }
        | GuestError::FailedPrecondition { .. } => Fault::Invalid,
        GuestError::PermissionDenied { .. } => Fault::Forbidden,
        GuestError::DeadlineExceeded { .. } => Fault::TimedOut,
        GuestError::NoSpace { .. } => Fault::NoSpace,
        GuestError::Unavailable { .. } => Fault::Unavailable,
        GuestError::TooOld { .. } => Fault::Unsupported,
        // The sandbox is at a limit of its own, and that may pass.
        GuestError::Refused { code: "resource_exhausted", .. } => Fault::Full,
        _ => Fault::Internal,
    }
}

impl From<InvalidLimit> for ControlError {
    fn from(error: InvalidLimit) -> Self {
        Self::Invalid { reason: error.to_string() }
    }
}

impl From<InvalidPolicy> for ControlError {
    fn from(error: InvalidPolicy) -> Self {
        Self::Invalid { reason: error.to_string() }
    }
}

impl From<NoSecret> for ControlError {
    fn from(error: NoSecret) -> Self {
        Self::Invalid { reason: error.to_string() }
    }
}

impl From<TooLarge> for ControlError {
    fn from(error: TooLarge) -> Self {
        Self::Invalid { reason: error.to_string() }
    }
}

impl From<InvalidLease> for ControlError {
    fn from(error: InvalidLease) -> Self {
        match error {
            InvalidLease::TooLarge { .. } => {
                Self::Invalid { reason: format!("the sandbox's record is too large: {error}") }
            }
            other => Self::Broken {
                step: "write the sandbox's record".to_owned(),
                source: Box::new(other),
            },
        }
    }
}
