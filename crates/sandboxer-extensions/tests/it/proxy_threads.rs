//! Threads of the proxy, counted in a process that has no other test in it.

use std::io::{Read, Write};

use crate::proxy::support::{serve, start, wait_until};

/// How many threads of this process a proxy has started.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "proxy").count()
}

#[test]
fn clients_that_vanish_leave_no_thread() {
    let server = serve(|mut stream| {
        let piece = vec![0; 1 << 16];
        while stream.write_all(&piece).is_ok() {}
    });
    let proxy = start(&[&server.to_string()]);
    let mut streams: Vec<_> = (0..20).map(|_| proxy.tunnel(server)).collect();
    assert_eq!(threads(), 20);
    for stream in &mut streams {
        stream.read_exact(&mut [0; 1 << 12]).unwrap();
    }
    drop(streams);
    wait_until("threads remain", || threads() == 0);
    let kept = proxy.tunnel(server);
    assert_eq!(threads(), 1);
    drop(proxy);
    wait_until("a thread outlives its proxy", || threads() == 0);
    drop(kept);
}
