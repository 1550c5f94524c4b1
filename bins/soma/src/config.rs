//! What the daemon is told: flags, then the environment, then `config.toml` in the home, then
//! defaults.
//!
//! [`Settings::read`] puts them together and remembers where each value comes from;
//! `soma config` shows it. A key that is not known and a value that makes no sense are errors
//! that name the line: what is misspelt must not be silently something else.

mod database;
mod file;
mod network;
mod packages;
mod reserve;
mod show;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use domain::{Bytes, MilliCpus};
use telemetry::Format;

use crate::failure::Failure;
pub(crate) use database::Database;
use file::File;
use network::{Certificates, Grants, Proxy, Resolvers, Usual};
pub(crate) use packages::CodePackages;
pub(crate) use reserve::Reserve;
pub(crate) use show::{ConfigArguments, run};

/// What can be typed about the daemon's settings.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SettingArguments {
    /// Where the API listens, such as 127.0.0.1:7070; `off` for the local socket alone.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The domain below which sandboxes have their names [default: localhost].
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// What is logged: error, warn, info, debug, trace, or directives [default: info].
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// How it is logged: auto, text or json [default: auto].
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// How many sandboxes there may be at one time [default: 1000].
    #[arg(long, value_name = "NUMBER")]
    max_sandboxes: Option<String>,
    /// Where the daemon remembers: `file`, or `postgres://USER@HOST/DATABASE` without a password
    /// [default: file].
    #[arg(long, value_name = "ADDRESS")]
    database: Option<String>,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag,
    Environment(&'static str),
    File,
    Default,
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

/// Where the API listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    At(SocketAddr),
    Off,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::At).map_err(|_| {
            "it has to be an address and a port such as 127.0.0.1:7070, or `off`".to_owned()
        })
    }
}

impl Display for Listen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::At(address) => write!(formatter, "{address}"),
            Self::Off => formatter.write_str("off"),
        }
    }
}

/// Several words with commas between.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Words(pub(crate) Vec<String>);

impl FromStr for Words {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        Ok(Self(words.map(ToOwned::to_owned).collect()))
    }
}

impl Display for Words {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0.join(","))
    }
}

/// A time such as `7d`; zero is at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        domain::parse_duration(text).map(Self).map_err(|error| error.to_string())
    }
}

impl Display for Time {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}s", self.0.as_secs())
    }
}

/// An address for traces, or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Endpoint(pub(crate) Option<String>);

impl FromStr for Endpoint {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(Some(text.to_owned()).filter(|text| !text.is_empty())))
    }
}

impl Display for Endpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // It may hold a password.
        formatter.write_str(if self.0.is_some() { "(set)" } else { "" })
    }
}

/// All settings of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) listen: Setting<Listen>,
    pub(crate) domain: Setting<String>,
    pub(crate) hosts: Setting<Words>,
    pub(crate) origins: Setting<Words>,
    pub(crate) log_level: Setting<String>,
    pub(crate) log_format: Setting<String>,
    pub(crate) otlp_endpoint: Setting<Endpoint>,
    pub(crate) max_sandboxes: Setting<usize>,
    pub(crate) max_memory: Setting<Bytes>,
    pub(crate) max_cpus: Setting<MilliCpus>,
    pub(crate) max_disk: Setting<Bytes>,
    pub(crate) allow_unenforced: Setting<bool>,
    pub(crate) retention: Setting<Time>,
    pub(crate) pause_grace: Setting<Time>,
    pub(crate) database: Setting<Database>,
    pub(crate) reserve_disk: Setting<Reserve>,
    pub(crate) reserve_memory: Setting<Reserve>,
    pub(crate) code_packages: Setting<CodePackages>,
    pub(crate) network_grants: Setting<Grants>,
    pub(crate) network_resolvers: Setting<Resolvers>,
    pub(crate) network_proxy: Setting<Proxy>,
    pub(crate) network_certificates: Setting<Certificates>,
    pub(crate) network_default: Setting<Usual>,
}

impl Settings {
    /// Puts them together for the daemon of a home.
    pub(crate) fn read(home: &Path, typed: &SettingArguments) -> Result<Self, Failure> {
        let variable = |name: &str| std::env::var(name).ok();
        Self::gather(&File::read(home)?, typed, variable)
    }

    fn gather(
        file: &File,
        typed: &SettingArguments,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let pick = Pick { file, variable: &variable };
        let rules = policy::Rules::default();
        let loopback = SocketAddr::from(([127, 0, 0, 1], 7070));
        let log_format = pick.one(
            "log_format",
            "SOMA_LOG_FORMAT",
            typed.log_format.as_deref(),
            "auto".to_owned(),
        )?;
        if let Err(error) = log_format.value.parse::<Format>() {
            return Err(Failure::usage(format!("`log_format`: {error}")));
        }
        let endpoint = "SOMA_OTLP_ENDPOINT";
        let mut otlp_endpoint = pick.one("otlp_endpoint", endpoint, None, Endpoint::default())?;
        if otlp_endpoint.origin == Origin::Default {
            // The name that every program with OpenTelemetry knows.
            let usual = "OTEL_EXPORTER_OTLP_ENDPOINT";
            otlp_endpoint = pick.one("otlp_endpoint", usual, None, Endpoint::default())?;
        }
        let database =
            pick.one("database", "SOMA_DATABASE", typed.database.as_deref(), Database::File)?;
        if database.origin == Origin::Flag && database.value.has_password() {
            return Err(Failure::usage(
                "--database: a password among the words of a command is seen by every user",
            )
            .hint("write the address to SOMA_DATABASE or to `database` in config.toml"));
        }
        Ok(Self {
            listen: pick.one(
                "listen",
                "SOMA_LISTEN",
                typed.listen.as_deref(),
                Listen::At(loopback),
            )?,
            domain: pick.one(
                "domain",
                "SOMA_DOMAIN",
                typed.domain.as_deref(),
                "localhost".to_owned(),
            )?,
            hosts: pick.one("hosts", "SOMA_HOSTS", None, Words::default())?,
            origins: pick.one("origins", "SOMA_ORIGINS", None, Words::default())?,
            log_level: pick.one(
                "log_level",
                "SOMA_LOG_LEVEL",
                typed.log_level.as_deref(),
                "info".to_owned(),
            )?,
            log_format,
            otlp_endpoint,
            max_sandboxes: pick.one(
                "max_sandboxes",
                "SOMA_MAX_SANDBOXES",
                typed.max_sandboxes.as_deref(),
                rules.sandboxes,
            )?,
            max_memory: pick.one("max_memory", "SOMA_MAX_MEMORY", None, rules.memory)?,
            max_cpus: pick.one("max_cpus", "SOMA_MAX_CPUS", None, rules.cpus)?,
            max_disk: pick.one("max_disk", "SOMA_MAX_DISK", None, rules.disk)?,
            allow_unenforced: pick.one(
                "allow_unenforced",
                "SOMA_MAY_ALLOW_UNENFORCED",
                None,
                rules.unenforced,
            )?,
            retention: pick.one(
                "retention",
                "SOMA_RETENTION",
                None,
                Time(Duration::from_hours(24 * 7)),
            )?,
            pause_grace: pick.one(
                "pause_grace",
                "SOMA_PAUSE_GRACE",
                None,
                Time(Duration::from_mins(1)),
            )?,
            database,
            reserve_disk: pick.one(
                "reserve_disk",
                "SOMA_RESERVE_DISK",
                None,
                Reserve::default(),
            )?,
            reserve_memory: pick.one(
                "reserve_memory",
                "SOMA_RESERVE_MEMORY",
                None,
                Reserve::default(),
            )?,
            code_packages: pick.usual("code_packages", "SOMA_CODE_PACKAGES")?,
            network_grants: pick.usual("network.grants", "SOMA_NETWORK_GRANTS")?,
            network_resolvers: pick.usual("network.resolvers", "SOMA_NETWORK_RESOLVERS")?,
            network_proxy: pick.usual("network.proxy", "SOMA_NETWORK_PROXY")?,
            network_certificates: pick
                .usual("network.certificates", "SOMA_NETWORK_CERTIFICATES")?,
            network_default: pick.usual("network.default", "SOMA_NETWORK_DEFAULT")?,
        })
    }

    /// What is left to the host.
    pub(crate) fn reserves(&self) -> provider_native::Reserves {
        provider_native::Reserves {
            disk: self.reserve_disk.value.0,
            memory: self.reserve_memory.value.0,
        }
    }

    /// What the operator allows.
    pub(crate) fn rules(&self) -> policy::Rules {
        policy::Rules {
            sandboxes: self.max_sandboxes.value,
            memory: self.max_memory.value,
            cpus: self.max_cpus.value,
            disk: self.max_disk.value,
            unenforced: self.allow_unenforced.value,
        }
    }
}

/// Chooses the value that counts.
struct Pick<'a, V> {
    file: &'a File,
    variable: &'a V,
}

impl<V: Fn(&str) -> Option<String>> Pick<'_, V> {
    /// One that cannot be typed, and whose type says what is usual.
    fn usual<T>(&self, key: &'static str, variable: &'static str) -> Result<Setting<T>, Failure>
    where
        T: FromStr + Default,
        T::Err: Display,
    {
        self.one(key, variable, None, T::default())
    }

    fn one<T>(
        &self,
        key: &'static str,
        variable: &'static str,
        typed: Option<&str>,
        usual: T,
    ) -> Result<Setting<T>, Failure>
    where
        T: FromStr,
        T::Err: Display,
    {
        let parse = |text: &str, origin, name: &str| match text.parse() {
            Ok(value) => Ok(Setting { value, origin }),
            Err(error) => Err(Failure::usage(format!("{name}: {error}"))),
        };
        if let Some(text) = typed {
            return parse(text, Origin::Flag, &format!("--{}", key.replace('_', "-")));
        }
        if let Some(text) = (self.variable)(variable) {
            return parse(&text, Origin::Environment(variable), variable);
        }
        if let Some((text, line)) = self.file.value(key) {
            let name = format!("`{key}` in line {line} of {}", self.file.path());
            return parse(text, Origin::File, &name);
        }
        Ok(Setting { value: usual, origin: Origin::Default })
    }
}
