//! One thing that is done with several sandboxes, one after the other.

use std::path::Path;

use client::{Client, ClientError};

use crate::failure::{FAILED, Failure, refused};
use crate::{daemon, output};

/// Does it with each, says the name of each that it was done with, and goes on after a refusal:
/// the code is 1 then.
pub(crate) fn each(
    home: &Path,
    which: &[String],
    act: &impl AsyncFn(&Client, &str) -> Result<bool, ClientError>,
) -> Result<u8, Failure> {
    daemon::ask(home, async |client| {
        let mut code = 0;
        for which in which {
            match act(&client, which).await {
                Ok(true) => drop(output::words(&format!("{}\n", output::one_line(which)))?),
                Ok(false) => {}
                // Whom nobody answers need not be asked again.
                Err(error) if error.status().is_none() => return Err(error.into()),
                Err(error) => {
                    output::failure(&refused(error));
                    code = FAILED;
                }
            }
        }
        Ok(code)
    })
}
