//! Tests that need a PostgreSQL or MariaDB server.

mod mariadb;
mod postgres;
