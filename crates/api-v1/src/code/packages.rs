//! Packages for the interpreters of a sandbox.

use guest_proto::code::{Install, Installed};

use super::Passed;
use crate::error::RunningRefusals;

/// Install packages.
///
/// They stay in the sandbox. An installation that fails is part of a good answer, with what the
/// installer said.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/code/packages", tag = "code",
    operation_id = "install_packages",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Install,
    responses(
        (status = 200, description = "how it went", body = Installed),
        RunningRefusals,
    ),
)]
pub(crate) async fn install(answer: Passed) -> Passed {
    answer
}
