//! Names that nobody can guess.

use std::io;

use domain::SandboxId;

/// A fresh sandbox id from the kernel's random source.
pub fn random_id() -> io::Result<SandboxId> {
    Ok(SandboxId::from_random(bytes()?))
}

/// Bytes from there.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < bytes.len() {
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
