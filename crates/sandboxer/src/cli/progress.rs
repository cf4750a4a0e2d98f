//! A bar for long work, on a terminal's stderr, and only once the work has lasted long enough to make somebody wonder.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sandboxer_core::contract::{NoProgress, Progress};

/// How long work is given before a bar appears: shorter work would only flicker.
const PATIENCE: Duration = Duration::from_millis(300);

/// A bar that hears of the library's long work.
#[derive(Default)]
pub struct Bar {
    entries: AtomicU64,
    bytes: AtomicU64,
    step: Mutex<Option<Step>>,
}

struct Step {
    name: String,
    total: Option<u64>,
    began: Instant,
    bar: Option<ProgressBar>,
}

/// A bar where there is a terminal to draw it on, silence elsewhere.
pub fn for_terminal(quiet: bool) -> Arc<dyn Progress> {
    if quiet || !std::io::stderr().is_terminal() { Arc::new(NoProgress) } else { Arc::new(Bar::default()) }
}

/// So many lines of what was left out are shown.
const MOST: usize = 10;

/// Tells of what was left out, whoever hears of the rest.
pub struct Telling {
    /// Hears of long work.
    pub work: Arc<dyn Progress>,
    /// Warns somebody.
    pub warn: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Progress for Telling {
    fn begin(&self, step: &str, total: Option<u64>) {
        self.work.begin(step, total);
    }

    fn advance(&self, entries: u64, bytes: u64) {
        self.work.advance(entries, bytes);
    }

    fn end(&self) {
        self.work.end();
    }

    fn left_out(&self, what: &[String]) {
        for one in what.iter().take(MOST) {
            (self.warn)(&format!("left out, or not as it was: {one}"));
        }
        if what.len() > MOST {
            (self.warn)(&format!("and {} more", what.len() - MOST));
        }
    }
}

impl Progress for Bar {
    fn begin(&self, step: &str, total: Option<u64>) {
        self.end();
        self.entries.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        let step = Step { name: step.to_owned(), total, began: Instant::now(), bar: None };
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = Some(step);
    }

    fn advance(&self, entries: u64, bytes: u64) {
        self.entries.fetch_add(entries, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Workers must not queue here: whoever finds the lock taken leaves the drawing to its holder.
        if let Ok(mut step) = self.step.try_lock()
            && let Some(step) = step.as_mut()
        {
            step.draw(self.entries.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        }
    }

    fn end(&self) {
        let step = self.step.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(bar) = step.and_then(|step| step.bar) {
            bar.finish_and_clear();
        }
    }
}

impl Step {
    fn draw(&mut self, entries: u64, bytes: u64) {
        if self.bar.is_none() && self.began.elapsed() >= PATIENCE {
            self.bar = Some(self.make_bar());
        }
        if let Some(bar) = &self.bar {
            bar.set_message(super::output::size(bytes));
            bar.set_position(entries);
        }
    }

    fn make_bar(&self) -> ProgressBar {
        let template = match self.total {
            Some(_) => "{prefix} [{bar:30}] {pos}/{len} {msg} {eta} left",
            None => "{prefix} {spinner} {pos} {msg}",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(self.total, ProgressDrawTarget::stderr());
        bar.with_style(style).with_prefix(self.name.clone()).with_elapsed(self.began.elapsed())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn short_work_shows_no_bar() {
        let bar = Bar::default();
        bar.begin("copy", Some(10));
        bar.advance(3, 300);
        assert!(bar.step.lock().unwrap().as_ref().unwrap().bar.is_none());
        assert_eq!(bar.entries.load(Ordering::Relaxed), 3);
        bar.end();
        assert!(bar.step.lock().unwrap().is_none());
    }

    #[test]
    fn what_is_left_out_is_told_up_to_a_point() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        let warn = Arc::new(move |text: &str| heard.lock().unwrap().push(text.to_owned()));
        let telling = Telling { work: Arc::new(NoProgress), warn };
        telling.left_out(&["pipe: a pipe".to_owned()]);
        assert_eq!(std::mem::take(&mut *told.lock().unwrap()), ["left out, or not as it was: pipe: a pipe"]);
        telling.left_out(&vec![String::new(); 13]);
        let told = told.lock().unwrap().clone();
        assert_eq!((told.len(), told[10].as_str()), (11, "and 3 more"));
    }

    #[test]
    fn long_work_shows_where_it_is() {
        let bar = Bar::default();
        bar.begin("copy", None);
        bar.step.lock().unwrap().as_mut().unwrap().began -= PATIENCE;
        bar.advance(5, 10);
        let shown = bar.step.lock().unwrap().as_ref().unwrap().bar.clone().unwrap();
        assert_eq!(shown.position(), 5);
        bar.begin("next", Some(1));
        assert!(shown.is_finished());
    }
}
