//! The durable record of a sandbox: what was asked for, whose it is, what it was last seen doing.
//!
//! It lies as JSON in the sandbox's own folder, which is the truth; a database keeps a copy to
//! search in. Users see it as "the sandbox".

use serde::{Deserialize, Serialize};

use crate::{Labels, Layer, Limit, SandboxId, SandboxName, SandboxSpec, State, Timestamp};

/// Raised with every change of what follows; all earlier ones stay readable.
const VERSION: u32 = 5;

/// The most that a record may have: it travels in one message to the engine.
const LARGEST: usize = 64 << 10;

/// Whose a sandbox is: an organisation whose keys all see it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(pub String);

impl Default for Owner {
    /// The owner of everything on a machine where nobody made another.
    fn default() -> Self {
        Self("default".to_owned())
    }
}

/// What becomes of a sandbox when its time is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// It ends, and its files stay.
    #[default]
    Stop,
    /// It ends and is removed.
    Delete,
    /// It is paused. Version 4 had no such.
    Pause,
}

/// What becomes of a sandbox when the daemon is told to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExit {
    /// It runs on, and the next daemon finds it again.
    #[default]
    Keep,
    /// It ends, and its files stay.
    Stop,
    /// It is paused, and put on the disk at once. Version 4 had no such.
    Pause,
    /// It ends and is removed.
    Destroy,
}

/// How whoever asked for a sandbox knows it again when the answer was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The key that they sent along.
    pub key: String,
    /// What they asked for, as a fingerprint: the same key with another wish is a mistake.
    pub wish: String,
}

/// The record of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    version: u32,
    /// Which sandbox.
    pub id: SandboxId,
    /// What its owner calls it.
    pub name: Option<SandboxName>,
    /// Whose it is.
    pub owner: Owner,
    /// What it was made from, as it was asked for.
    pub template: String,
    /// What was asked for.
    pub spec: SandboxSpec,
    /// What its owner hung on it.
    pub labels: Labels,
    /// What becomes of it when its time is over.
    pub on_timeout: OnTimeout,
    /// What becomes of it when the daemon is told to end. Version 2 had no choice.
    #[serde(default)]
    pub on_exit: OnExit,
    /// Whether any request resumes it while it is paused; otherwise only who asks for that does.
    /// Version 4 had no such.
    #[serde(default = "usually")]
    pub auto_resume: bool,
    /// How the request for it is known again. Version 2 had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// Whether requests to its own address must show the guest's token.
    pub secure: bool,
    /// Those of its limits that nothing holds it to, as whoever asked for it allowed.
    #[serde(default)]
    pub unenforced: Vec<Limit>,
    /// The layers of isolation that its host could not give it.
    #[serde(default)]
    pub missing_layers: Vec<Layer>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it went into the state that it is in.
    pub changed_at: Timestamp,
    /// When its time is over; never when unset.
    pub until: Option<Timestamp>,
    /// What it was last seen doing.
    pub state: State,
    /// It stands for a record that cannot be read: nothing in it was written down by anybody.
    #[serde(skip)]
    pub damaged: bool,
}

fn usually() -> bool {
    true
}

/// Why a text is no record, or a record no text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLease {
    /// It was written by a later Soma.
    #[error("it has version {found}, and this soma reads up to {VERSION}")]
    Later {
        /// Its version.
        found: u32,
    },
    /// It is damaged, or never was one.
    #[error("it cannot be read")]
    Damaged(#[from] serde_json::Error),
    /// It does not fit.
    #[error("it takes {bytes} bytes: the most is {LARGEST}")]
    TooLarge {
        /// How much it takes.
        bytes: usize,
    },
}

impl Lease {
    /// The record of a sandbox that is about to be made.
    pub fn new(id: SandboxId, spec: SandboxSpec, now: Timestamp) -> Self {
        Self {
            version: VERSION,
            id,
            name: None,
            owner: Owner::default(),
            template: "default".to_owned(),
            spec,
            labels: Labels::new(),
            on_timeout: OnTimeout::default(),
            on_exit: OnExit::default(),
            auto_resume: true,
            asked: None,
            secure: true,
            unenforced: Vec::new(),
            missing_layers: Vec::new(),
            created_at: now,
            changed_at: now,
            until: None,
            state: State::Starting(crate::state::Starting::new()),
            damaged: false,
        }
    }

    /// As it is written down.
    pub fn to_text(&self) -> Result<String, InvalidLease> {
        let text = serde_json::to_string(self)?;
        if text.len() > LARGEST {
            return Err(InvalidLease::TooLarge { bytes: text.len() });
        }
        Ok(text)
    }

    /// Reads what was written down, also by earlier versions.
    pub fn from_text(text: &str) -> Result<Self, InvalidLease> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } = serde_json::from_str(text)?;
        if version > VERSION {
            return Err(InvalidLease::Later { found: version });
        }
        Ok(serde_json::from_str(text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Lease {
        let id = SandboxId::from_random([3; 15]);
        Lease::new(id, SandboxSpec::default(), Timestamp(5))
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let text = lease().to_text().unwrap();
        assert_eq!(Lease::from_text(&text).unwrap(), lease());
    }

    #[test]
    fn a_record_of_a_later_soma_is_refused_by_its_version() {
        let mut later = lease();
        later.version = VERSION + 1;
        let error = Lease::from_text(&later.to_text().unwrap()).unwrap_err();
        assert!(error.to_string().contains("version 6"), "{error}");
        assert!(Lease::from_text("{}").is_err() && Lease::from_text("nonsense").is_err());
    }

    #[test]
    fn a_record_from_before_there_was_a_network_reaches_nothing() {
        let mut spec = SandboxSpec::default();
        spec.network.mode = crate::NetworkMode::AllowAll;
        let lease = Lease { spec, ..lease() };
        let mut value: serde_json::Value = serde_json::from_str(&lease.to_text().unwrap()).unwrap();
        value["version"] = 3.into();
        value["spec"].as_object_mut().unwrap().remove("network").unwrap();
        let read = Lease::from_text(&value.to_string()).unwrap();
        assert_eq!(read.spec.network.mode, crate::NetworkMode::DenyAll);
        // What is not understood is not guessed at.
        value["spec"]["network"] = serde_json::json!({ "mode": "allow-some" });
        assert!(Lease::from_text(&value.to_string()).is_err());
    }

    #[test]
    fn a_policy_fits_a_record_beside_everything_else() {
        let mut full = lease();
        full.labels.insert("k".into(), "v".repeat(8000));
        full.spec.environment.insert("K".into(), "v".repeat(32_000));
        full.spec.network.mode = crate::NetworkMode::Custom;
        for number in 0..100 {
            let domain = format!("{}.{number}.example.com", "a".repeat(60));
            full.spec.network.allow_domains.push(domain.parse().unwrap());
            if full.spec.network.allow_domains.len() == 50 {
                let domains = std::mem::take(&mut full.spec.network.allow_domains);
                full.spec.network.block_domains.extend(domains);
            }
        }
        let domains = full.spec.network.block_domains.split_off(50);
        full.spec.network.allow_domains = domains;
        let transform = |number: usize| crate::Transform {
            domain: format!("api{number}.example.com").parse().unwrap(),
            inject_headers: [("X-Key".to_owned(), crate::SecretText::new("k".repeat(500)))].into(),
            strip_headers: Vec::new(),
        };
        while full.spec.network.check().is_ok() {
            full.spec.network.transforms.push(transform(full.spec.network.transforms.len()));
        }
        full.spec.network.transforms.pop();
        assert!(full.spec.network.transforms.len() > 5);
        full.to_text().unwrap();
    }

    #[test]
    fn a_record_that_does_not_fit_is_refused() {
        let mut large = lease();
        large.labels.insert("k".into(), "v".repeat(LARGEST));
        assert!(matches!(large.to_text(), Err(InvalidLease::TooLarge { .. })));
    }
}
