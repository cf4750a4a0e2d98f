//! Whose turn it is: the session is one client's from the first statement of a transaction to its end.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Who has the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub id: u64,
    /// In words.
    pub name: String,
    /// Since when.
    pub since: Instant,
}

/// One session for many, in the order in which they ask.
#[derive(Debug, Default)]
pub struct Turn {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    holder: Option<Holder>,
    waiting: VecDeque<u64>,
    tickets: u64,
    stopped: bool,
}

impl State {
    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }
}

impl Turn {
    /// Waits for the turn; who has it, where that takes too long. Nobody gets it any more after [`Turn::stop`].
    pub fn take(&self, id: u64, name: &str, patience: Duration) -> Result<(), Option<Holder>> {
        let mut state = self.lock();
        let ticket = state.ticket();
        state.waiting.push_back(ticket);
        drop(state);
        self.wait(ticket, id, name, patience, &|_| {})
    }

    /// The same before everybody else; `ask` is called for everyone who has it meanwhile.
    pub fn take_first(
        &self,
        id: u64,
        name: &str,
        patience: Duration,
        ask: &dyn Fn(&Holder),
    ) -> Result<(), Option<Holder>> {
        let mut state = self.lock();
        let ticket = state.ticket();
        state.waiting.push_front(ticket);
        drop(state);
        self.wait(ticket, id, name, patience, ask)
    }

    fn wait(
        &self,
        ticket: u64,
        id: u64,
        name: &str,
        patience: Duration,
        ask: &dyn Fn(&Holder),
    ) -> Result<(), Option<Holder>> {
        let mut asked = None;
        let mut state = self.lock();
        let deadline = Instant::now() + patience;
        loop {
            let first = state.waiting.front() == Some(&ticket);
            if first && state.holder.is_none() && !state.stopped {
                state.waiting.pop_front();
                state.holder = Some(Holder { id, name: name.to_owned(), since: Instant::now() });
                return Ok(());
            }
            if let Some(holder) = state.holder.clone()
                && asked.replace(holder.id) != Some(holder.id)
            {
                drop(state);
                ask(&holder);
                state = self.lock();
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.stopped {
                state.waiting.retain(|waiting| *waiting != ticket);
                self.changed.notify_all();
                return Err(state.holder.clone());
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives it back.
    pub fn give(&self, id: u64) {
        let mut state = self.lock();
        if state.holder.as_ref().is_some_and(|holder| holder.id == id) {
            state.holder = None;
            if !state.waiting.is_empty() {
                self.changed.notify_all();
            }
        }
    }

    /// Who has it.
    pub fn holder(&self) -> Option<Holder> {
        self.lock().holder.clone()
    }

    /// Sends everybody away, for good.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn one_at_a_time_and_whoever_waits_too_long_is_told_for_whom() {
        let turn = Turn::default();
        turn.take(1, "one", LONG).unwrap();
        let holder = turn.take(2, "two", Duration::ZERO).unwrap_err().unwrap();
        assert_eq!((holder.id, holder.name.as_str()), (1, "one"));
        turn.give(2);
        assert!(turn.take(2, "two", Duration::ZERO).is_err());
        turn.give(1);
        turn.take(2, "two", Duration::ZERO).unwrap();
    }

    #[test]
    fn everybody_gets_a_turn_and_nobody_after_the_end() {
        let turn = Arc::new(Turn::default());
        let threads: Vec<_> = (1..9)
            .map(|id| {
                let turn = turn.clone();
                thread::spawn(move || {
                    for _ in 0..100 {
                        turn.take(id, "x", LONG).unwrap();
                        assert_eq!(turn.holder().unwrap().id, id);
                        turn.give(id);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        turn.take(1, "x", LONG).unwrap();
        let waiting = {
            let turn = turn.clone();
            thread::spawn(move || turn.take(2, "y", LONG))
        };
        turn.stop();
        assert!(waiting.join().unwrap().is_err());
    }
}
