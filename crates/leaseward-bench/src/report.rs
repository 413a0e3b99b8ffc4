//! What was measured, as a table for people and as JSON for programs.

use serde_json::{Value, json};

use crate::{
    measure::{Measured, Outcome, Series},
    row::{Figure, Role, Target, Unit},
};

const HEAD: [&str; 7] = ["", "", "median", "min–max", "to raw", "target", ""];

/// All rows as one table, a line for each contender of each figure.
pub(crate) fn table(measured: &[Measured]) -> String {
    let mut lines = vec![HEAD.map(str::to_owned)];
    for row in measured {
        for figure in 0..row.row.figures.len() {
            figure_lines(row, figure, &mut lines);
        }
    }
    align(&lines)
}

fn figure_lines(measured: &Measured, at: usize, lines: &mut Vec<[String; 7]>) {
    let figure = &measured.row.figures[at];
    let mut title = match figure.name {
        "" => measured.row.name.to_owned(),
        name => format!("{}, {name}", measured.row.name),
    };
    for (contender, outcome) in measured.row.contenders.iter().zip(&measured.outcomes) {
        if is_left_out(contender.role, figure, outcome, at) {
            continue;
        }
        let title = std::mem::take(&mut title);
        let who = match contender.role {
            Role::Ours => contender.name.to_owned(),
            Role::Raw => format!("{} (raw)", contender.name),
            Role::Peer => format!("{} (peer)", contender.name),
            Role::OtherBuild => contender.name.to_owned() + &measured.to_other_build(at),
        };
        let series = match outcome {
            Outcome::Measured(series) => &series[at],
            Outcome::Skipped(why) => {
                lines.push([
                    title,
                    who,
                    "skipped".into(),
                    why.clone(),
                    "".into(),
                    "".into(),
                    "".into(),
                ]);
                continue;
            }
        };
        let ratio = measured
            .raw(at)
            .filter(|raw| !std::ptr::eq(*raw, series))
            .map(|raw| series.ratio_to(raw).median())
            .filter(|ratio| ratio.is_finite())
            .map_or(String::new(), |ratio| format!("{ratio:.2}×"));
        // Targets are those of the first of ours; a row may compare several.
        let ours = measured.ours(at).is_some_and(|ours| std::ptr::eq(ours, series));
        let (target, verdict) =
            if ours { judged(measured, at, &figure.targets) } else { Default::default() };
        lines.push([
            title,
            who,
            format!("{} {}", figure.unit.show(series.median()), figure.unit.suffix()),
            spread(figure.unit, series),
            ratio,
            target,
            verdict,
        ]);
    }
}

/// Faults are listed for ours and for those who had any; that somebody was skipped, once.
fn is_left_out(role: Role, figure: &Figure, outcome: &Outcome, at: usize) -> bool {
    match outcome {
        Outcome::Measured(series) => {
            let is_fault = matches!(figure.targets[..], [Target::AtMost(0.0)]);
            is_fault && role != Role::Ours && series[at].max() == 0.0
        }
        Outcome::Skipped(_) => at > 0,
    }
}

fn spread(unit: Unit, series: &Series) -> String {
    match series.values() {
        [_] => "1 run".to_owned(),
        _ => format!("{}–{}", unit.show(series.min()), unit.show(series.max())),
    }
}

fn judged(measured: &Measured, figure: usize, targets: &[Target]) -> (String, String) {
    let shown: Vec<_> = targets.iter().map(Target::to_string).collect();
    let missed = targets.iter().filter(|target| measured.is_met(figure, **target) == Some(false));
    let unknown = targets.iter().any(|target| measured.is_met(figure, *target).is_none());
    let missed: Vec<_> = missed.map(Target::to_string).collect();
    let verdict = match (targets, missed.as_slice()) {
        ([], _) => String::new(),
        (_, []) if unknown => "not measured".to_owned(),
        (_, []) => "met".to_owned(),
        (_, all) if all.len() == targets.len() => "MISSED".to_owned(),
        (_, some) => format!("MISSED {}", some.join(", ")),
    };
    (shown.join(", "), verdict)
}

/// How many targets are met, and how many there are.
pub(crate) fn score(measured: &[Measured]) -> (usize, usize) {
    let mut met = (0, 0);
    for row in measured {
        for (at, figure) in row.row.figures.iter().enumerate() {
            met.0 += figure.targets.iter().filter(|t| row.is_met(at, **t) == Some(true)).count();
            met.1 += figure.targets.len();
        }
    }
    met
}

fn align(lines: &[[String; 7]]) -> String {
    // Reasons for skipping run over into the columns that are then empty.
    let width = |column: usize| {
        let cells = lines.iter().filter(|line| column != 3 || line[2] != "skipped");
        cells.map(|line| line[column].chars().count()).max().unwrap_or(0)
    };
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut out = String::new();
    for line in lines {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            let is_number = matches!(column, 2 | 4);
            text += &if is_number { pad + cell } else { cell.clone() + &pad };
            text += "  ";
        }
        out += text.trim_end();
        out.push('\n');
    }
    out
}

/// Everything, with the value of every round.
pub(crate) fn json(measured: &[Measured]) -> Value {
    let rows = measured.iter().flat_map(|row| {
        row.row.figures.iter().enumerate().map(move |(at, figure)| {
            let contenders: Vec<_> = row
                .row
                .contenders
                .iter()
                .zip(&row.outcomes)
                .map(|(contender, outcome)| {
                    let role = match contender.role {
                        Role::Ours => "ours",
                        Role::Raw => "raw",
                        Role::Peer => "peer",
                        Role::OtherBuild => "other build",
                    };
                    match outcome {
                        Outcome::Skipped(why) => {
                            json!({ "role": role, "name": contender.name, "skipped": why })
                        }
                        Outcome::Measured(series) => json!({
                            "role": role,
                            "name": contender.name,
                            "median": series[at].median(),
                            "rounds": series[at].values(),
                            "ratio": row.raw(at).map(|raw| series[at].ratio_to(raw).median()),
                        }),
                    }
                })
                .collect();
            let targets: Vec<_> = figure
                .targets
                .iter()
                .map(|t| json!({ "target": t.to_string(), "met": row.is_met(at, *t) }))
                .collect();
            json!({
                "row": row.row.name,
                "figure": figure.name,
                "unit": figure.unit.suffix(),
                "contenders": contenders,
                "targets": targets,
                "times_other_build": row.times_other_build(at),
            })
        })
    });
    Value::Array(rows.collect())
}
