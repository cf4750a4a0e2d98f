//! Database servers that are private to a test: own directory, own port, gone when the test is.

mod postgres;

pub use postgres::Postgres;
