//! Lines of the list that cannot be tried yet, each with the reason, counted as skipped.

use crate::support::skip;

#[test]
fn e29_a_snapshot_was_edited_to_name_files_of_the_host() {
    let reason = "snapshots are not imported from elsewhere yet, and root alone can write to them";
    skip("e29_a_snapshot_was_edited_to_name_files_of_the_host", reason);
}

#[test]
fn f13_a_page_from_a_sandbox_reads_the_consoles_cookie() {
    let reason = "there is no console yet, and nothing shows files of a sandbox in a browser";
    skip("f13_a_page_from_a_sandbox_reads_the_consoles_cookie", reason);
}
