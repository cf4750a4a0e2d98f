/*
** SQLite once more, with everything in it static: a binary that links another copy has no symbol twice. What the Rust side
** calls is at the end, under a prefix of its own.
*/
#define SQLITE_API static
#define SQLITE_EXTERN
#define SQLITE_THREADSAFE 2
#define SQLITE_ENABLE_SESSION 1
#define SQLITE_ENABLE_PREUPDATE_HOOK 1
#define SQLITE_ENABLE_DBPAGE_VTAB 1
#define SQLITE_ENABLE_COLUMN_METADATA 1
#define SQLITE_ENABLE_FTS3 1
#define SQLITE_ENABLE_FTS3_PARENTHESIS 1
#define SQLITE_ENABLE_FTS4 1
#define SQLITE_ENABLE_FTS5 1
#define SQLITE_ENABLE_RTREE 1
#define SQLITE_ENABLE_GEOPOLY 1
#define SQLITE_ENABLE_MATH_FUNCTIONS 1
#define SQLITE_ENABLE_STAT4 1
#define SQLITE_DEFAULT_FOREIGN_KEYS 0
#define SQLITE_USE_URI 0
#define SQLITE_OMIT_LOAD_EXTENSION 1
#define SQLITE_OMIT_SHARED_CACHE 1
#include "sqlite3.c"

#define EXPORT(name) sandboxer_sqlite3_##name

const char *EXPORT(libversion)(void) { return sqlite3_libversion(); }

/*
** What is opened is a regular file, or a directory to be synchronized. Opening a FIFO that somebody put in the place of a journal
** would wait for ever, and looking before opening would leave an instant between the two.
*/
static int openRegular(const char *path, int flags, int mode) {
  struct stat found;
  int file = open(path, flags | O_NONBLOCK, mode);
  if( file<0 || strcmp(path, "/dev/null")==0 ) return file;
  if( fstat(file, &found)==0 && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode)) ) return file;
  close(file);
  errno = EINVAL;
  return -1;
}
static void openOnlyRegular(void) {
  static int done = 0;
  sqlite3_mutex *mutex;
  if( sqlite3_initialize()!=SQLITE_OK ) return;
  mutex = sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_APP1);
  sqlite3_mutex_enter(mutex);
  if( !done ){
    sqlite3_vfs *vfs = sqlite3_vfs_find(0);
    done = vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)openRegular)==SQLITE_OK;
  }
  sqlite3_mutex_leave(mutex);
}
int EXPORT(open)(const char *path, sqlite3 **db, int flags) {
  openOnlyRegular();
  return sqlite3_open_v2(path, db, flags, 0);
}
int EXPORT(close)(sqlite3 *db) { return sqlite3_close_v2(db); }
const char *EXPORT(errmsg)(sqlite3 *db) { return sqlite3_errmsg(db); }
const char *EXPORT(errstr)(int code) { return sqlite3_errstr(code); }
int EXPORT(extended_errcode)(sqlite3 *db) { return sqlite3_extended_errcode(db); }
int EXPORT(busy_timeout)(sqlite3 *db, int ms) { return sqlite3_busy_timeout(db, ms); }
int EXPORT(get_autocommit)(sqlite3 *db) { return sqlite3_get_autocommit(db); }
int EXPORT(txn_state)(sqlite3 *db) { return sqlite3_txn_state(db, "main"); }
int EXPORT(db_readonly)(sqlite3 *db) { return sqlite3_db_readonly(db, "main"); }
long long EXPORT(changes)(sqlite3 *db) { return sqlite3_changes64(db); }
long long EXPORT(total_changes)(sqlite3 *db) { return sqlite3_total_changes64(db); }
int EXPORT(enable_triggers)(sqlite3 *db, int on) { return sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, on, (int *)0); }

int EXPORT(defend)(sqlite3 *db) { return sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)0); }

int EXPORT(prepare)(sqlite3 *db, const char *sql, int length, sqlite3_stmt **statement, const char **tail) {
  return sqlite3_prepare_v2(db, sql, length, statement, tail);
}
int EXPORT(step)(sqlite3_stmt *s) { return sqlite3_step(s); }
int EXPORT(reset)(sqlite3_stmt *s) { return sqlite3_reset(s); }
int EXPORT(finalize)(sqlite3_stmt *s) { return sqlite3_finalize(s); }
int EXPORT(stmt_readonly)(sqlite3_stmt *s) { return sqlite3_stmt_readonly(s); }
int EXPORT(bind_null)(sqlite3_stmt *s, int i) { return sqlite3_bind_null(s, i); }
int EXPORT(bind_int64)(sqlite3_stmt *s, int i, long long v) { return sqlite3_bind_int64(s, i, v); }
int EXPORT(bind_double)(sqlite3_stmt *s, int i, double v) { return sqlite3_bind_double(s, i, v); }
int EXPORT(bind_text)(sqlite3_stmt *s, int i, const char *v, unsigned long long n) {
  return sqlite3_bind_text64(s, i, v, n, SQLITE_TRANSIENT, SQLITE_UTF8);
}
int EXPORT(bind_blob)(sqlite3_stmt *s, int i, const void *v, unsigned long long n) {
  return sqlite3_bind_blob64(s, i, v, n, SQLITE_TRANSIENT);
}
int EXPORT(column_count)(sqlite3_stmt *s) { return sqlite3_column_count(s); }
const char *EXPORT(column_name)(sqlite3_stmt *s, int i) { return sqlite3_column_name(s, i); }
int EXPORT(column_type)(sqlite3_stmt *s, int i) { return sqlite3_column_type(s, i); }
long long EXPORT(column_int64)(sqlite3_stmt *s, int i) { return sqlite3_column_int64(s, i); }
double EXPORT(column_double)(sqlite3_stmt *s, int i) { return sqlite3_column_double(s, i); }
const void *EXPORT(column_text)(sqlite3_stmt *s, int i) { return sqlite3_column_text(s, i); }
const void *EXPORT(column_blob)(sqlite3_stmt *s, int i) { return sqlite3_column_blob(s, i); }
int EXPORT(column_bytes)(sqlite3_stmt *s, int i) { return sqlite3_column_bytes(s, i); }

sqlite3_backup *EXPORT(backup_init)(sqlite3 *to, sqlite3 *from) { return sqlite3_backup_init(to, "main", from, "main"); }
int EXPORT(backup_step)(sqlite3_backup *b, int pages) { return sqlite3_backup_step(b, pages); }
int EXPORT(backup_finish)(sqlite3_backup *b) { return sqlite3_backup_finish(b); }

int EXPORT(session_create)(sqlite3 *db, sqlite3_session **out) { return sqlite3session_create(db, "main", out); }
void EXPORT(session_delete)(sqlite3_session *s) { sqlite3session_delete(s); }
int EXPORT(session_attach)(sqlite3_session *s, const char *table) { return sqlite3session_attach(s, table); }
int EXPORT(session_isempty)(sqlite3_session *s) { return sqlite3session_isempty(s); }
int EXPORT(session_changeset)(sqlite3_session *s, int *size, void **out) { return sqlite3session_changeset(s, size, out); }
int EXPORT(session_diff)(sqlite3_session *s, const char *from, const char *table) {
  return sqlite3session_diff(s, from, table, (char **)0);
}
int EXPORT(changeset_start)(sqlite3_changeset_iter **out, int size, void *bytes) {
  return sqlite3changeset_start(out, size, bytes);
}
int EXPORT(changeset_next)(sqlite3_changeset_iter *i) { return sqlite3changeset_next(i); }
int EXPORT(changeset_op)(sqlite3_changeset_iter *i, const char **table, int *columns, int *op) {
  int indirect;
  return sqlite3changeset_op(i, table, columns, op, &indirect);
}
int EXPORT(changeset_pk)(sqlite3_changeset_iter *i, unsigned char **pk, int *columns) {
  return sqlite3changeset_pk(i, pk, columns);
}
int EXPORT(changeset_old)(sqlite3_changeset_iter *i, int column, sqlite3_value **out) {
  return sqlite3changeset_old(i, column, out);
}
int EXPORT(changeset_new)(sqlite3_changeset_iter *i, int column, sqlite3_value **out) {
  return sqlite3changeset_new(i, column, out);
}
int EXPORT(changeset_finalize)(sqlite3_changeset_iter *i) { return sqlite3changeset_finalize(i); }
void EXPORT(free)(void *p) { sqlite3_free(p); }
int EXPORT(value_type)(sqlite3_value *v) { return sqlite3_value_type(v); }
long long EXPORT(value_int64)(sqlite3_value *v) { return sqlite3_value_int64(v); }
double EXPORT(value_double)(sqlite3_value *v) { return sqlite3_value_double(v); }
const void *EXPORT(value_text)(sqlite3_value *v) { return sqlite3_value_text(v); }
const void *EXPORT(value_blob)(sqlite3_value *v) { return sqlite3_value_blob(v); }
int EXPORT(value_bytes)(sqlite3_value *v) { return sqlite3_value_bytes(v); }

/*
** Refuses what ends or begins transactions and what opens other files, while a caller's own statements run inside a savepoint.
*/
static int guard(void *unused, int action, const char *a, const char *b, const char *c, const char *d) {
  (void)unused; (void)a; (void)b; (void)c; (void)d;
  switch( action ){
    case SQLITE_TRANSACTION: case SQLITE_SAVEPOINT: case SQLITE_ATTACH: case SQLITE_DETACH: return SQLITE_DENY;
    default: return SQLITE_OK;
  }
}
int EXPORT(guard)(sqlite3 *db, int on) { return sqlite3_set_authorizer(db, on ? guard : 0, 0); }

/*
** The descriptor of the database file, or -1. A second descriptor would not do: closing it drops the locks that this
** process has on the file.
*/
int EXPORT(descriptor)(sqlite3 *db) {
  sqlite3_file *file = 0;
  if( sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file)!=SQLITE_OK || file==0 || file->pMethods==0 ) return -1;
  return ((unixFile *)file)->h;
}

/*
** Whether the read transaction that is open sees exactly the database file: there is no WAL, or nothing of it is beyond what
** the file has. Such a reader holds the lock that keeps checkpoints from writing to the file.
*/
int EXPORT(reads_file)(sqlite3 *db) {
  Pager *pager = sqlite3BtreePager(db->aDb[0].pBt);
  if( sqlite3_txn_state(db, "main")<SQLITE_TXN_READ ) return 0;
  return pager->pWal==0 || pager->pWal->readLock==0;
}
