//! Loop-mounted disks that are full, damaged, cut off or mounted again.

mod broken;
mod clocks;
mod full;
mod git;
mod power_cut;
