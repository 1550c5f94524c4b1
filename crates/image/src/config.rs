//! What an image says about how to run it.

use std::collections::BTreeMap;

use domain::{ImageConfig, ImageReport};
use serde::Deserialize;

/// As an image's own document has it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Written {
    env: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
    exposed_ports: Option<BTreeMap<String, serde_json::Value>>,
}

/// The most that all variables take, and that each of the other parts takes.
const MOST_BYTES: usize = 8 << 10;

impl Written {
    /// The parts that make sense and fit; the report tells of others.
    pub(crate) fn into_config(self, report: &mut ImageReport) -> ImageConfig {
        let mut fits = |what: &str, bytes: usize| {
            if bytes > MOST_BYTES {
                report.warn(format!("the image's {what} take {bytes} bytes and are left out"));
            }
            bytes <= MOST_BYTES
        };
        let total = |texts: &[String]| texts.iter().map(|text| text.len() + 8).sum::<usize>();
        let mut list = |what: &str, texts: Option<Vec<String>>| {
            texts.filter(|texts| fits(what, total(texts))).unwrap_or_default()
        };
        let environment = list("variables", self.env);
        let entrypoint = list("entry point", self.entrypoint);
        let command = list("command", self.cmd);
        let ports = self.exposed_ports.map(|ports| ports.into_keys().collect());
        let ports = list("ports", ports);
        let text = |text: Option<String>| {
            text.filter(|text| text.len() <= 1024 && !text.contains('\0')).unwrap_or_default()
        };
        let environment = environment
            .iter()
            .filter(|variable| !variable.contains('\0'))
            .filter_map(|variable| variable.split_once('='))
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        ImageConfig {
            environment,
            entrypoint,
            command,
            working_folder: text(self.working_dir),
            user: text(self.user),
            ports,
        }
    }
}
