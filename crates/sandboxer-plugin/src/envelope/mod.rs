//! The envelope: frames, messages, one process and the conversation with it. What is said in it is a role's business; nothing
//! here knows of strategies.

pub mod connection;
pub mod frame;
pub mod log;
pub mod message;
pub mod plugin;
pub mod process;
pub mod secrets;
pub mod serve;
pub mod shape;
