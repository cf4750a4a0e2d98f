//! SQLite as sandboxer needs it: clones of live databases, differences by page, changesets.
