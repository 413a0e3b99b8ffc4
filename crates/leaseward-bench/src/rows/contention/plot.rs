//! The rows of this group as a picture that needs nothing else: commits a second over contention, a line for each means.

use std::fmt::Write as _;

use super::STEPS;
use crate::measure::{Measured, Outcome};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// Around the drawing: for the scale on the left, names on the right, words below.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 230.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 60.0;

/// Told apart by people who see few colours, and by their dashes by those who see none (Okabe and Ito).
const STYLES: [(&str, &str); 5] = [
    ("#0072b2", ""),
    ("#d55e00", "8 4"),
    ("#009e73", "2 4"),
    ("#cc79a7", "10 3 2 3"),
    ("#000000", "4 2"),
];

/// One means: its name, and the median at each step at which it was measured.
struct Line {
    name: &'static str,
    points: Vec<(usize, f64)>,
}

/// The picture, if all steps were measured.
pub(crate) fn svg(measured: &[Measured]) -> Option<String> {
    let lines = lines(measured)?;
    let values = || lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    // Whole decades, so that the scale is read without counting.
    let low = values().fold(f64::INFINITY, f64::min).log10().floor();
    let high = values().fold(0.0, f64::max).log10().ceil().max(low + 1.0);
    let scale = |value: f64| TOP + (high - value.log10()) / (high - low) * (HEIGHT - TOP - BOTTOM);
    let mut out = String::new();
    frame(&mut out, low, high, scale);
    for (line, style) in lines.iter().zip(STYLES.iter().cycle()) {
        draw(&mut out, line, *style, scale);
    }
    legend(&mut out, &lines);
    out.push_str("</svg>\n");
    Some(out)
}

fn lines(measured: &[Measured]) -> Option<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    for (step, (_, name)) in STEPS.iter().enumerate() {
        let row = measured.iter().find(|measured| measured.row.name == *name)?;
        for (contender, outcome) in row.row.contenders.iter().zip(&row.outcomes) {
            let Outcome::Measured(series) = outcome else { continue };
            let at = lines.iter().position(|line| line.name == contender.name);
            let at = at.unwrap_or_else(|| {
                lines.push(Line { name: contender.name, points: Vec::new() });
                lines.len() - 1
            });
            lines[at].points.push((step, series[0].median()));
        }
    }
    (!lines.is_empty()).then_some(lines)
}

fn across(step: usize) -> f64 {
    LEFT + 20.0 + step as f64 / (STEPS.len() - 1) as f64 * (WIDTH - LEFT - RIGHT - 40.0)
}

fn frame(out: &mut String, low: f64, high: f64, scale: impl Fn(f64) -> f64) {
    let right = WIDTH - RIGHT;
    let mut put = |text: String| out.push_str(&(text + "\n"));
    put(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"12\">"
    ));
    put("<title>Commits a second under contention</title>".into());
    put("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>".into());
    put(format!(
        "<text x=\"{LEFT}\" y=\"20\" font-size=\"14\">Commits a second: 16 tasks in 2 processes add to rows \
         chosen at random</text>"
    ));
    let mut decade = low;
    while decade <= high {
        let (y, label) = (scale(10_f64.powf(decade)), 10_f64.powf(decade));
        put(format!(
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 8.0,
            y + 4.0
        ));
        decade += 1.0;
    }
    let below = HEIGHT - BOTTOM;
    for (step, (rows, _)) in STEPS.iter().enumerate() {
        let x = across(step);
        put(format!(
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{rows}</text>",
            below + 20.0
        ));
    }
    put(format!(
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">rows to choose from: fewer means more contention</text>",
        (LEFT + right) / 2.0,
        below + 42.0
    ));
}

fn draw(out: &mut String, line: &Line, (colour, dash): (&str, &str), scale: impl Fn(f64) -> f64) {
    let points: Vec<_> = line
        .points
        .iter()
        .map(|(step, value)| format!("{:.1},{:.1}", across(*step), scale(*value)))
        .collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>",
        points.join(" ")
    );
    for (step, value) in &line.points {
        let (x, y) = (across(*step), scale(*value));
        let _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"><title>{}: {value:.0} a second</title></circle>",
            line.name
        );
    }
}

fn legend(out: &mut String, lines: &[Line]) {
    let x = WIDTH - RIGHT + 15.0;
    for (at, (line, (colour, dash))) in lines.iter().zip(STYLES.iter().cycle()).enumerate() {
        let y = TOP + 10.0 + at as f64 * 22.0;
        let _ = writeln!(
            out,
            "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"2\" \
             stroke-dasharray=\"{dash}\"/><text x=\"{}\" y=\"{}\" font-size=\"11\">{}</text>",
            x + 26.0,
            x + 32.0,
            y + 4.0,
            line.name
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measure::measure,
        row::{Row, Size, Unit},
    };

    fn measured(steps: usize) -> Vec<Measured> {
        let one = |(at, (_, name)): (usize, &(u32, &'static str))| {
            let value = 1_000.0 / 10_f64.powi(at as i32);
            let row = Row::new(name, Unit::PerSecond, &[])
                .ours("optimistic", move |_| Ok(vec![value]))
                .raw("SELECT FOR UPDATE", |_| Ok(vec![200.0]))
                .raw("advisory lock", |_| Err("not there".into()));
            measure(row, 1, Size { is_quick: true, is_full: false })
        };
        STEPS.iter().enumerate().take(steps).map(one).collect()
    }

    #[test]
    fn draws_a_line_for_each_that_was_measured() {
        let picture = svg(&measured(STEPS.len())).expect("all steps are there");
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert_eq!(picture.matches("<circle").count(), 2 * STEPS.len());
        assert!(picture.contains("optimistic: 1000 a second"));
        assert!(!picture.contains("advisory lock"));
        // Nothing is fetched from elsewhere.
        assert_eq!(picture.matches("http").count(), 1, "only the name space");
    }

    #[test]
    fn draws_nothing_of_half_a_measurement() {
        assert!(svg(&measured(3)).is_none());
    }
}
