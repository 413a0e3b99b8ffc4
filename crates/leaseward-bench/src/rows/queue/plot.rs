//! The long stream as a picture that needs nothing else: jobs a second in each tenth of it.

use std::fmt::Write as _;

use super::bloat::NAME;
use crate::measure::{Measured, Outcome};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
/// Around the drawing: for the scale on the left, words above and below.
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 50.0;

/// The picture, if the stream was measured.
pub(crate) fn svg(measured: &[Measured]) -> Option<String> {
    let row = measured.iter().find(|measured| measured.row.name == NAME)?;
    let Outcome::Measured(series) = row.outcomes.first()? else { return None };
    // The first figure is the ratio.
    let rates: Vec<f64> = series.iter().skip(1).map(|series| series.median()).collect();
    Some(drawn(&rates))
}

fn drawn(rates: &[f64]) -> String {
    let (first, last) =
        (rates.first().copied().unwrap_or(0.0), rates.last().copied().unwrap_or(0.0));
    let top = rates.iter().copied().fold(1.0, f64::max) * 1.1;
    let height = |value: f64| TOP + (1.0 - value / top) * (HEIGHT - TOP - BOTTOM);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">Jobs a second, pushed and done, in each tenth of the stream</text>\n\
         <text x=\"{LEFT}\" y=\"40\" fill=\"#555555\">last tenth {:.2} × the first; dashed: 0.8 × the first</text>\n",
        last / first.max(1.0)
    );
    let width = (WIDTH - LEFT - RIGHT) / rates.len().max(1) as f64;
    for (at, rate) in rates.iter().enumerate() {
        let (x, y) = (LEFT + at as f64 * width, height(*rate));
        let _ = writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#0072b2\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x + width * 0.1,
            width * 0.8,
            HEIGHT - BOTTOM - y,
            x + width / 2.0,
            HEIGHT - BOTTOM + 18.0,
            at + 1
        );
    }
    for value in [0.0, top / 2.0, top] {
        let y = height(value);
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>\n\
             <line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#cccccc\"/>",
            LEFT - 8.0,
            y + 4.0,
            WIDTH - RIGHT
        );
    }
    let limit = height(first * 0.8);
    let _ = writeln!(
        out,
        "<line x1=\"{LEFT}\" y1=\"{limit:.1}\" x2=\"{:.1}\" y2=\"{limit:.1}\" stroke=\"#d55e00\" \
         stroke-dasharray=\"8 4\"/>\n<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">tenth of the stream</text>\n</svg>",
        WIDTH - RIGHT,
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 10.0
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenth_has_its_bar_and_the_ratio_is_said() {
        let picture = drawn(&[100.0, 90.0, 95.0]);
        assert_eq!(picture.matches("fill=\"#0072b2\"").count(), 3);
        assert!(picture.contains("0.95 × the first") && picture.ends_with("</svg>\n"), "{picture}");
    }
}
