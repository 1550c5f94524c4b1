//! `/v1`: the public API, a superset of Leap0's.
//!
//! Handlers only translate: JSON to the words of `control`, its answers and errors back to JSON
//! and codes. Routes, schemas and prose of the contract are declared with the handlers, and
//! [`document`] is generated from them; `openapi/v1.json` is its committed copy.
//!
//! Start at [`router`]. What is not here: who the caller is (`gateway` puts a
//! [`policy::Caller`] into each request), and everything that decides or acts (`control`).

#![expect(unused_qualifications, reason = "the macro for paths writes types so")]

mod code;
mod error;
pub mod events;
mod extract;
pub mod files;
pub mod life;
pub mod network;
pub mod processes;
mod room;
pub mod sandboxes;
pub mod snapshots;
mod stream;
pub mod templates;

use axum::Router;
use control::Control;
use utoipa::OpenApi;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use error::{ApiError, Problem, Wrong};
pub use extract::{Asking, LARGEST_BODY, Which};
pub use room::{Held, whole_body};

/// The routes, to be nested under nothing: their paths are whole.
pub fn router(control: Control) -> Router {
    described().split_for_parts().0.with_state(control)
}

/// The contract, as `OpenAPI` 3.1.
pub fn document() -> utoipa::openapi::OpenApi {
    described().split_for_parts().1
}

fn described() -> OpenApiRouter<Control> {
    OpenApiRouter::with_openapi(Contract::openapi())
        .routes(routes!(sandboxes::create))
        .routes(routes!(sandboxes::list))
        .routes(routes!(sandboxes::get, sandboxes::delete))
        .routes(routes!(sandboxes::set_timeout))
        .routes(routes!(sandboxes::set_limits))
        .routes(routes!(life::start))
        .routes(routes!(life::stop))
        .routes(routes!(life::pause))
        .routes(routes!(life::resume))
        .routes(routes!(life::reconcile))
        .routes(routes!(sandboxes::home_folder))
        .routes(routes!(sandboxes::work_folder))
        .routes(routes!(sandboxes::metrics))
        .routes(routes!(network::get, network::replace))
        .routes(routes!(network::learned))
        .routes(routes!(network::list))
        .routes(routes!(network::follow))
        .routes(routes!(events::of_sandbox))
        .routes(routes!(events::list))
        .routes(routes!(events::follow))
        .merge(code::described())
        .merge(files::described())
        .routes(routes!(templates::import))
        .routes(routes!(templates::list))
        .routes(routes!(templates::get, templates::delete))
        .routes(routes!(templates::build))
        .routes(routes!(snapshots::create))
        .routes(routes!(snapshots::list))
        .routes(routes!(snapshots::restore))
        .routes(routes!(snapshots::get, snapshots::delete))
        .routes(routes!(snapshots::fork))
        .routes(routes!(snapshots::roll_back))
        .routes(routes!(processes::execute))
        .routes(routes!(processes::start))
        .routes(routes!(processes::stream))
        .routes(routes!(processes::list))
        .routes(routes!(processes::output))
        .routes(routes!(processes::write))
        .routes(routes!(processes::signal))
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Soma",
        description = "Gives every AI agent a body: an isolated computer that it is bound to.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    modifiers(&Keys),
    security(("key" = []), ("leap0" = []), ("e2b" = [])),
)]
struct Contract;

struct Keys;

impl utoipa::Modify for Keys {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("key", SecurityScheme::Http(bearer));
        for (name, header) in [("leap0", "leap0-authorization"), ("e2b", "x-api-key")] {
            let value = ApiKeyValue::new(header);
            components.add_security_scheme(name, SecurityScheme::ApiKey(ApiKey::Header(value)));
        }
    }
}
