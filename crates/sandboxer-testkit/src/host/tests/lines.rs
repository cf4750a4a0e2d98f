//! What happens on the way to a machine.

use super::*;

fn bare() -> Result<RemoteHost, String> {
    RemoteHost::with(&Setup { engine: Engine::None, ..Setup::default() })
}

fn through(host: &RemoteHost, proxy: &CuttingProxy, script: &str, input: &str) -> Output {
    let mut ssh = Command::new("ssh");
    ssh.arg("-F").arg(host.ssh_config_through(proxy)).arg(host.name()).arg(script);
    feed(&mut ssh, input)
}

#[test]
fn a_plain_host_listens_on_loopback() {
    let host = host!(RemoteHost::plain());
    assert_eq!(told(&by_ssh(&host, "cat; pwd", "here\n")), "here\n/root");
    host.stop_sshd();
    let said = complained(&by_ssh(&host, "true", ""));
    assert!(said.contains("Connection refused"), "{said}");
    host.start_sshd();
    told(&by_ssh(&host, "true", ""));
}

#[test]
fn a_changed_key_an_unknown_one_and_a_refused_login_are_told_apart() {
    let host = host!(bare());
    host.new_host_key();
    let said = complained(&by_ssh(&host, "true", ""));
    assert!(said.contains("REMOTE HOST IDENTIFICATION HAS CHANGED"), "{said}");
    host.forget_host_key();
    let said = complained(&by_ssh(&host, "true", ""));
    assert!(said.contains("Host key verification failed"), "{said}");
    host.trust_host_key();
    told(&by_ssh(&host, "true", ""));
    host.refuse_logins();
    let said = complained(&by_ssh(&host, "true", ""));
    assert!(said.contains("Permission denied"), "{said}");
}

#[test]
fn connections_are_cut_from_the_other_side() {
    let host = host!(bare());
    let mut ssh = host.ssh();
    let mut waiting = ssh.arg("echo there; sleep 1000").stdout(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 6];
    std::io::Read::read_exact(waiting.stdout.as_mut().unwrap(), &mut said).unwrap();
    host.cut_connections();
    assert_eq!(waiting.wait().unwrap().code(), Some(255));
    told(&by_ssh(&host, "true", ""));
}

#[test]
fn a_paused_network_holds_back_and_goes_on() {
    let host = host!(bare());
    host!(program("iptables", "iptables"));
    host.pause_network();
    let mut ssh = host.ssh();
    let mut waiting = ssh.arg("echo there").stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(waiting.try_wait().unwrap().is_none());
    host.resume_network();
    assert_eq!(told(&waiting.wait_with_output().unwrap()), "there");
}

#[test]
fn a_proxy_passes_and_cuts_after_so_many_bytes_either_way() {
    let host = host!(bare());
    let proxy = CuttingProxy::to(&host);
    let much = "x".repeat(100_000);
    assert_eq!(told(&through(&host, &proxy, "cat", &much)), much);
    assert!(proxy.passed(Way::There) > 100_000 && proxy.passed(Way::Back) > 100_000);
    let before = proxy.passed(Way::There);
    proxy.cut_after(Way::There, 50_000);
    complained(&through(&host, &proxy, "cat > there", &much));
    assert_eq!(proxy.passed(Way::There) - before, 50_000);
    let before = proxy.passed(Way::Back);
    proxy.cut_after(Way::Back, 50_000);
    complained(&through(&host, &proxy, "head -c 100000 /dev/zero", ""));
    assert_eq!(proxy.passed(Way::Back) - before, 50_000);
    assert_eq!(told(&through(&host, &proxy, "cat", &much)), much);
}

#[test]
fn a_proxy_refuses_for_good_stalls_and_cuts_at_once() {
    let host = host!(bare());
    let proxy = CuttingProxy::to(&host);
    proxy.cut_for_good_after(Way::There, 10);
    complained(&through(&host, &proxy, "true", ""));
    complained(&through(&host, &proxy, "true", ""));
    assert_eq!(proxy.connections(), 2);
    proxy.admit();
    proxy.stall();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| through(&host, &proxy, "echo there", ""));
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!waiting.is_finished());
        proxy.resume();
        assert_eq!(told(&waiting.join().unwrap()), "there");
        let waiting = scope.spawn(|| through(&host, &proxy, "touch begun; sleep 1000", ""));
        while !host.home().join("begun").exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        proxy.cut();
        complained(&waiting.join().unwrap());
    });
}
