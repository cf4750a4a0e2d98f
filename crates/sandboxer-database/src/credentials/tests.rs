#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use super::*;

fn account(kind: &str) -> Account {
    Account {
        kind: kind.into(),
        host: "db.example".into(),
        port: 5432,
        database: "prod".into(),
        user: "app".into(),
    }
}

fn environment(set: &'static [(&'static str, &'static str)], home: &Path) -> Environment {
    let variable =
        move |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
    Environment { variable: Arc::new(variable), home: Some(home.to_path_buf()) }
}

fn secret(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path
}

fn ask(kind: &str, reference: &str, around: &Environment) -> Result<Option<String>> {
    password(&account(kind), Some(&Reference::parse(reference)?), around)
}

#[test]
fn references_are_read_and_others_are_not_repeated() {
    assert_eq!(Reference::parse("env:DATABASE_URL").unwrap(), Reference::Environment("DATABASE_URL".into()));
    assert_eq!(Reference::parse("pgpass").unwrap(), Reference::Pgpass(None));
    assert_eq!(Reference::parse("my.cnf:/x").unwrap(), Reference::MyCnf(Some("/x".into())));
    for wrong in ["hunter2", "env:", "env", "file", "secret:x"] {
        let error = Reference::parse(wrong).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn a_variable_holds_a_password_or_a_url_with_one() {
    let temp = tempfile::tempdir().unwrap();
    let set =
        &[("PW", "se:cret"), ("URL", "postgres://app:p%40ss@db.example/prod"), ("BARE", "postgres://db/x")];
    let around = environment(set, temp.path());
    assert_eq!(ask("postgres", "env:PW", &around).unwrap().unwrap(), "se:cret");
    assert_eq!(ask("postgres", "env:URL", &around).unwrap().unwrap(), "p@ss");
    let error = ask("postgres", "env:NONE", &around).unwrap_err();
    assert!(error.to_string().contains("NONE"), "{error}");
}

#[test]
fn pgpass_is_found_as_libpq_finds_it() {
    let temp = tempfile::tempdir().unwrap();
    let text = "# other:*:*:*:no\nother:5432:prod:app:no\ndb.example:*:*:app:a\\:b\\\\c:d\n*:*:*:*:last\n";
    secret(temp.path(), ".pgpass", text);
    let around = environment(&[], temp.path());
    assert_eq!(password(&account("postgres"), None, &around).unwrap().unwrap(), "a:b\\c:d");
    assert_eq!(ask("postgres", "pgpass", &around).unwrap().unwrap(), "a:b\\c:d");
    let other = Account { user: "else".into(), ..account("postgres") };
    assert_eq!(password(&other, None, &around).unwrap().unwrap(), "last");
    secret(temp.path(), ".pgpass", "nobody:1:x:y:z\n");
    assert_eq!(password(&account("postgres"), None, &around).unwrap(), None);
    assert!(ask("postgres", "pgpass", &around).unwrap_err().to_string().contains("app@db.example:5432/prod"));
    let around = environment(&[("PGPASSWORD", "from the variable")], temp.path());
    assert_eq!(password(&account("postgres"), None, &around).unwrap().unwrap(), "from the variable");
}

#[test]
fn my_cnf_is_read_in_its_group() {
    let temp = tempfile::tempdir().unwrap();
    secret(temp.path(), ".my.cnf", "[mysqld]\npassword=no\n[client]\nuser=app\npassword = \"with = sign\"\n");
    let around = environment(&[], temp.path());
    assert_eq!(password(&account("mysql"), None, &around).unwrap().unwrap(), "with = sign");
    secret(temp.path(), ".my.cnf", "[client]\nuser=app\n");
    assert_eq!(password(&account("mysql"), None, &around).unwrap(), None);
    assert!(ask("mysql", "my.cnf", &around).is_err());
    let around = environment(&[("MYSQL_PWD", "v")], temp.path());
    assert_eq!(password(&account("mysql"), None, &around).unwrap().unwrap(), "v");
}

#[test]
fn what_others_can_read_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let path = secret(temp.path(), "pw", "secret\n");
    let around = Environment::empty();
    let reference = format!("file:{}", path.display());
    assert_eq!(ask("mysql", &reference, &around).unwrap().unwrap(), "secret");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    let error = ask("mysql", &reference, &around).unwrap_err();
    assert!(matches!(error, Error::Refused { hint: Some(hint), .. } if hint.contains("chmod 600")));
    let missing = ask("mysql", "file:/no/such", &around).unwrap_err();
    assert!(missing.to_string().contains("/no/such"));
    assert!(ask("mysql", &format!("file:{}", secret(temp.path(), "empty", "").display()), &around).is_err());
    assert_eq!(password(&account("postgres"), None, &around).unwrap(), None);
}

#[test]
fn a_url_is_split_from_its_password() {
    let split = |url| split_url(url).unwrap();
    assert_eq!(split("postgres://u:p%2F@h:1/d?x=y"), ("postgres://u@h:1/d?x=y".into(), Some("p/".into())));
    assert_eq!(split("mysql://u@h/d"), ("mysql://u@h/d".into(), None));
    assert_eq!(split("mysql://h/d?a=b@c"), ("mysql://h/d?a=b@c".into(), None));
    assert_eq!(split_url("no url"), None);
}
