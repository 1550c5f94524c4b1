//! Calls on templates.

use api_v1::templates::{Template, TemplateList};
use bytes::Bytes;
use futures::{Stream, TryStreamExt as _};
use guest_proto::client::BoxError;
use http::Method;
use http_body_util::StreamBody;
use hyper::body::Frame;

use crate::sandboxes::escaped;
use crate::{Client, ClientError};

impl Client {
    /// Makes a template from an image, whose bytes are sent as fast as it is unpacked.
    pub async fn import_template(
        &self,
        name: &str,
        replace: bool,
        archive: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
    ) -> Result<Template, ClientError> {
        let path = format!("/v1/template/import?name={}&replace={replace}", escaped(name));
        let body = StreamBody::new(archive.map_ok(Frame::data));
        let answer =
            self.send_body(Method::POST, &path, Some("application/octet-stream"), body).await?;
        self.read(answer).await
    }

    /// Every template.
    pub async fn templates(&self) -> Result<TemplateList, ClientError> {
        self.ask::<(), _>(Method::GET, "/v1/templates", None).await
    }

    /// One template.
    pub async fn template(&self, name: &str) -> Result<Template, ClientError> {
        let path = format!("/v1/template/{}", escaped(name));
        self.ask::<(), _>(Method::GET, &path, None).await
    }

    /// Builds a template, and returns when it is ready.
    pub async fn build_template(&self, name: &str) -> Result<Template, ClientError> {
        let path = format!("/v1/template/{}/build", escaped(name));
        self.ask::<(), _>(Method::POST, &path, None).await
    }

    /// Removes a template.
    pub async fn remove_template(&self, name: &str) -> Result<(), ClientError> {
        let path = format!("/v1/template/{}", escaped(name));
        self.order::<()>(Method::DELETE, &path, None).await
    }
}
