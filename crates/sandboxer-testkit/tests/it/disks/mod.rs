//! Loop-mounted disks that are full, damaged, cut off or mounted again.

mod broken;
mod clocks;
mod fixed;
mod git;
mod layered;
mod out_of_space;
mod power_cut;
