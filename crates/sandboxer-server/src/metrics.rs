//! What Prometheus is told: requests by route and answer, how long they took, who listens, and what is in the store.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::{Method, StatusCode};

/// Upper bounds of the classes of durations, in seconds.
const BOUNDS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];

/// Counters of this process.
#[derive(Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<(MethodName, String, u16), Series>>,
    /// How many follow the events.
    pub followers: AtomicI64,
    /// How many commands run by request.
    pub commands: AtomicI64,
    /// How many connections there are.
    pub connections: AtomicI64,
    /// How many events were read from the outbox.
    pub events: AtomicU64,
}

/// A method's name: `Method` itself has no order.
type MethodName = String;

#[derive(Clone, Copy, Default)]
struct Series {
    count: u64,
    seconds: f64,
    classes: [u64; BOUNDS.len()],
}

/// Counts one up as long as it lives.
pub struct Gauge<'a>(&'a AtomicI64);

impl<'a> Gauge<'a> {
    /// One more.
    pub fn up(counter: &'a AtomicI64) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Gauge<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// One more answer.
    pub fn count(&self, method: &Method, route: &str, status: StatusCode, took: Duration) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        // Methods and routes that nobody knows are one: a client must not make up series.
        let method = if *method == Method::GET || known(method) { method.as_str() } else { "other" };
        let key = (method.to_owned(), route.to_owned(), status.as_u16());
        let series = requests.entry(key).or_default();
        series.count += 1;
        series.seconds += took.as_secs_f64();
        for (class, bound) in series.classes.iter_mut().zip(BOUNDS) {
            *class += u64::from(took.as_secs_f64() <= bound);
        }
    }

    /// All of it, with how many sandboxes are in which state.
    pub fn text(&self, sandboxes: &[(String, u64)]) -> String {
        let mut text = String::new();
        self.write_requests(&mut text);
        family(&mut text, "sandboxer_sandboxes", "gauge", "Sandboxes by state.");
        for (state, count) in sandboxes {
            let _ = writeln!(text, "sandboxer_sandboxes{{state=\"{state}\"}} {count}");
        }
        for (name, help, counter) in [
            ("sandboxer_event_followers", "Clients that follow the events.", &self.followers),
            ("sandboxer_commands_running", "Commands that run by request.", &self.commands),
            ("sandboxer_connections", "Open connections.", &self.connections),
        ] {
            family(&mut text, name, "gauge", help);
            let _ = writeln!(text, "{name} {}", counter.load(Ordering::Relaxed));
        }
        family(&mut text, "sandboxer_events_total", "counter", "Events read from the outbox.");
        let _ = writeln!(text, "sandboxer_events_total {}", self.events.load(Ordering::Relaxed));
        text
    }

    fn write_requests(&self, text: &mut String) {
        const NAME: &str = "sandboxer_request_seconds";
        family(text, NAME, "histogram", "How long requests took, by route and answer.");
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        for ((method, route, status), series) in &*requests {
            let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
            for (class, bound) in series.classes.iter().zip(BOUNDS) {
                let _ = writeln!(text, "{NAME}_bucket{{{labels},le=\"{bound}\"}} {class}");
            }
            let _ = writeln!(text, "{NAME}_bucket{{{labels},le=\"+Inf\"}} {}", series.count);
            let _ = writeln!(text, "{NAME}_sum{{{labels}}} {}", series.seconds);
            let _ = writeln!(text, "{NAME}_count{{{labels}}} {}", series.count);
        }
    }
}

fn known(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::DELETE, Method::HEAD].contains(method)
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_and_answer() {
        let metrics = Metrics::default();
        let count = |method: Method, millis| {
            metrics.count(&method, "/v1/sandboxes/{id}", StatusCode::OK, Duration::from_millis(millis));
        };
        count(Method::GET, 3);
        count(Method::GET, 30);
        count(Method::from_bytes(b"ODD").unwrap_or_default(), 3);
        let _follower = Gauge::up(&metrics.followers);
        let text = metrics.text(&[("ready".into(), 2)]);
        let labels = "method=\"GET\",route=\"/v1/sandboxes/{id}\",status=\"200\"";
        for line in [
            format!("sandboxer_request_seconds_bucket{{{labels},le=\"0.005\"}} 1"),
            format!("sandboxer_request_seconds_bucket{{{labels},le=\"+Inf\"}} 2"),
            format!("sandboxer_request_seconds_count{{{labels}}} 2"),
            "sandboxer_sandboxes{state=\"ready\"} 2".to_owned(),
            "sandboxer_event_followers 1".to_owned(),
        ] {
            assert!(text.lines().any(|told| told == line), "{line}\n{text}");
        }
        assert!(text.contains("method=\"other\"") && !text.contains("ODD"));
    }
}
