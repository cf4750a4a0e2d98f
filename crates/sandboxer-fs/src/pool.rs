//! A handful of threads that work through directories.
//!
//! The work is a stack: the newest task goes first, so a wide tree is walked depth first and the number of waiting tasks
//! stays near the depth times the width, never the size of the tree.

use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use sandboxer_core::{Error, Result};

/// Tasks that wait, and how many are being worked on.
pub struct Queue<T> {
    state: Mutex<State<T>>,
    wake: Condvar,
}

struct State<T> {
    waiting: Vec<T>,
    busy: usize,
    failed: Option<Error>,
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A panicking worker ends the whole call anyway; its lock says nothing more.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task.
    pub fn push(&self, task: T) {
        self.lock().waiting.push(task);
        self.wake.notify_one();
    }

    fn next(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.failed.is_some() {
                return None;
            }
            if let Some(task) = state.waiting.pop() {
                state.busy += 1;
                return Some(task);
            }
            if state.busy == 0 {
                return None;
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, result: Result<()>) {
        let mut state = self.lock();
        state.busy -= 1;
        if let Err(error) = result {
            state.failed.get_or_insert(error);
        }
        if state.failed.is_some() || (state.busy == 0 && state.waiting.is_empty()) {
            self.wake.notify_all();
        }
    }
}

/// Works through `first` and whatever tasks come up on the way, on up to `threads` threads. The first error ends it.
/// `make_worker` makes what a thread keeps to itself: buffers, partial results; they come back in the end.
pub fn work<T: Send, W: Send>(
    threads: usize,
    first: Vec<T>,
    make_worker: impl Fn() -> W + Sync,
    handle: impl Fn(&mut W, T, &Queue<T>) -> Result<()> + Sync,
) -> Result<Vec<W>> {
    let state = State { waiting: first, busy: 0, failed: None };
    let queue = Queue { state: Mutex::new(state), wake: Condvar::new() };
    let run = || {
        let mut worker = make_worker();
        while let Some(task) = queue.next() {
            let result = handle(&mut worker, task, &queue);
            queue.done(result);
        }
        worker
    };
    let workers = if threads <= 1 { vec![run()] } else { run_threads(threads, &run) };
    let failed = queue.lock().failed.take();
    failed.map_or(Ok(workers), Err)
}

fn run_threads<W: Send>(threads: usize, run: &(impl Fn() -> W + Sync)) -> Vec<W> {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut workers = vec![run()];
        for other in others {
            match other.join() {
                Ok(worker) => workers.push(worker),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        workers
    })
}

/// How many threads to use where nobody said.
pub fn default_threads() -> usize {
    // Asked once: the answer is in half a dozen files, which take longer to read than most calls.
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(2, usize::from).min(8))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_done_once() {
        for threads in [1, 4] {
            let workers = work(
                threads,
                vec![4_u32],
                || 0_u32,
                |count, task, queue| {
                    *count += 1;
                    (0..task).for_each(|child| queue.push(child));
                    Ok(())
                },
            );
            assert_eq!(workers.unwrap().iter().sum::<u32>(), 16);
        }
    }

    #[test]
    fn the_first_error_ends_the_work() {
        let result = work(
            3,
            (0..1000).collect(),
            || (),
            |(), task: u32, _| {
                if task == 500 { Err(Error::usage("stop")) } else { Ok(()) }
            },
        );
        assert_eq!(result.unwrap_err().to_string(), "stop");
    }
}
