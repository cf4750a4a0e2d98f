//! A server of the user's own, on which the tests make databases, each with a name that nobody else has, and drop them again.

use std::process::Command;
use std::sync::Mutex;

/// What kind of server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `postgres://…`
    Postgres,
    /// `mysql://…`; MySQL itself, too.
    MariaDb,
}

impl Kind {
    /// The variable with the URL: its user may create databases, and roles where a test needs some.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "SANDBOXER_TEST_POSTGRES",
            Self::MariaDb => "SANDBOXER_TEST_MYSQL",
        }
    }
}

/// A server that is not ours; what was made on it is dropped with this.
#[derive(Debug)]
pub struct Given {
    kind: Kind,
    user: String,
    password: Option<String>,
    host: String,
    port: Option<String>,
    database: String,
    made: Mutex<Vec<String>>,
}

impl Given {
    /// The server that the environment names for this kind, if it names one.
    pub fn find(kind: Kind) -> Option<Self> {
        let url = std::env::var(kind.variable()).ok().filter(|url| !url.is_empty())?;
        Some(Self::parse(kind, &url).unwrap_or_else(|| {
            panic!("{} has to be like scheme://user:password@host:port/database", kind.variable())
        }))
    }

    fn parse(kind: Kind, url: &str) -> Option<Self> {
        let (_, rest) = url.split_once("://")?;
        let (authority, database) = rest.split_once('/')?;
        let (who, place) = authority.rsplit_once('@')?;
        let (user, password) = who.split_once(':').map_or((who, None), |(user, secret)| (user, Some(secret)));
        let (host, port) = place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port)));
        Some(Self {
            kind,
            user: user.to_owned(),
            password: password.map(decoded),
            host: host.to_owned(),
            port: port.map(str::to_owned),
            database: database.split('?').next()?.to_owned(),
            made: Mutex::default(),
        })
    }

    /// What kind of server it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The variable that the password is looked for in, and the password.
    pub fn secret(&self) -> Option<(&'static str, String)> {
        let name = if self.kind == Kind::Postgres { "PGPASSWORD" } else { "MYSQL_PWD" };
        self.password.clone().map(|password| (name, password))
    }

    /// The URL of a database, without the password.
    pub fn url(&self, database: &str) -> String {
        let scheme = if self.kind == Kind::Postgres { "postgres" } else { "mysql" };
        let port = self.port.as_ref().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{scheme}://{}@{}{port}/{database}", self.user, self.host)
    }

    /// The command-line client, connected to a database: one column a line, and nothing else.
    pub fn client(&self, database: &str) -> Command {
        let mut client = match self.kind {
            Kind::Postgres => {
                let mut psql = Command::new("psql");
                psql.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", &self.url(database)]);
                psql
            }
            Kind::MariaDb => {
                let mut mariadb = Command::new("mariadb");
                mariadb.args(["--no-defaults", "-NB", "--raw", "--unbuffered"]);
                mariadb.args(["--default-character-set=utf8mb4", "--protocol=tcp"]);
                mariadb.args(["-h", &self.host, "-u", &self.user]);
                mariadb.args(self.port.iter().map(|port| format!("-P{port}"))).arg(database);
                mariadb
            }
        };
        client.envs(self.secret());
        client
    }

    /// What the client prints for a script; the error is what it complained of.
    pub fn run(&self, database: &str, script: &str) -> Result<String, String> {
        let flag = if self.kind == Kind::Postgres { "-c" } else { "-e" };
        let output = self.client(database).args([flag, script]).output().unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// A new, empty database.
    pub fn database(&self) -> String {
        let mut made = self.made.lock().unwrap();
        let name = format!("sandboxer_test_{}_{}", std::process::id(), made.len());
        let unicode = if self.kind == Kind::MariaDb { " CHARACTER SET utf8mb4" } else { "" };
        self.run(&self.database, &format!("CREATE DATABASE {name}{unicode}")).unwrap();
        made.push(name.clone());
        name
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        for name in self.made.lock().unwrap().iter() {
            if let Err(error) = self.run(&self.database, &format!("DROP DATABASE {name}")) {
                eprintln!("the database {name} stays on {}: {error}", self.host);
            }
        }
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        rest = if byte.is_some() { &tail[2..] } else { tail };
        bytes.push(byte.unwrap_or(*first));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_and_its_password_kept_out() {
        let server =
            Given::parse(Kind::Postgres, "postgresql://me:p%40ss%2Fx@db.example:5433/app?a=b").unwrap();
        assert_eq!(server.url("t"), "postgres://me@db.example:5433/t");
        assert_eq!(server.secret(), Some(("PGPASSWORD", "p@ss/x".to_owned())));
        assert_eq!(server.database, "app");
        let server = Given::parse(Kind::MariaDb, "mysql://root@127.0.0.1/mysql").unwrap();
        assert_eq!((server.url("t").as_str(), server.secret()), ("mysql://root@127.0.0.1/t", None));
        assert!(Given::parse(Kind::MariaDb, "127.0.0.1/mysql").is_none());
    }

    /// As somebody's own server would be: reached by a port, with a password.
    #[test]
    fn databases_are_made_and_dropped() {
        let Some(server) = crate::servers::Postgres::start() else { return };
        let password = server.password().replace(' ', "%20");
        let url = server.url("postgres").replacen('@', &format!(":{password}@"), 1);
        let given = Given::parse(Kind::Postgres, &url).unwrap();
        let (one, other) = (given.database(), given.database());
        assert_ne!(one, other);
        assert_eq!(given.run(&one, "SELECT current_database()").unwrap().trim_end(), one);
        assert!(given.run(&one, "SELECT 1/0").unwrap_err().contains("division by zero"));
        drop(given);
        let left = server.sql("postgres", "select count(*) from pg_database where datname like 'sandboxer%'");
        assert_eq!(left, "0");
    }
}
