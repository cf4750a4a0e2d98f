//! What a process does about its own limits where no cgroup does it.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::{By, Enforcement};
use crate::local::Limits;

/// Applies to the calling process, and to what it starts from now on, those limits that `enforcement` leaves to it. Called before the command is
/// executed and before there is a second thread; a limit cannot be raised again without privileges.
pub fn apply_fallback(limits: &Limits, enforcement: &Enforcement) -> io::Result<()> {
    if let (By::Rlimit, Some(bytes)) = (&enforcement.memory, limits.memory) {
        lower(Resource::As, bytes)?;
    }
    if let (By::Rlimit, Some(count)) = (&enforcement.pids, limits.pids) {
        lower(Resource::Nproc, count)?;
    }
    if let (By::Affinity, Some(cpus)) = (&enforcement.cpus, limits.cpus) {
        stay_on(cpus)?;
    }
    Ok(())
}

/// A stricter limit that is there already stays.
fn lower(resource: Resource, to: u64) -> io::Result<()> {
    let now = getrlimit(resource);
    let least = |limit: Option<u64>| Some(limit.map_or(to, |limit| limit.min(to)));
    Ok(setrlimit(resource, Rlimit { current: least(now.current), maximum: least(now.maximum) })?)
}

fn stay_on(cpus: f64) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let mut chosen = CpuSet::new();
    choice(&allowed, cpus, sched_getcpu()).for_each(|cpu| chosen.set(cpu));
    Ok(sched_setaffinity(None, &chosen)?)
}

/// As many of the `allowed` processors as `cpus` needs, from `first` onwards: runtimes that start on different processors stay on different ones.
fn choice(allowed: &[usize], cpus: f64, first: usize) -> impl Iterator<Item = usize> {
    // Conversion from float saturates, so that no number is too large, and one processor is the least there is.
    let count = (cpus.ceil() as usize).clamp(1, allowed.len().max(1));
    let start = allowed.iter().position(|cpu| *cpu >= first).unwrap_or(0);
    allowed.iter().cycle().skip(start).take(count.min(allowed.len())).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_processor_need_a_whole_one() {
        let chosen = |cpus, first| choice(&[0, 1, 4, 5], cpus, first).collect::<Vec<_>>();
        assert_eq!(chosen(0.5, 0), [0]);
        assert_eq!(chosen(1.5, 4), [4, 5]);
        assert_eq!(chosen(2.0, 5), [5, 0]);
        assert_eq!(chosen(64.0, 2), [4, 5, 0, 1]);
        assert_eq!(chosen(1.0, 9), [0]);
        assert_eq!(choice(&[], 1.0, 0).count(), 0);
    }
}
