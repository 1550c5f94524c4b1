//! sys-linux
