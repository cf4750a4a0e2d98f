//! Plugins that do wrong, driven by a real manager: whatever they do is a named error of that sandbox within its deadline, and the
//! state database tells the truth afterwards.

mod answers;
mod calls;
mod concurrency;
mod floods;
mod handshake;
mod processes;
mod secrets;
mod world;
