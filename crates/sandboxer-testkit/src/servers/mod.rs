//! Database servers that are private to a test: own directory, own port, gone when the test is.

pub mod mariadb;
mod postgres;

pub use postgres::Postgres;
