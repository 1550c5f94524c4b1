//! Templates: imported, built, seen, removed.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{FromRequestParts, Path, Request, State};
use control::{Control, TemplateState};
use domain::{ImageConfig, ImageCounts, ImageFormat, TemplateName};
use futures::TryStreamExt as _;
use http::StatusCode;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use tokio_util::io::StreamReader;
use utoipa::{IntoParams, ToSchema};

use crate::extract::{Asked, Asking};
use crate::{ApiError, Problem};

/// One template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Template {
    /// Its id, which is its name.
    pub id: String,
    /// What sandboxes are made from it by.
    pub name: String,
    /// The digest of the image's manifest; empty for images that have none.
    pub digest: String,
    /// What the image says about how to run it.
    pub image_config: Config,
    /// Whether it comes with Soma.
    pub is_system: bool,
    /// When it was imported or built; empty before.
    pub created_at: String,
    /// What it was imported from: `root-file-system`, `oci-layout` or `docker-archive`; `packages`
    /// where Soma builds it.
    pub format: String,
    /// Whether sandboxes can be made from it as it is: `ready`; otherwise `not-built`, `building`,
    /// `outdated` or `failed`, and whoever wants one waits for a build.
    #[serde(default)]
    pub state: String,
    /// What a build is doing, or why the last one failed.
    #[serde(default)]
    pub detail: String,
    /// The packages that it is built with.
    #[serde(default)]
    pub packages: Vec<String>,
    /// What was unpacked, and what was not.
    pub counts: Counts,
    /// What its maker may want to know.
    pub warnings: Vec<String>,
    /// Some of the sandboxes that stand on it.
    pub sandboxes: Vec<String>,
}

/// What an image says about how to run it. Of this, a sandbox takes the variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Config {
    /// The program that it is meant to run, and its first arguments.
    pub entrypoint: Vec<String>,
    /// Its further arguments.
    pub cmd: Vec<String>,
    /// Where it is meant to run.
    pub working_dir: String,
    /// Who is meant to run it.
    pub user: String,
    /// Variables for every command.
    pub env: BTreeMap<String, String>,
    /// Ports that it serves, such as `8080/tcp`.
    pub exposed_ports: Vec<String>,
}

/// What was unpacked, and what was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Files.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Symbolic links.
    pub links: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Layers of the image.
    pub layers: u64,
    /// Names that a later layer removed.
    pub whiteouts: u64,
    /// Device files, which are left out.
    pub devices_dropped: u64,
    /// Set-user-id and set-group-id bits of files, which are taken off.
    pub privileges_dropped: u64,
    /// Extended attributes, which are left out but for those of users.
    pub attributes_dropped: u64,
    /// Entries of kinds that nobody knows, which are left out.
    pub unknown_dropped: u64,
    /// Entries whose owner a sandbox cannot have, and which are nobody's now.
    pub owners_changed: u64,
}

/// The templates.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TemplateList {
    /// All of them, in the order of their names.
    pub items: Vec<Template>,
    /// How many there are.
    pub total_items: u64,
}

/// What to make of the image that is the body.
#[derive(Debug, Clone, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Import {
    /// What to call the template: lowercase letters, digits and hyphens.
    #[param(max_length = 40, pattern = "^[a-z]([a-z0-9-]*[a-z0-9])?$")]
    pub name: String,
    /// Whether to take the place of one that has this name; its sandboxes keep it.
    #[serde(default)]
    #[param(required = false)]
    pub replace: bool,
}

/// Make a template from an image.
///
/// The body is a tar file, plain or compressed with gzip or zstd: the files of a system, an OCI
/// layout with one image, or what `docker save` writes. It is unpacked as it arrives.
#[utoipa::path(
    post, path = "/v1/template/import", tag = "templates", operation_id = "import_template",
    params(Import),
    request_body(content = String, content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "sandboxes can be made from it", body = Template),
        (status = 400, description = "the image is refused, or the name makes no sense", body = Problem),
        (status = 401, description = "no key, or a wrong one", body = Problem),
        (status = 403, description = "a rule is against it", body = Problem),
        (status = 409, description = "the name is taken", body = Problem),
        (status = 501, description = "this host cannot do it", body = Problem),
        (status = 503, description = "there is no room for it now", body = Problem),
    ),
)]
pub(crate) async fn import(
    State(control): State<Control>,
    Asking(caller): Asking,
    Asked(asked): Asked<Import>,
    request: Request,
) -> Result<(StatusCode, Json<Template>), ApiError> {
    let name = named(&asked.name)?;
    let body = request.into_body().into_data_stream().map_err(std::io::Error::other);
    let archive = Box::new(StreamReader::new(Box::pin(body)));
    let template = control.import_template(&caller, name, asked.replace, archive).await?;
    Ok((StatusCode::CREATED, Json(Template::from(template))))
}

/// Build a template ahead.
///
/// Only `code-interpreter` is built. The first sandbox that is made from it would wait for the
/// same; this is for whoever has no such patience. It answers when the template is ready, and a
/// build goes on when whoever asked for it does not wait.
#[utoipa::path(
    post, path = "/v1/template/{name}/build", tag = "templates", operation_id = "build_template",
    params(("name" = String, Path, description = "a template's name")),
    responses(
        (status = 200, description = "sandboxes can be made from it", body = Template),
        (status = 400, description = "it is not one that is built", body = Problem),
        (status = 401, description = "no key, or a wrong one", body = Problem),
        (status = 403, description = "a rule is against it", body = Problem),
        (status = 503, description = "it could not be built", body = Problem),
    ),
)]
pub(crate) async fn build(
    State(control): State<Control>,
    Asking(caller): Asking,
    WhichTemplate(name): WhichTemplate,
) -> Result<Json<Template>, ApiError> {
    Ok(Json(Template::from(control.build_template(&caller, &name).await?)))
}

/// List the templates: those that were imported, and the one that is built.
#[utoipa::path(
    get, path = "/v1/templates", tag = "templates", operation_id = "list_templates",
    responses(
        (status = 200, description = "all of them", body = TemplateList),
        (status = 401, description = "no key, or a wrong one", body = Problem),
        (status = 403, description = "a rule is against it", body = Problem),
    ),
)]
pub(crate) async fn list(
    State(control): State<Control>,
    Asking(caller): Asking,
) -> Result<Json<TemplateList>, ApiError> {
    let templates = control.templates(&caller).await?;
    let items: Vec<Template> = templates.into_iter().map(Template::from).collect();
    let total_items = items.len() as u64;
    Ok(Json(TemplateList { items, total_items }))
}

/// See one template.
#[utoipa::path(
    get, path = "/v1/template/{name}", tag = "templates", operation_id = "get_template",
    params(("name" = String, Path, description = "a template's name")),
    responses(
        (status = 200, description = "this is it", body = Template),
        (status = 400, description = "that is no name", body = Problem),
        (status = 401, description = "no key, or a wrong one", body = Problem),
        (status = 403, description = "a rule is against it", body = Problem),
        (status = 404, description = "there is no such template", body = Problem),
    ),
)]
pub(crate) async fn get(
    State(control): State<Control>,
    Asking(caller): Asking,
    WhichTemplate(name): WhichTemplate,
) -> Result<Json<Template>, ApiError> {
    Ok(Json(Template::from(control.template(&caller, &name).await?)))
}

/// Remove a template. One that sandboxes stand on stays.
#[utoipa::path(
    delete, path = "/v1/template/{name}", tag = "templates", operation_id = "delete_template",
    params(("name" = String, Path, description = "a template's name")),
    responses(
        (status = 204, description = "it is gone"),
        (status = 400, description = "that is no name", body = Problem),
        (status = 401, description = "no key, or a wrong one", body = Problem),
        (status = 403, description = "a rule is against it", body = Problem),
        (status = 404, description = "there is no such template", body = Problem),
        (status = 409, description = "sandboxes stand on it", body = Problem),
    ),
)]
pub(crate) async fn delete(
    State(control): State<Control>,
    Asking(caller): Asking,
    WhichTemplate(name): WhichTemplate,
) -> Result<StatusCode, ApiError> {
    control.remove_template(&caller, name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The template that a path names.
pub(crate) struct WhichTemplate(TemplateName);

impl<S: Send + Sync> FromRequestParts<S> for WhichTemplate {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = <Path<String> as FromRequestParts<S>>::from_request_parts(parts, state).await;
        let Path(name) = path.map_err(|error| ApiError::invalid(error.body_text()))?;
        named(&name).map(Self)
    }
}

fn named(name: &str) -> Result<TemplateName, ApiError> {
    name.parse()
        .map_err(|error: domain::InvalidTemplateName| ApiError::wrong("name", error.to_string()))
}

impl From<control::Template> for Template {
    fn from(template: control::Template) -> Self {
        let control::Template { record, sandboxes, state } = template;
        let image = record.image;
        let is_built = !record.packages.is_empty();
        let (state, detail) = match state {
            TemplateState::Ready => ("ready", String::new()),
            TemplateState::Building { progress } => ("building", progress),
            TemplateState::Outdated => ("outdated", String::new()),
            TemplateState::NotBuilt => ("not-built", String::new()),
            TemplateState::Failed { reason } => ("failed", reason),
        };
        let is_there = record.created_at.0 > 0;
        let created_at = if is_there { record.created_at.to_string() } else { String::new() };
        Self {
            id: record.name.to_string(),
            name: record.name.to_string(),
            digest: image.digest.unwrap_or_default(),
            image_config: image.config.into(),
            is_system: is_built,
            created_at,
            state: state.to_owned(),
            detail,
            packages: record.packages,
            format: match image.format {
                _ if is_built => "packages",
                ImageFormat::RootFileSystem => "root-file-system",
                ImageFormat::OciLayout => "oci-layout",
                ImageFormat::DockerArchive => "docker-archive",
            }
            .to_owned(),
            counts: image.counts.into(),
            warnings: image.warnings,
            sandboxes: sandboxes.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<ImageConfig> for Config {
    fn from(config: ImageConfig) -> Self {
        Self {
            entrypoint: config.entrypoint,
            cmd: config.command,
            working_dir: config.working_folder,
            user: config.user,
            env: config.environment,
            exposed_ports: config.ports,
        }
    }
}

impl From<ImageCounts> for Counts {
    fn from(counts: ImageCounts) -> Self {
        Self {
            files: counts.files,
            folders: counts.folders,
            links: counts.links,
            hard_links: counts.hard_links,
            bytes: counts.bytes,
            layers: counts.layers,
            whiteouts: counts.whiteouts,
            devices_dropped: counts.devices_dropped,
            privileges_dropped: counts.privileges_dropped,
            attributes_dropped: counts.attributes_dropped,
            unknown_dropped: counts.unknown_dropped,
            owners_changed: counts.owners_changed,
        }
    }
}
