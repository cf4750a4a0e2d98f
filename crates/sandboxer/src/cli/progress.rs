//! A bar for long work, on a terminal's stderr, and only once the work has lasted long enough to make somebody wonder.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sandboxer_core::contract::{NoProgress, Progress};

/// How long work is given before a bar appears: shorter work would only flicker.
const PATIENCE: Duration = Duration::from_millis(300);

/// How often it shows that something goes on, also where nobody says how far it is.
const BEAT: Duration = Duration::from_millis(100);

/// A bar that hears of the library's long work.
#[derive(Default)]
pub struct Bar {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    entries: AtomicU64,
    bytes: AtomicU64,
    step: Mutex<Option<Step>>,
}

struct Step {
    name: String,
    total: Option<u64>,
    /// Of this step, or of those that it goes on from.
    began: Instant,
    bar: Option<ProgressBar>,
    _pulse: Pulse,
}

/// A thread that draws, as long as this lives. It is over when this is dropped: whoever works next may have to be alone.
struct Pulse(Option<(Sender<()>, JoinHandle<()>)>);

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
        let before = self.shared.finish();
        self.shared.entries.store(0, Ordering::Relaxed);
        self.shared.bytes.store(0, Ordering::Relaxed);
        let began = before.map_or_else(Instant::now, |before| before.began);
        let _pulse = Pulse::of(&self.shared);
        *self.shared.step() = Some(Step { name: step.to_owned(), total, began, bar: None, _pulse });
    }

    fn advance(&self, entries: u64, bytes: u64) {
        self.shared.entries.fetch_add(entries, Ordering::Relaxed);
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.shared.draw();
    }

    fn end(&self) {
        self.shared.finish();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn step(&self) -> MutexGuard<'_, Option<Step>> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Workers must not queue here: whoever finds the lock taken leaves the drawing to its holder.
    fn draw(&self) {
        if let Ok(mut step) = self.step.try_lock()
            && let Some(step) = step.as_mut()
        {
            step.draw(self.entries.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        }
    }

    fn finish(&self) -> Option<Step> {
        let step = self.step().take();
        if let Some(bar) = step.as_ref().and_then(|step| step.bar.as_ref()) {
            bar.finish_and_clear();
        }
        step
    }
}

impl Pulse {
    fn of(shared: &Arc<Shared>) -> Self {
        let (sender, stop) = channel();
        let shared = Arc::clone(shared);
        let beat = move || {
            while stop.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                shared.draw();
            }
        };
        // Without a thread it is drawn when somebody says how far it is.
        Self(std::thread::Builder::new().spawn(beat).ok().map(|thread| (sender, thread)))
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

impl Step {
    fn draw(&mut self, entries: u64, bytes: u64) {
        if self.bar.is_none() && self.began.elapsed() >= PATIENCE {
            self.bar = Some(self.make_bar());
        }
        if let Some(bar) = &self.bar {
            bar.set_message(self.told(entries, bytes));
            bar.set_position(entries);
            bar.tick();
        }
    }

    /// How far it is; how long it has taken, where nobody says that.
    fn told(&self, entries: u64, bytes: u64) -> String {
        match (self.total, entries, bytes) {
            (None, 0, 0) => format!("{} s", self.began.elapsed().as_secs()),
            (None, ..) => format!("{entries} {}", super::output::size(bytes)),
            (Some(_), ..) => super::output::size(bytes),
        }
    }

    fn make_bar(&self) -> ProgressBar {
        let template = match self.total {
            Some(_) => "{prefix} [{bar:30}] {pos}/{len} {msg} {eta} left",
            None => "{prefix} {spinner} {msg}",
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
        assert!(bar.shared.step().as_ref().unwrap().bar.is_none());
        assert_eq!(bar.shared.entries.load(Ordering::Relaxed), 3);
        bar.end();
        assert!(bar.shared.step().is_none());
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
        bar.shared.step().as_mut().unwrap().began -= PATIENCE;
        bar.advance(5, 10);
        let shown = bar.shared.step().as_ref().unwrap().bar.clone().unwrap();
        assert_eq!(shown.position(), 5);
        bar.begin("next", Some(1));
        assert!(shown.is_finished());
    }

    /// A command on another machine says nothing for minutes.
    #[test]
    fn work_that_says_nothing_is_seen_to_go_on_from_one_step_to_the_next() {
        let bar = Bar::default();
        bar.begin("first", None);
        let began = bar.shared.step().as_ref().unwrap().began;
        bar.begin("second", None);
        let until = Instant::now() + Duration::from_secs(30);
        while bar.shared.step().as_ref().unwrap().bar.is_none() {
            assert!(Instant::now() < until, "it was never drawn");
            std::thread::sleep(BEAT);
        }
        let shared = Arc::clone(&bar.shared);
        assert_eq!(shared.step().as_ref().unwrap().began, began);
        assert_eq!(shared.step().as_ref().unwrap().told(0, 0), format!("{} s", began.elapsed().as_secs()));
        drop(bar);
        assert!(shared.step().is_none() && Arc::strong_count(&shared) == 1, "a thread is left");
    }
}
