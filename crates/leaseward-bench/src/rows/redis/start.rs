//! `leaseward run`: how often it waits for the server before the command starts.

use std::{process::Command, time::Duration};

use leaseward_testkit::Proxy;

use crate::{
    child::{self, Part},
    redis::server::Server,
    row::{Row, Target::AtMost, Unit},
    rows::tool::tool,
    stats::now,
};

/// So long that a program is started within it, also on a busy machine: what is left are whole round trips.
const EACH_WAY: Duration = Duration::from_millis(100);
const ROUNDS: usize = 3;

pub(crate) const NOW: Part = Part { name: "tell-the-time", play: |_| Ok(vec![now()]) };

pub(super) fn rows(server: &Server) -> Vec<Row> {
    let server = server.clone();
    vec![
        Row::new("redis: `leaseward run`, before the command starts", Unit::Count, &[AtMost(3.0)])
            .figure("round trips")
            .rounds_max(ROUNDS)
            .ours("leaseward run", move |_| round_trips(&server)),
    ]
}

fn round_trips(server: &Server) -> Result<Vec<f64>, String> {
    let proxy = Proxy::start(&server.address());
    proxy.delay(EACH_WAY);
    let told = child::command(NOW.name, &[])?;
    let mut run = Command::new(tool()?);
    run.args(["--store", &format!("redis://{}", proxy.address()), "run", "x", "--"]);
    run.arg(told.get_program()).args(told.get_args());
    let begin = now();
    let output = run.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    let Ok(began) = said.trim().parse::<f64>() else {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(why.lines().next().unwrap_or("it said nothing").to_owned());
    };
    let round_trip = 2.0 * EACH_WAY.as_nanos() as f64;
    Ok(vec![((began - begin) / round_trip).floor()])
}
