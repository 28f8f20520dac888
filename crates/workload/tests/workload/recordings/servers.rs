//! Servers that a command talks to, and who stands in for them.

use super::*;

/// A client's request goes to the server that is ready. It then waits for what only the other one's work brings about: that gets its
/// request all the same.
#[test]
fn a_server_that_another_stands_in_for_gets_its_request() {
    let by = |task| [What::Sleep(1_000, Why::Task), What::By(task)];
    let mut tasks: [(&str, Vec<What>); 4] =
        [("client", vec![]), ("server", vec![]), ("server", vec![]), ("log", vec![])];
    for _ in 0..12 {
        for server in [1, 2] {
            tasks[0].1.push(What::Post(server, false));
            tasks[0].1.extend(by(server));
            tasks[server as usize].1.extend(by(0));
            tasks[server as usize].1.extend([What::Run(1_000), What::Post(0, false)]);
        }
    }
    tasks[0].1.push(What::Post(1, false));
    tasks[0].1.extend(by(3));
    tasks[0].1.push(What::Post(2, false));
    tasks[1].1.push(What::Run(10_000_000));
    tasks[1].1.extend(by(0));
    tasks[1].1.push(What::Post(3, false));
    tasks[2].1.extend(by(0));
    tasks[3].1.extend(by(1));
    tasks[3].1.push(What::Post(0, false));
    let s = simulated("4c", played(tasks));
    assert_eq!(s.outcome, Outcome::Finished);
    assert_eq!(user_ns(&s), 24 * 1_000 + 10_000_000);
}

#[test]
fn servers_that_the_command_talks_to_are_replayed() {
    // A server that was there before exchanges three wake-ups with the command; a daemon that it wakes once is left out.
    let mut text = String::from(
        "sh-10 [000] ..... 1.000000: sched_process_exec: filename=/bin/client pid=10 old_pid=10\n\
         client-10 [000] d..2. 1.000001: sched_waking: comm=logd pid=50 prio=120 target_cpu=001\n\
         <idle>-0 [001] d..2. 1.000002: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=logd next_pid=50 next_prio=120\n\
         logd-50 [001] d..2. 1.000003: sched_switch: prev_comm=logd prev_pid=50 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120\n",
    );
    for n in 0..4u64 {
        let t = |us: u64| format!("1.{:06}", 100 * (n + 1) + us);
        text += &format!(
            "client-10 [000] d..2. {}: sched_waking: comm=server pid=40 prio=120 target_cpu=001\n\
             client-10 [000] d..2. {}: sched_switch: prev_comm=client prev_pid=10 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120\n\
             <idle>-0 [001] d..2. {}: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=server next_pid=40 next_prio=120\n\
             server-40 [001] d..2. {}: sched_waking: comm=client pid=10 prio=120 target_cpu=000\n\
             server-40 [001] d..2. {}: sched_switch: prev_comm=server prev_pid=40 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120\n\
             <idle>-0 [000] d..2. {}: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=client next_pid=10 next_prio=120\n",
            t(0),
            t(1),
            t(2),
            t(22),
            t(23),
            t(24)
        );
    }
    let (w, r) = build(&text, &small()).expect("a recording");
    assert_eq!((r.tasks, r.outside), (2, 1), "{r}");
    assert_eq!(r.partners, [("server".to_string(), 1)]);
    let s = simulated("2c", w);
    assert_eq!(s.outcome, Outcome::Finished);
    // Requests and replies take turns: the client sleeps for each.
    let client = s.tasks.iter().find(|t| t.name.starts_with("client")).expect("the client");
    assert!(client.run.switches >= 4, "{}", client.run.switches);
}

/// A client asks servers that stay: each request is served once, and no more are open than allowed.
#[test]
fn a_fitted_client_waits_for_replies() {
    for servers in [1u64, 2] {
        let text = format!(
            "schema = 1\nform = \"fitted\"\n[source]\nrecording = \"x\"\ncpus = 3\nspan_ns = 1\n\
             [[role]]\nname = \"client\"\ntasks = 1\nturns = [101]\nrun_us = [10]\n\
             ends = [{{ by = \"ask\", role = \"server\", share = 1.0, open = {servers}, us = [0] }}]\n\
             [[role]]\nname = \"server\"\ntasks = {servers}\nserves = true\nturns = [7]\nrun_us = [400]\n\
             ends = [{{ by = \"task\", role = \"client\", share = 1.0, us = [10] }}]\n"
        );
        let mut w = Workload::default();
        let spec = ModelSpec { file: "m".into(), ..ModelSpec::default() };
        spec.build(&mut w, 0, text.as_bytes()).expect("a model");
        let s = simulated("3c", w);
        assert_eq!(s.outcome, Outcome::Finished);
        // A server begins with a turn of its own; then one for each request.
        assert_eq!(user_ns(&s), 101 * 10_000 + (servers + 100) * 400_000);
        assert_eq!(s.metrics.counts.get("model_timeouts"), None);
        // A request waits for a free server: they work one after the other, or side by side.
        let least = 100 * 400_000 / servers;
        assert!((least..least + least / 4).contains(&s.virtual_ns), "{servers}: {}", s.virtual_ns);
    }
}

/// A script starts a server and its client, both at once. With one slot the client waits for the server to end, which nobody asks.
#[test]
fn a_fitted_server_that_nobody_can_ask_gives_up() {
    let text = "schema = 1\nform = \"fitted\"\n[source]\nrecording = \"x\"\ncpus = 2\nspan_ns = 1\n\
         [[role]]\nname = \"sh\"\ntasks = 1\nturns = [1]\nrun_us = [10]\n\
         starts = [{ role = \"server\", per_life = 1.0, at_once = 2 }, { role = \"client\", per_life = 1.0, at_once = 2 }]\n\
         [[role]]\nname = \"server\"\ntasks = 0\nturns = [21]\nrun_us = [400]\n\
         ends = [{ by = \"task\", role = \"client\", share = 1.0, us = [10] }]\n\
         [[role]]\nname = \"client\"\ntasks = 0\nturns = [21]\nrun_us = [10]\n\
         ends = [{ by = \"ask\", role = \"server\", share = 1.0, open = 1, us = [0] }]\n";
    for (jobs, gives_up) in [(0, false), (2, false), (1, true)] {
        let mut w = Workload::default();
        let spec = ModelSpec { file: "m".into(), jobs, ..ModelSpec::default() };
        spec.build(&mut w, 0, text.as_bytes()).expect("a model");
        w.horizon = Some(10_000_000_000);
        let s = simulated("2c", w);
        assert_eq!(s.outcome, Outcome::Finished, "{jobs}");
        assert_eq!(s.metrics.counts.contains_key("model_timeouts"), gives_up, "{jobs}");
    }
}
