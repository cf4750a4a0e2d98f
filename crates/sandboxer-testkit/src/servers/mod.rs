//! Database servers that are private to a test: own directory, own port, gone when the test is. And those of a user, where tests are pointed at them.

mod given;
pub mod mariadb;
mod postgres;

pub use given::{Given, Kind};
pub use postgres::Postgres;
