//! Line plots as SVG: small multiples on logarithmic axes.

use std::fmt::Write;

const WIDTH: f64 = 220.0;
const HEIGHT: f64 = 170.0;
const MARGIN: f64 = 46.0;
/// Place of a name in the legend.
const NAME: (f64, f64) = (180.0, 18.0);
/// Colours that stay apart for most eyes (Okabe and Ito). Once they are used up, lines are dashed.
const COLOURS: [&str; 6] = ["#000000", "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#cc79a7"];

/// A line: its name and its points (x, y), of which those that are not positive have no place.
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

/// Rows of panels with one legend for `names`, whose order gives the colours.
pub(super) fn svg(rows: &[&[Panel]], names: &[&str]) -> String {
    let columns = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let (cell_width, cell_height) = (WIDTH + MARGIN + 14.0, HEIGHT + 58.0);
    let width = cell_width * columns.max(1) as f64;
    let names_a_row = (((width - 20.0) / NAME.0) as usize).max(1);
    let legend = NAME.1 * names.len().div_ceil(names_a_row) as f64 + 12.0;
    let height = cell_height * rows.len() as f64 + legend;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (i, name) in names.iter().enumerate() {
        let x = 10.0 + NAME.0 * (i % names_a_row) as f64;
        let y = 15.0 + NAME.1 * (i / names_a_row) as f64;
        line(
            &mut out,
            &format!(
                "<path d=\"M{x:.1} {y:.1}h22\" {}/><text x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
                stroke(i),
                x + 27.0,
                y + 4.0
            ),
        );
    }
    for (i, row) in rows.iter().enumerate() {
        for (j, panel) in row.iter().enumerate() {
            let x = cell_width * j as f64 + MARGIN;
            let y = cell_height * i as f64 + legend + 22.0;
            line(&mut out, &format!("<g transform=\"translate({x:.1} {y:.1})\">"));
            draw(&mut out, panel, names);
            line(&mut out, "</g>");
        }
    }
    line(&mut out, "</svg>");
    out
}

/// How the lines of the name at `place` are drawn.
fn stroke(place: usize) -> String {
    let colour = COLOURS[place % COLOURS.len()];
    let dashes = if place < COLOURS.len() { "" } else { " stroke-dasharray=\"5 3\"" };
    format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}")
}

fn draw(out: &mut String, panel: &Panel, names: &[&str]) {
    let has_place = |(x, y): &&(f64, f64)| *x > 0.0 && *y > 0.0;
    let points = || panel.lines.iter().flat_map(|line| &line.points).filter(has_place);
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
    for one in &panel.lines {
        let Some(place) = names.iter().position(|name| *name == one.name) else { continue };
        let points = one.points.iter().filter(has_place);
        let path: Vec<String> = points.map(|(x, y)| format!("{:.1} {:.1}", x_at(*x), y_at(*y))).collect();
        if !path.is_empty() {
            line(out, &format!("<path d=\"M{}\" {}/>", path.join("L"), stroke(place)));
        }
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
        let falling = [(4.0, 1.0), (8.0, 0.0), (16.0, 0.1), (64.0, 0.01)];
        let panel = |lines| Panel { title: "a panel".into(), y_label: "error", lines };
        let names = ["none", "falling", "2", "3", "4", "5", "6", "7"];
        let rows = [
            vec![panel(vec![line("none", &[]), line("falling", &falling)])],
            vec![panel(vec![line("7", &falling)])],
        ];
        let found = svg(&rows.each_ref().map(Vec::as_slice), &names);
        // Two decades down over the height, two doublings of two along the width; what is 0 has no place.
        let path = "<path d=\"M0.0 0.0L110.0 85.0L220.0 170.0\" fill=\"none\"";
        assert!(found.contains(&format!("{path} stroke=\"#e69f00\" stroke-width=\"2\"/>")), "{found}");
        assert!(found.contains(&format!("{path} stroke=\"#e69f00\" stroke-width=\"2\" stroke-dasharray")));
        // In the legend, and the two.
        assert_eq!(found.matches("fill=\"none\"").count(), names.len() + 2);
        assert_eq!(found.matches("<g ").count(), 2);
        for (open, close) in [("<g ", "</g>"), ("<text ", "</text>"), ("<svg ", "</svg>")] {
            assert_eq!(found.matches(open).count(), found.matches(close).count());
        }
    }
}
