//! Database servers of a test's own: private data, private ports, gone with the test.

pub mod mariadb;
