//! What the kernel tells of an entry, and what follows when it tells the same again.

use std::os::fd::AsFd;

use rustix::fs::{Statx, StatxFlags};
use sandboxer_core::model::NodeType;
use serde::{Deserialize, Serialize};

/// The identity and age of one entry at one moment.
///
/// Programs can set every field but `ctime` and `btime`. So an entry whose stamp is equal, ctime included, is the same
/// inode and has not been touched. Stamps are compared for equality and never for order: a clock that was stepped back
/// changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Last modification, nanoseconds since 1970.
    pub mtime: i64,
    /// Last change of anything, nanoseconds since 1970.
    pub ctime: i64,
    /// Birth, nanoseconds since 1970; 0 where the filesystem has none that lasts.
    pub btime: i64,
    /// File type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Device, for telling mounts apart; not part of any comparison across reboots.
    #[serde(skip)]
    pub dev: u64,
    /// 512-byte blocks in use, for telling sparse files.
    #[serde(skip)]
    pub blocks: u64,
}

/// What the births that a filesystem tells are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Births {
    /// An inode has one birth.
    Lasting,
    /// An overlay copies a file up when it is first changed: that keeps the inode's number and has another birth.
    Changing,
}

const OVERLAY_MAGIC: u64 = 0x794c_7630;

impl Births {
    /// Those of the filesystem that an open file is on.
    pub fn of(fd: impl AsFd) -> rustix::io::Result<Self> {
        let is_overlay = rustix::fs::fstatfs(fd)?.f_type as u64 == OVERLAY_MAGIC;
        Ok(if is_overlay { Self::Changing } else { Self::Lasting })
    }
}

const TYPE_MASK: u32 = 0o170_000;

impl Stamp {
    /// What to ask the kernel for.
    pub const MASK: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

    /// From the kernel's answer.
    pub fn from_statx(stat: &Statx, births: Births) -> Self {
        let nanos = |sec: i64, nsec: u32| sec.saturating_mul(1_000_000_000).saturating_add(i64::from(nsec));
        Self {
            ino: stat.stx_ino,
            size: stat.stx_size,
            mtime: nanos(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            ctime: nanos(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            btime: match births {
                Births::Lasting => nanos(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
                Births::Changing => 0,
            },
            mode: u32::from(stat.stx_mode),
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            nlink: stat.stx_nlink,
            dev: (u64::from(stat.stx_dev_major) << 32) | u64::from(stat.stx_dev_minor),
            blocks: stat.stx_blocks,
        }
    }

    /// What it is.
    pub fn node_type(&self) -> NodeType {
        match self.mode & TYPE_MASK {
            0o100_000 => NodeType::File,
            0o040_000 => NodeType::Directory,
            0o120_000 => NodeType::Symlink,
            0o010_000 => NodeType::Fifo,
            0o140_000 => NodeType::Socket,
            _ => NodeType::Device,
        }
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.node_type() == NodeType::File
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.node_type() == NodeType::Directory
    }

    /// Permission bits, setuid, setgid and sticky among them.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// The same entry at a time that is not known: whatever is found later has moved on from it.
    pub fn at_unknown_time(self) -> Self {
        Self { ctime: i64::MIN, ..self }
    }

    /// Whether it is known what the entry was.
    pub fn is_known(&self) -> bool {
        self.ctime != i64::MIN
    }

    /// Whether nothing at all has been done to the entry between two stamps.
    pub fn untouched(&self, later: &Stamp) -> bool {
        self.ctime == later.ctime && self.same_inode(later) && self.same_state(later)
    }

    /// Whether both are one inode (a number can be used again; its birth cannot).
    pub fn same_inode(&self, other: &Stamp) -> bool {
        self.ino == other.ino && self.btime == other.btime
    }

    /// Whether type, mode, owner, size and mtime agree: all that survives a rename or a change of the link count.
    pub fn same_state(&self, other: &Stamp) -> bool {
        self.mode == other.mode
            && self.same_owner(other)
            && self.size == other.size
            && self.mtime == other.mtime
    }

    /// Whether the owner agrees.
    pub fn same_owner(&self, other: &Stamp) -> bool {
        self.uid == other.uid && self.gid == other.gid
    }

    /// Whether the file takes noticeably fewer blocks than its size needs.
    pub fn looks_sparse(&self) -> bool {
        self.is_file() && self.blocks.saturating_mul(512) < self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ctime_that_went_back_counts_as_touched() {
        let base = Stamp { ino: 7, ctime: 1_000, ..Stamp::default() };
        let stepped_back = Stamp { ctime: 900, ..base };
        assert!(base.untouched(&base));
        assert!(!base.untouched(&stepped_back));
    }

    #[test]
    fn a_reused_inode_number_is_another_inode() {
        let base = Stamp { ino: 7, btime: 5, ..Stamp::default() };
        assert!(!base.same_inode(&Stamp { btime: 6, ..base }));
    }
}
