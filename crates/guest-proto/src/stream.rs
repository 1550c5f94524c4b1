//! What the protocol travels on.

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to a guest: a unix socket, a vsock, TCP, or a pipe in a test.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}
