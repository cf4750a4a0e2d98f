//! Decisions, on trees that look like a cgroup filesystem.
