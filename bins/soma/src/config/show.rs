//! `soma config`: what the daemon would be told, and where each value comes from.

use std::fmt::Write as _;
use std::path::Path;

use clap::Args;
use serde_json::json;

use super::{Origin, SettingArguments, Settings};
use crate::failure::Failure;
use crate::output;

/// What is typed after `soma config`.
#[derive(Debug, Args)]
#[command(after_help = "\
A value comes from a flag of `soma serve`, else from the environment, else from `config.toml` in
the home, else it is the default.

Examples:
  soma config
  soma config --json")]
pub(crate) struct ConfigArguments {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Shows the settings of a home.
pub(crate) fn run(home: &Path, arguments: &ConfigArguments) -> Result<u8, Failure> {
    let settings = Settings::read(home, &SettingArguments::default())?;
    let rows = settings.rows();
    if arguments.json {
        let object: serde_json::Map<String, serde_json::Value> = rows
            .iter()
            .map(|row| {
                (row.key.to_owned(), json!({ "value": row.value, "from": row.origin.words(home) }))
            })
            .collect();
        let text = serde_json::to_string_pretty(&object).map_err(|error| Failure::own(&error))?;
        return output::words(&format!("{text}\n"));
    }
    let widest = rows.iter().map(|row| row.value.len()).max().unwrap_or_default().min(32);
    let mut text = String::new();
    for row in rows {
        let value = output::one_line(&row.value);
        let _ = writeln!(text, "{:<20} {value:<widest$}  {}", row.key, row.origin.words(home));
    }
    output::words(&text)
}

struct Row {
    key: &'static str,
    value: String,
    origin: Origin,
}

impl Origin {
    fn words(self, home: &Path) -> String {
        match self {
            Self::Flag => "flag".to_owned(),
            Self::Environment(name) => format!("environment, {name}"),
            Self::File => home.join("config.toml").display().to_string(),
            Self::Default => "default".to_owned(),
        }
    }
}

impl Settings {
    fn rows(&self) -> Vec<Row> {
        macro_rules! rows {
            ($($key:ident),* $(,)?) => {
                vec![$(Row {
                    key: key_of(stringify!($key)),
                    value: self.$key.value.to_string(),
                    origin: self.$key.origin,
                }),*]
            };
        }
        rows![
            listen,
            domain,
            hosts,
            origins,
            log_level,
            log_format,
            otlp_endpoint,
            max_sandboxes,
            max_memory,
            max_cpus,
            max_disk,
            allow_unenforced,
            retention,
            pause_grace,
            database,
            reserve_disk,
            reserve_memory,
            code_packages,
            network_grants,
            network_resolvers,
            network_proxy,
            network_certificates,
            network_default,
        ]
    }
}

/// What a setting is called in the file.
fn key_of(field: &'static str) -> &'static str {
    let known = super::file::KEYS.iter().find(|key| key.replace('.', "_") == field);
    known.unwrap_or(&field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_shown() {
        let settings = Settings::read(Path::new("/nonexistent"), &SettingArguments::default());
        let shown: Vec<&str> = settings.unwrap().rows().iter().map(|row| row.key).collect();
        assert_eq!(shown, super::super::file::KEYS);
    }
}
