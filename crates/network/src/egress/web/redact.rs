//! Takes secrets out of what flows back, byte for byte, so that no length changes.
//!
//! A secret that arrives in two pieces is found too: what may be the beginning of one is held back
//! until it is known. What a server encodes, though it was asked not to, is passed as it is.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use memchr::memmem;

/// A body without the secrets.
#[derive(Debug)]
pub(super) struct Redacted<B> {
    inner: B,
    secrets: Arc<[Vec<u8>]>,
    held: BytesMut,
    /// What came after bytes that were held back.
    waiting: Option<Frame<Bytes>>,
    is_over: bool,
}

impl<B> Redacted<B> {
    pub(super) fn new(inner: B, secrets: Arc<[Vec<u8>]>) -> Self {
        Self { inner, secrets, held: BytesMut::new(), waiting: None, is_over: false }
    }

    /// What of the bytes at hand can be passed on.
    fn release(&mut self, is_all: bool) -> Bytes {
        hide_in(&mut self.held, &self.secrets);
        let kept = if is_all { 0 } else { beginning(&self.held, &self.secrets) };
        self.held.split_to(self.held.len() - kept).freeze()
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Redacted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        loop {
            if let Some(frame) = self.waiting.take() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.is_over = true;
                    let rest = self.release(true);
                    return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest))));
                }
            };
            let released = match frame.into_data() {
                Ok(data) => {
                    self.held.extend_from_slice(&data);
                    self.release(false)
                }
                Err(mut other) => {
                    let secrets = Arc::clone(&self.secrets);
                    for value in other.trailers_mut().into_iter().flat_map(|it| it.values_mut()) {
                        let mut bytes = value.as_bytes().to_vec();
                        hide_in(&mut bytes, &secrets);
                        if let Ok(hidden) = http::HeaderValue::from_bytes(&bytes) {
                            *value = hidden;
                        }
                    }
                    self.waiting = Some(other);
                    self.release(true)
                }
            };
            if !released.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(released))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.waiting.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held = u64::try_from(self.held.len()).unwrap_or(0);
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint.set_lower(inner.lower().saturating_add(held));
        hint
    }
}

/// Puts stars over every secret in some bytes. Says whether there was one.
pub(super) fn hide_in(bytes: &mut [u8], secrets: &[Vec<u8>]) -> bool {
    let mut is_changed = false;
    for secret in secrets {
        let mut from = 0;
        while let Some(at) = memmem::find(&bytes[from..], secret) {
            bytes[from + at..from + at + secret.len()].fill(b'*');
            from += at + secret.len();
            is_changed = true;
        }
    }
    is_changed
}

/// How many of the last bytes may be the beginning of a secret.
fn beginning(bytes: &[u8], secrets: &[Vec<u8>]) -> usize {
    let of = |secret: &Vec<u8>| {
        let most = secret.len().saturating_sub(1).min(bytes.len());
        (1..=most).rev().find(|length| bytes.ends_with(&secret[..*length])).unwrap_or(0)
    };
    secrets.iter().map(of).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use http_body_util::{BodyExt, StreamBody};
    use std::convert::Infallible;

    async fn redacted(pieces: &[&str]) -> Vec<u8> {
        let frames: Vec<_> = pieces
            .iter()
            .map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(piece.as_bytes()))))
            .collect();
        let secrets: Arc<[Vec<u8>]> = vec![b"Bearer s3cret".to_vec(), b"s3cret".to_vec()].into();
        let body = Redacted::new(StreamBody::new(stream::iter(frames)), secrets);
        body.collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn a_secret_is_found_however_it_is_cut() {
        let whole = "a s3cret, Bearer s3cret and s3cre";
        for cut in 0..whole.len() {
            let text = redacted(&[&whole[..cut], &whole[cut..]]).await;
            assert_eq!(text, b"a ******, ************* and s3cre", "{cut}");
        }
        let letters: Vec<String> = whole.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(redacted(&letters).await, b"a ******, ************* and s3cre");
    }
}
