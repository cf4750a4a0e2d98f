//! Kinds of sandboxes that histories are played on.

/// What the histories are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    OverlayAsRoot,
    OverlayAsUser,
    Copy,
    Reflink,
    Git,
}

impl Kind {
    pub fn strategy(self) -> &'static str {
        match self {
            Self::OverlayAsRoot | Self::OverlayAsUser => "overlay",
            Self::Copy => "filesystem_copy",
            Self::Reflink => "copy_on_write",
            Self::Git => "git_worktree",
        }
    }

    pub fn looks_through(self) -> bool {
        matches!(self, Self::OverlayAsRoot | Self::OverlayAsUser | Self::Git)
    }

    pub fn can_refresh(self) -> bool {
        matches!(self, Self::OverlayAsRoot | Self::OverlayAsUser)
    }

    /// The directories that sandboxes are made from.
    pub fn prefixes(self) -> &'static [&'static str] {
        if self == Self::Git { &["", ""] } else { &["", "", "d"] }
    }
}
