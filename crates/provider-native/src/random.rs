//! Names that nobody can guess.

use std::io;

use domain::SandboxId;

/// A fresh sandbox id from the kernel's random source.
pub fn random_id() -> io::Result<SandboxId> {
    let mut bits = [0; 15];
    let mut filled = 0;
    while filled < bits.len() {
        filled +=
            rustix::rand::getrandom(&mut bits[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(SandboxId::from_random(bits))
}
