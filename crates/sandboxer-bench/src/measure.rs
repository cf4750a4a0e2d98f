//! How a number comes about. A process is spawned and waited for with `wait4`, which gives its wall time and its peak
//! memory; two sides are measured in turn (A B A B …) after one round that does not count, so that drift of the machine
//! meets both; the median of each side is kept.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use wait4::Wait4;

use crate::failure::{During, Failure, Result};
use crate::interrupt::{Interrupt, Watch};

/// What one run took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// From before the spawn until after the wait.
    pub wall: Duration,
    /// Peak resident memory in bytes; 0 for what was not a process of its own.
    pub peak: u64,
}

impl Sample {
    /// A sample of something that was no process of its own.
    pub fn in_process(wall: Duration) -> Self {
        Self { wall, peak: 0 }
    }
}

/// The samples of both sides, round by round.
#[derive(Clone, Debug, Default)]
pub struct Sides {
    /// Ours.
    pub ours: Vec<Sample>,
    /// What it is compared with.
    pub theirs: Vec<Sample>,
}

impl Sides {
    /// Median of each side in milliseconds.
    pub fn medians(&self) -> (f64, f64) {
        (median_ms(&self.ours), median_ms(&self.theirs))
    }

    /// The smallest and the largest ratio of any one round.
    pub fn spread(&self) -> (f64, f64) {
        let ratios = self.ours.iter().zip(&self.theirs).map(|(a, b)| ratio(millis(a.wall), millis(b.wall)));
        ratios.fold((f64::INFINITY, 0.0), |(low, high), r| (low.min(r), high.max(r)))
    }
}

/// Runs `command` with its output going to the file `output`; any exit code outside `accepted` is a failure.
///
/// The output goes to a file rather than to `/dev/null`, because some tools work less when nobody can be reading. What
/// it says on stderr goes to a file beside it, and into the error.
pub fn run(command: &mut Command, output: &Path, accepted: &[i32]) -> Result<Sample> {
    let errors = output.with_extension("stderr");
    let stdout = File::create(output).during("create", output)?;
    let stderr = File::create(&errors).during("create", &errors)?;
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    let started = Instant::now();
    let mut child = command.spawn().during("start", Path::new(command.get_program()))?;
    let watch = Watch::over(&child);
    let used = child.wait4().during("wait for", Path::new(command.get_program()))?;
    let wall = started.elapsed();
    drop(watch);
    match used.status.code() {
        Some(code) if accepted.contains(&code) => Ok(Sample { wall, peak: used.rusage.maxrss }),
        _ => {
            let said = fs::read_to_string(&errors).unwrap_or_default();
            Err(Failure::new(format!("{} ended with {}: {}", shown(command), used.status, said.trim())))
        }
    }
}

/// Measures both sides in turn: one round to warm the caches, then `rounds` that count.
pub fn interleave(
    rounds: usize,
    interrupt: &Interrupt,
    ours: impl FnMut() -> Result<Sample>,
    theirs: impl FnMut() -> Result<Sample>,
) -> Result<Sides> {
    let mut sides = interleave_cold(rounds + 1, interrupt, ours, theirs)?;
    sides.ours.remove(0);
    sides.theirs.remove(0);
    Ok(sides)
}

/// Measures both sides in turn, where a round is too long to spend one on the caches: each of them counts.
pub fn interleave_cold(
    rounds: usize,
    interrupt: &Interrupt,
    mut ours: impl FnMut() -> Result<Sample>,
    mut theirs: impl FnMut() -> Result<Sample>,
) -> Result<Sides> {
    let mut sides = Sides::default();
    for _ in 0..rounds {
        sides.ours.push(stoppable(&mut ours, interrupt)?);
        sides.theirs.push(stoppable(&mut theirs, interrupt)?);
    }
    Ok(sides)
}

/// One side. A run that failed because the user wants to stop counts as that and not as a failure.
fn stoppable(side: &mut impl FnMut() -> Result<Sample>, interrupt: &Interrupt) -> Result<Sample> {
    let sample = side();
    interrupt.check().and(sample)
}

/// The middle value, or the mean of the two middle ones; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => sorted[n / 2 - 1].midpoint(sorted[n / 2]),
    }
}

/// Median wall time in milliseconds.
pub fn median_ms(samples: &[Sample]) -> f64 {
    median(&samples.iter().map(|s| millis(s.wall)).collect::<Vec<_>>())
}

/// How many times `theirs` ours is.
pub fn ratio(ours: f64, theirs: f64) -> f64 {
    if theirs > 0.0 { ours / theirs } else { f64::INFINITY }
}

/// A duration in milliseconds.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::RefCell;

    use super::*;

    fn sample(ms: u64) -> Sample {
        Sample::in_process(Duration::from_millis(ms))
    }

    #[test]
    fn the_median_is_the_middle_of_unsorted_values() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[7.0]), 7.0);
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), 3.0);
    }

    #[test]
    fn a_ratio_to_nothing_is_never_good() {
        assert_eq!(ratio(1.0, 4.0), 0.25);
        assert!(ratio(1.0, 0.0).is_infinite());
    }

    #[test]
    fn sides_give_medians_and_the_spread_of_rounds() {
        let sides = Sides {
            ours: vec![sample(10), sample(30), sample(20)],
            theirs: vec![sample(40), sample(40), sample(50)],
        };
        assert_eq!(sides.medians(), (20.0, 40.0));
        assert_eq!(sides.spread(), (0.25, 0.75));
    }

    #[test]
    fn rounds_alternate_and_the_first_does_not_count() {
        let order = RefCell::new(String::new());
        let side = |name: char| {
            order.borrow_mut().push(name);
            Ok(sample(order.borrow().len() as u64))
        };
        let sides = interleave(2, &Interrupt::default(), || side('A'), || side('B')).unwrap();
        assert_eq!(order.into_inner(), "ABABAB");
        assert_eq!(sides.ours, [sample(3), sample(5)]);
        assert_eq!(sides.theirs, [sample(4), sample(6)]);
    }

    #[test]
    fn a_process_is_measured_and_its_output_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let output = scratch.path().join("out");
        let sample = run(Command::new("/bin/echo").arg("hi"), &output, &[0]).unwrap();
        assert!(sample.peak > 100_000, "{sample:?}");
        assert_eq!(std::fs::read_to_string(output).unwrap(), "hi\n");
    }

    #[test]
    fn an_unexpected_exit_code_is_a_failure_that_names_the_command() {
        let scratch = tempfile::tempdir().unwrap();
        let output = scratch.path().join("out");
        let mut fails = Command::new("/bin/sh");
        fails.args(["-c", "echo no luck >&2; exit 3"]);
        assert!(run(&mut fails, &output, &[0, 3]).is_ok());
        let message = run(&mut fails, &output, &[0]).unwrap_err().to_string();
        assert!(message.contains("/bin/sh -c") && message.ends_with("no luck"), "{message}");
    }
}
