//! `leaseward queue`: pushing, looking, cancelling, pausing, on both stores.

use std::{
    io::Write,
    process::Stdio,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use leaseward_testkit::Postgres;
use serde_json::Value;

use crate::support::{Place, Ran, Running};

/// One server for all cases, each of which has a database of its own.
static SERVER: LazyLock<Postgres> =
    LazyLock::new(|| Postgres::builder().max_connections(300).in_memory().start());

static DATABASES: AtomicU32 = AtomicU32::new(0);

/// A place whose jobs are kept in one kind of store.
pub(crate) struct Jobs {
    pub(crate) place: Place,
    url: String,
}

impl Jobs {
    pub(crate) fn postgres() -> Self {
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        Self { place: Place::new(), url: SERVER.database(&format!("cli_queue_{number}")) }
    }

    pub(crate) fn sqlite() -> Self {
        let place = Place::new();
        let url = place.store();
        Self { place, url }
    }

    pub(crate) fn on(server: &Postgres) -> Self {
        Self { place: Place::new(), url: server.url() }
    }

    fn arguments<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        [&["queue"], arguments].concat()
    }

    /// Runs `leaseward queue …` to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        let mut tool = self.place.tool(self.arguments(arguments));
        Ran::from(tool.env("LEASEWARD_STORE", &self.url).output().expect("the tool starts"))
    }

    /// The same, which must succeed; what it printed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.out, ran.err);
        ran.out
    }

    /// The same, whose output is JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let out = self.ok(arguments);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}"))
    }

    /// The same, with something on stdin.
    pub(crate) fn fed(&self, arguments: &[&str], input: &str) -> Ran {
        let mut tool = self.place.tool(self.arguments(arguments));
        tool.env("LEASEWARD_STORE", &self.url);
        tool.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = tool.spawn().expect("the tool starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(input.as_bytes()).expect("it reads");
        drop(stdin);
        Ran::from(child.wait_with_output().expect("it ends"))
    }

    /// Starts `leaseward queue …`.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut tool = self.place.tool(self.arguments(arguments));
        Running::start(tool.env("LEASEWARD_STORE", &self.url))
    }

    /// The counters of a queue.
    pub(crate) fn stats(&self, queue: &str) -> Value {
        self.json(&["stats", "--json", "--queue", queue])[0].clone()
    }

    /// One counter.
    pub(crate) fn count(&self, queue: &str, what: &str) -> u64 {
        self.stats(queue)[what].as_u64().expect("a number")
    }
}

/// Makes two tests of each case.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        mod postgres {
            $(
                #[test]
                fn $case() {
                    super::$case(&$crate::queue::Jobs::postgres());
                }
            )*
        }
        mod sqlite {
            $(
                #[test]
                fn $case() {
                    super::$case(&$crate::queue::Jobs::sqlite());
                }
            )*
        }
    };
}
pub(crate) use cases;

cases![
    a_job_is_added_and_shown,
    lines_of_stdin_become_jobs,
    a_bad_line_is_named_and_what_was_before_it_is_told,
    what_cannot_be_added_makes_no_queue,
    unique_jobs_are_added_once,
    later_jobs_wait_and_are_shown_so,
    jobs_are_cancelled_one_by_one_and_all,
    a_paused_queue_says_so,
    top_shows_every_queue,
    bad_input_is_refused_with_a_hint,
];

fn a_job_is_added_and_shown(jobs: &Jobs) {
    let id = jobs.ok(&["add", "--queue", "mail", "--priority", "3", r#"{"to":"x"}"#]);
    let id = id.trim();
    let job = jobs.json(&["show", id, "--json"]);
    assert_eq!((&job["state"], &job["queue"]), (&"ready".into(), &"mail".into()));
    assert_eq!((&job["payload"]["to"], &job["priority"]), (&"x".into(), &3.into()));
    let shown = jobs.ok(&["show", id]);
    assert!(shown.contains("mail") && shown.contains("ready"), "{shown}");
    let listed = jobs.ok(&["ls"]);
    assert!(listed.contains(id) && listed.contains(r#"{"to":"x"}"#), "{listed}");
    assert_eq!(jobs.json(&["ls", "--queue", "mail", "--json"])["id"], id);
    assert_eq!(jobs.ok(&["ls", "--state", "dead", "--json"]), "");
    assert_eq!(jobs.count("mail", "ready"), 1);
    let text = jobs.ok(&["add", "--text", "not JSON"]);
    assert_eq!(jobs.json(&["show", text.trim(), "--json"])["payload"], "not JSON");
}

fn lines_of_stdin_become_jobs(jobs: &Jobs) {
    let lines: String = (0..2_500).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    let ran = jobs.fed(&["add", "--queue", "many", "-"], &lines);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{}", ran.err);
    assert!(ran.err.contains("2500 jobs added to `many`"), "{}", ran.err);
    assert_eq!(jobs.count("many", "ready"), 2_500);
    let ran = jobs.fed(&["add", "--queue", "two", "--json", "-"], "1\n\n2\n");
    assert_eq!(ran.out.lines().count(), 2, "{}", ran.out);
    assert!(ran.out.contains(r#""new":true"#), "{}", ran.out);
}

fn a_bad_line_is_named_and_what_was_before_it_is_told(jobs: &Jobs) {
    let ran = jobs.fed(&["add", "--queue", "bad", "-"], "{oops\n");
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("line 1: ") && ran.err.contains("hint: "), "{}", ran.err);
    let ran = jobs.fed(&["add", "--queue", "bad", "-"], "1\n2\n{oops\n4\n");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("line 3: ") && ran.err.contains("2 jobs before"), "{}", ran.err);
    assert_eq!(jobs.count("bad", "ready"), 2);
}

fn what_cannot_be_added_makes_no_queue(jobs: &Jobs) {
    let large = format!("\"{}\"\n", "x".repeat(1_100_000));
    let ran = jobs.fed(&["add", "--queue", "large", "-"], &large);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("line 1: the payload has more than"), "{}", ran.err);
    for key in ["--unique", "--key"] {
        let ran = jobs.run(&["add", "--queue", "large", key, "", "1"]);
        assert!(ran.code == 2 && ran.err.contains("a key has 1 to"), "{}", ran.err);
    }
    assert_eq!(jobs.json(&["stats", "--json"]), Value::Array(Vec::new()));
    let ran = jobs.fed(&["add", "--queue", "large", "-"], &format!("1\n{large}"));
    assert!(ran.code == 1 && ran.err.contains("line 2: "), "{}", ran.err);
    assert_eq!(jobs.count("large", "ready"), 1);
}

fn unique_jobs_are_added_once(jobs: &Jobs) {
    let first = jobs.json(&["add", "--json", "--unique", "k", "1"]);
    let second = jobs.json(&["add", "--json", "--unique", "k", "2"]);
    assert_eq!((&first["new"], &second["new"]), (&true.into(), &false.into()));
    assert_eq!(first["id"], second["id"]);
    let lines = "{\"to\":\"a\"}\n{\"to\":\"b\"}\n";
    for added in ["2 jobs added", "0 jobs added to `u`, 2 were there already"] {
        let ran = jobs.fed(&["add", "--queue", "u", "--unique-by", "to", "-"], lines);
        assert!(ran.err.contains(added), "{}", ran.err);
    }
    let window = ["add", "--unique", "w", "--unique-for", "1h", "1", "--json"];
    assert_eq!(jobs.json(&window)["new"], true);
    assert_eq!(jobs.json(&window)["new"], false);
}

fn later_jobs_wait_and_are_shown_so(jobs: &Jobs) {
    let id = jobs.ok(&["add", "--in", "1h", "1"]);
    assert_eq!(jobs.json(&["show", id.trim(), "--json"])["state"], "later");
    let far = jobs.ok(&["add", "--at", "2200-01-01T00:00:00Z", "2"]);
    assert_eq!(jobs.json(&["show", far.trim(), "--json"])["state"], "later");
    assert!(jobs.ok(&["ls", "--state", "later"]).contains("in "));
    // What is later does not keep a worker.
    assert_eq!(jobs.run(&["work", "--until-empty", "--", "false"]).code, 0);
    assert_eq!(jobs.count("default", "later"), 2);
}

fn jobs_are_cancelled_one_by_one_and_all(jobs: &Jobs) {
    let id = jobs.ok(&["add", "1"]);
    let id = id.trim();
    jobs.ok(&["add", "2", "3"]);
    jobs.ok(&["add", "--in", "1h", "4"]);
    assert_eq!(jobs.json(&["cancel", id, "--json"])["became"], "taken_out");
    let ran = jobs.run(&["cancel", id]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("there is no job") && ran.err.contains("hint: "), "{}", ran.err);
    let all = jobs.json(&["cancel", "--all", "--queue", "default", "--json"]);
    assert_eq!(all["cancelled"], 3);
    let stats = jobs.stats("default");
    assert_eq!(
        (&stats["ready"], &stats["later"], &stats["cancelled"]),
        (&0.into(), &0.into(), &4.into())
    );
}

fn a_paused_queue_says_so(jobs: &Jobs) {
    jobs.ok(&["add", "--queue", "p", "1"]);
    jobs.ok(&["pause", "p"]);
    assert!(jobs.ok(&["stats"]).contains("p (paused)"));
    assert_eq!(jobs.stats("p")["paused"], true);
    assert_eq!(jobs.json(&["resume", "--queue", "p", "--json"])["paused"], false);
    jobs.ok(&["work", "--queue", "p", "--until-empty", "--", "true"]);
    assert_eq!(jobs.count("p", "done"), 1);
}

fn top_shows_every_queue(jobs: &Jobs) {
    jobs.ok(&["add", "--queue", "one", "1"]);
    jobs.ok(&["add", "--queue", "two", "1", "2"]);
    let shown = jobs.ok(&["top", "-n", "2", "--interval", "10ms"]);
    assert_eq!(shown.matches("DONE/S").count(), 2, "{shown}");
    assert!(shown.contains("one") && shown.contains("two"), "{shown}");
    let lines = jobs.ok(&["top", "-n", "1", "--queue", "two", "--json"]);
    let line: Value = serde_json::from_str(&lines).expect("one object");
    assert_eq!((&line["ready"], &line["done_per_s"]), (&2.into(), &0.0.into()));
}

fn bad_input_is_refused_with_a_hint(jobs: &Jobs) {
    jobs.ok(&["add", "1"]);
    let table: &[(&[&str], i32, &str)] = &[
        (&["add", "not json"], 2, "is not JSON"),
        (&["add", "--priority", "16", "1"], 2, "16"),
        (&["add", "--in", "5", "1"], 2, "needs a unit"),
        (&["add", "--at", "tomorrow", "1"], 2, "hint"),
        (&["add", "--in", "1s", "--at", "2027-01-01T00:00:00Z", "1"], 2, "cannot be used with"),
        (&["add", "--unique", "k", "1", "2"], 2, "one job"),
        (&["add", "--unique-for", "1h", "1"], 2, "needs a key"),
        (&["add", "--unique-by", "to", "1"], 2, "no text or number at `to`"),
        (&["add", "--max-attempts", "0", "1"], 2, "0"),
        (&["add", "-", "1"], 2, "stands alone"),
        (&["add", "--queue", "", "1"], 2, "the name of a queue"),
        (&["add"], 2, "PAYLOAD"),
        (&["work", "--concurrency", "0", "--", "true"], 2, "0"),
        (&["work", "--ttl", "10ms", "--", "true"], 2, "at least 200ms"),
        (&["work", "true"], 2, "behind `--`"),
        (&["work", "--", "no-such-program"], 127, "does not exist"),
        (&["work", "--", "/etc/passwd"], 126, "may be executed"),
        (&["ls", "--queue", "defualt"], 2, "there is default"),
        (&["ls", "--state", "gone"], 2, "gone"),
        (&["pause", "defualt"], 2, "there is default"),
        (&["show", "17"], 2, "is no id of a job"),
        (&["show", "1-8-999999"], 1, "there is no job"),
        (&["retry"], 2, "ID"),
        (&["retry", "--all"], 2, "--queue"),
        (&["retry", "1-8-999999"], 1, "there is no job"),
        (&["cancel", "x"], 2, "is no id of a job"),
    ];
    for (arguments, code, says) in table {
        let ran = jobs.run(arguments);
        assert_eq!(ran.code, *code, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(says), "{arguments:?}: {}", ran.err);
        assert_eq!(ran.out, "", "{arguments:?}");
    }
    assert_eq!(jobs.count("default", "pushed"), 1, "nothing was changed");
    let ran = jobs.run(&["retry", jobs.ok(&["add", "2"]).trim()]);
    assert!(ran.code == 1 && ran.err.contains("is not dead, but ready"), "{}", ran.err);
}

#[test]
fn a_store_that_keeps_no_jobs_says_so() {
    let place = Place::new();
    let ran = place.run(["--store", "redis://127.0.0.1:1", "queue", "stats"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("no queue is kept in") && ran.err.contains("hint: "), "{}", ran.err);
}

#[test]
fn locks_and_jobs_share_a_file_in_any_order() {
    let jobs = Jobs::sqlite();
    jobs.ok(&["add", "1"]);
    assert_eq!(jobs.place.run(["run", "x", "--", "true"]).code, 0);
    let other = Jobs::sqlite();
    assert_eq!(other.place.run(["run", "x", "--", "true"]).code, 0);
    other.ok(&["add", "1"]);
    assert_eq!(other.place.run(["ls", "--json"]).out, "[]\n");
    // Without a store named, too.
    let place = Place::new();
    let ran = Ran::from(place.bare_tool(["queue", "add", "1"]).output().expect("starts"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = Ran::from(place.bare_tool(["run", "x", "--", "true"]).output().expect("starts"));
    assert_eq!(ran.code, 0, "{}", ran.err);
}
