//! The routes under `/code`.

use std::sync::Arc;

use futures::stream;
use guest_proto::code::{Answer, Begun, Complete, Execute, Install, Items, Limits, NewContext};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use serde_json::json;

use super::super::context::{Context, Job};
use super::super::execution::Execution;
use super::super::fresh::Fresh;
use super::super::{Code, Wanted, packages, was_used};
use super::collect::collect;
use super::stream::{Lines, Own};
use crate::http::{HttpError, empty, parameter};
use crate::server::{Body, BoxError};
use crate::state::State;

/// Answers one request.
pub(super) async fn respond(
    head: &Parts,
    path: &[&str],
    body: Incoming,
    state: &Arc<State>,
) -> Result<Response<Body>, HttpError> {
    match (path, &head.method) {
        (["healthz"], &Method::GET) => Ok(super::json(StatusCode::OK, &json!({ "status": "ok" }))),
        (["contexts"], &Method::GET) => Ok(list(state)),
        (["contexts"], &Method::POST) => create(body, state).await,
        (["contexts", id], &Method::GET) => Ok(shown(&*super::find(state, id)?)),
        (["contexts", id], &Method::DELETE) => {
            super::find(state, id)?;
            state.code.delete(id);
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (["contexts", id, "restart"], &Method::POST) => {
            let context = super::find(state, id)?;
            context.restart().await;
            Ok(shown(&context))
        }
        (["contexts", id, "interrupt"], &Method::POST) => {
            let context = super::find(state, id)?;
            context.interrupt();
            Ok(shown(&context))
        }
        (["contexts", id, "complete"], &Method::POST) => {
            let wanted = super::message(body).await?;
            complete(&*super::find(state, id)?, wanted).await
        }
        (["execute"], &Method::POST) => execute(body, state).await,
        (["execute", "async"], &Method::POST) => fresh(body, state).await,
        (["executions"], &Method::POST) => begin(body, state).await,
        (["executions"], &Method::GET) => {
            let items = state.code.executions.summaries();
            Ok(super::json(StatusCode::OK, &Items { items }))
        }
        (["executions", id], &Method::GET) => follow(head, &execution(state, id)?),
        (["executions", id], &Method::DELETE) => {
            execution(state, id)?.cancel("it was cancelled");
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (["executions", id, "input"], &Method::POST) => {
            // Read first: who is refused while it sends hears of a broken connection instead.
            let answer: Answer = super::message(body).await?;
            execution(state, id)?
                .answer(answer.text)
                .map_err(|problem| HttpError::new(StatusCode::CONFLICT, problem))?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
        (["packages"], &Method::POST) => install(body, state).await,
        (["healthz"], _) => Err(HttpError::wrong_method("GET")),
        (["contexts" | "executions"], _) => Err(HttpError::wrong_method("GET, POST")),
        (["contexts" | "executions", _], _) => Err(HttpError::wrong_method("GET, DELETE")),
        (
            ["execute" | "packages"]
            | ["execute", "async"]
            | ["executions", _, "input"]
            | ["contexts", _, "restart" | "interrupt" | "complete"],
            _,
        ) => Err(HttpError::wrong_method("POST")),
        _ => {
            let path: String = head.uri.path().chars().take(200).collect();
            Err(HttpError::new(StatusCode::NOT_FOUND, format!("there is no route '{path}'")))
        }
    }
}

fn list(state: &State) -> Response<Body> {
    let contexts = state.code.all();
    let usual: Vec<String> = state.code.lock().usual.values().cloned().collect();
    // Those that nobody asked for are there once they were used.
    let items = contexts.iter().filter(|one| was_used(one) || !usual.contains(&one.id));
    let items = items.map(|context| context.shown()).collect();
    super::json(StatusCode::OK, &Items { items })
}

fn shown(context: &Context) -> Response<Body> {
    super::json(StatusCode::OK, &context.shown())
}

async fn create(body: Incoming, state: &Arc<State>) -> Result<Response<Body>, HttpError> {
    let request: NewContext = super::message(body).await?;
    let language = super::language(request.language.as_deref())?;
    let environment = request.env_vars.unwrap_or_default();
    let wanted = Wanted { language, cwd: request.cwd, environment, passing: false };
    let dependencies = match request.dependencies.filter(|names| !names.is_empty()) {
        Some(packages) => {
            let asked = Install { packages, ..Install::default() };
            Some(installed(state, language, asked).await?)
        }
        None => None,
    };
    let context = Code::create(state, wanted)?;
    let answer = guest_proto::code::Context { dependencies, ..context.shown() };
    Ok(super::json(StatusCode::CREATED, &answer))
}

async fn install(body: Incoming, state: &Arc<State>) -> Result<Response<Body>, HttpError> {
    let asked: Install = super::message(body).await?;
    let language = super::language(asked.language.as_deref())?;
    Ok(super::json(StatusCode::OK, &installed(state, language, asked).await?))
}

/// Installs in a task of its own: one that was begun is finished, also when nobody waits.
async fn installed(
    state: &Arc<State>,
    language: guest_proto::code::Language,
    asked: Install,
) -> Result<guest_proto::code::Installed, HttpError> {
    let state = Arc::clone(state);
    let work = crate::spawn(async move { packages::install(&state, language, &asked).await });
    let done = work.await.map_err(|_| {
        HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "the installation was cut short")
    })?;
    done.map_err(|refused| HttpError::bad_request(refused.to_string()))
}

/// The context and limits of a request, and its execution in the queue.
fn enqueue(request: Execute, state: &Arc<State>) -> Result<Arc<Execution>, HttpError> {
    let context = match request.context_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => super::find(state, id)?,
        None => super::passing(state, &request)?,
    };
    let timeout = super::timeout(request.timeout_ms);
    let limits = request.limits.unwrap_or(Limits::USUAL).or_usual();
    super::enqueue(state, &context, request, timeout, limits)
}

async fn execute(body: Incoming, state: &Arc<State>) -> Result<Response<Body>, HttpError> {
    let mut request: Execute = super::message(body).await?;
    // Nobody could answer before the answer is there.
    request.allow_stdin = false;
    let execution = enqueue(request, state)?;
    let reader = execution.log.read(0);
    let (answer, held) = collect(&execution, reader).await;
    Ok(super::json_holding(StatusCode::OK, &answer, held))
}

async fn begin(body: Incoming, state: &Arc<State>) -> Result<Response<Body>, HttpError> {
    let request: Execute = super::message(body).await?;
    let detach = request.detach;
    let execution = enqueue(request, state)?;
    if detach {
        let (id, context_id) = (execution.id.clone(), execution.context_id.clone());
        return Ok(super::json(StatusCode::CREATED, &Begun { id, context_id }));
    }
    Ok(lines(&execution, 0, true))
}

fn follow(head: &Parts, execution: &Arc<Execution>) -> Result<Response<Body>, HttpError> {
    let query = head.uri.query();
    let from = match parameter(query, "from")? {
        Some(from) => {
            from.parse().map_err(|_| HttpError::bad_request("'from' is the number of an event"))?
        }
        None => 0,
    };
    let follow = match parameter(query, "follow")?.as_deref() {
        None | Some("true" | "1" | "") => true,
        Some("false" | "0") => false,
        Some(_) => return Err(HttpError::bad_request("'follow' is true or false")),
    };
    if execution.log.is_crowded() {
        let message = "too many read this execution already: wait for one of them";
        return Err(HttpError::new(StatusCode::TOO_MANY_REQUESTS, message));
    }
    Ok(lines(execution, from, follow))
}

fn lines(execution: &Arc<Execution>, from: u64, follow: bool) -> Response<Body> {
    let reader = execution.log.read(from);
    let lines = Lines { reader, dialect: Own, follow, leash: None };
    lines.into_response("application/x-ndjson")
}

async fn complete(context: &Context, wanted: Complete) -> Result<Response<Body>, HttpError> {
    let Complete { code, cursor } = wanted;
    let end = code.chars().count() as u64;
    let cursor = cursor.unwrap_or(end).min(end);
    let (answer, answered) = tokio::sync::oneshot::channel();
    let busy = || HttpError::new(StatusCode::CONFLICT, "the context is busy");
    if !context.is_idle() {
        return Err(busy());
    }
    context.ask(Job::Complete { code, cursor, answer }).map_err(|_| busy())?;
    let completions = answered.await.map_err(|_| busy())?;
    let completions = completions
        .map_err(|problem| HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, problem))?;
    Ok(super::json(StatusCode::OK, &completions))
}

async fn fresh(body: Incoming, state: &Arc<State>) -> Result<Response<Body>, HttpError> {
    let request: Execute = super::message(body).await?;
    let language = super::language(request.language.as_deref())?;
    let limit = super::timeout(request.timeout_ms);
    let fresh = Fresh::start(state, language, &request.code, limit).await;
    let fresh = fresh.map_err(|problem| HttpError::new(StatusCode::BAD_GATEWAY, problem))?;
    let events = stream::unfold(fresh, |mut fresh| async move {
        let event = fresh.next().await?;
        Some((Ok::<_, BoxError>(Frame::data(event)), fresh))
    });
    let mut response = Response::new(StreamBody::new(events).boxed_unsync());
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

fn execution(state: &State, id: &str) -> Result<Arc<Execution>, HttpError> {
    state.code.executions.find(id).ok_or_else(|| {
        let id: String = id.chars().take(60).collect();
        HttpError::new(StatusCode::NOT_FOUND, format!("there is no execution '{id}'"))
    })
}
