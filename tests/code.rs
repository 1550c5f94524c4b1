//! Cells in kernels, from outside: the real program, real sandboxes, the interpreters of the host.

mod broken;
mod notebook;
mod repl;
