//! Line plots as SVG: small multiples on logarithmic axes.

use std::fmt::Write;

const WIDTH: f64 = 220.0;
const HEIGHT: f64 = 170.0;
const MARGIN: f64 = 46.0;
const LEGEND: f64 = 30.0;
/// Colours that stay apart for most eyes (Okabe and Ito).
const COLOURS: [&str; 6] = ["#000000", "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#cc79a7"];

/// A line: its name and its points (x, y), all positive.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// One plot.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) y_label: &'static str,
    pub(super) lines: Vec<Line>,
}

/// The panels in rows of `columns`, with one legend for the names of `names`, whose order gives the
/// colours.
pub(super) fn svg(panels: &[Panel], columns: usize, names: &[&str]) -> String {
    let rows = panels.len().div_ceil(columns);
    let (cell_width, cell_height) = (WIDTH + MARGIN + 14.0, HEIGHT + 58.0);
    let (width, height) = (cell_width * columns as f64, cell_height * rows as f64 + LEGEND);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (i, name) in names.iter().enumerate() {
        let x = 10.0 + (width - 20.0) / names.len() as f64 * i as f64;
        let colour = COLOURS[i % COLOURS.len()];
        line(
            &mut out,
            &format!(
                "<path d=\"M{x:.1} 15h18\" stroke=\"{colour}\" stroke-width=\"2\"/><text x=\"{:.1}\" y=\"19\">{name}</text>",
                x + 23.0
            ),
        );
    }
    for (i, panel) in panels.iter().enumerate() {
        let x = cell_width * (i % columns) as f64 + MARGIN;
        let y = cell_height * (i / columns) as f64 + LEGEND + 22.0;
        line(&mut out, &format!("<g transform=\"translate({x:.1} {y:.1})\">"));
        draw(&mut out, panel, names);
        line(&mut out, "</g>");
    }
    line(&mut out, "</svg>");
    out
}

fn draw(out: &mut String, panel: &Panel, names: &[&str]) {
    let points = || panel.lines.iter().flat_map(|line| &line.points);
    let extent = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)))
    };
    let (x_low, x_high) = extent(&mut points().map(|(x, _)| *x));
    let (y_low, y_high) = extent(&mut points().map(|(_, y)| *y));
    // Whole decades on the second axis.
    let (y_low, y_high) = (y_low.log10().floor(), y_high.log10().ceil().max(y_low.log10().floor() + 1.0));
    let x_at = |x: f64| WIDTH * (x / x_low).log2() / (x_high / x_low).log2().max(1.0);
    let y_at = |y: f64| HEIGHT * (1.0 - (y.log10() - y_low) / (y_high - y_low));
    line(out, &format!("<text x=\"0\" y=\"-8\" font-weight=\"bold\">{}</text>", panel.title));
    line(
        out,
        &format!(
            "<text transform=\"translate(-36 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            HEIGHT / 2.0,
            panel.y_label
        ),
    );
    line(
        out,
        &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">particles</text>",
            WIDTH / 2.0,
            HEIGHT + 28.0
        ),
    );
    for decade in y_low as i32..=y_high as i32 {
        let y = y_at(10f64.powi(decade));
        line(
            out,
            &format!(
                "<path d=\"M0 {y:.1}h{WIDTH}\" stroke=\"#ddd\"/><text x=\"-4\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                y + 4.0,
                10f64.powi(decade)
            ),
        );
    }
    let mut ticks: Vec<f64> = points().map(|(x, _)| *x).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    for tick in ticks {
        line(
            out,
            &format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
                x_at(tick),
                HEIGHT + 14.0
            ),
        );
    }
    for one in panel.lines.iter().filter(|one| !one.points.is_empty()) {
        let Some(place) = names.iter().position(|name| *name == one.name) else { continue };
        let path: Vec<String> =
            one.points.iter().map(|(x, y)| format!("{:.1} {:.1}", x_at(*x), y_at(*y))).collect();
        line(
            out,
            &format!(
                "<path d=\"M{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
                path.join("L"),
                COLOURS[place % COLOURS.len()]
            ),
        );
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("writing to a string does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lie_where_their_points_are() {
        let line = |name, points: &[(f64, f64)]| Line { name, points: points.to_vec() };
        let lines = vec![line("none", &[]), line("falling", &[(4.0, 1.0), (16.0, 0.1), (64.0, 0.01)])];
        let panel = Panel { title: "a panel".into(), y_label: "error", lines };
        let found = svg(&[panel], 1, &["none", "falling"]);
        // Two decades down over the height, two doublings of two along the width.
        assert!(
            found.contains("<path d=\"M0.0 0.0L110.0 85.0L220.0 170.0\" fill=\"none\" stroke=\"#e69f00\""),
            "{found}"
        );
        assert_eq!(found.matches("fill=\"none\"").count(), 1);
        for (open, close) in [("<g ", "</g>"), ("<text ", "</text>"), ("<svg ", "</svg>")] {
            assert_eq!(found.matches(open).count(), found.matches(close).count());
        }
    }
}
