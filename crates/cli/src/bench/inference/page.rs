//! The tables of `docs/inference.md`: what stands between a pair of marks is made anew, the rest of
//! the page is written by hand.

use super::plan::Score;
use crate::error::CliError;

/// Replaces what stands between `<!-- NAME -->` and `<!-- end of NAME -->`.
pub(super) fn replace(page: &str, name: &str, block: &str) -> Result<String, CliError> {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let places = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let Some((before, after)) = places else {
        let message = format!("the page has no `<!-- {name} -->` with its end");
        return Err(CliError::usage("--write", message));
    };
    Ok(format!("{before}{begin}{block}{end}{after}"))
}

/// Scores of a case as a table: a row for each way; a cell holds the values at all `particles`.
pub(super) fn table(scores: &[Score], particles: &[usize]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for score in scores {
        if !names.contains(&score.method) {
            names.push(score.method);
        }
    }
    let counts = particles.iter().map(usize::to_string).collect::<Vec<_>>().join(" / ");
    let mut out = format!(
        "| N = {counts} | error of log Z | variance of Ẑ/Z | variance of weights | distance | tokens | masks | probes |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n"
    );
    for name in names {
        let of_name: Vec<&Score> = scores.iter().filter(|score| score.method == name).collect();
        let cell = |value: &dyn Fn(&Score) -> Option<f64>| {
            let values: Option<Vec<String>> = of_name.iter().map(|score| value(score).map(number)).collect();
            values.map_or("–".to_owned(), |values| values.join(" / "))
        };
        let cells = [
            cell(&|score| score.log_ml_error),
            cell(&|score| score.mass_variance),
            cell(&|score| score.weight_variance),
            cell(&|score| Some(score.distance)),
            cell(&|score| Some(score.tokens)),
            cell(&|score| Some(score.masks)),
            cell(&|score| Some(score.probes)),
        ];
        out += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    out
}

/// How many runs a figure is taken from, and how well that tells it. The root of a mean of `runs`
/// squares of normal errors has a relative standard error of `1/√(2 runs)`.
pub(super) fn number_of_runs(runs: u64) -> String {
    let percent = 100.0 / (2.0 * runs as f64).sqrt();
    format!(
        "{runs} runs of each way: an error of log Z is known to about {percent:.0} % of itself if errors are normal, \
         and less well if they are large."
    )
}

/// Three digits.
pub(super) fn number(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 5) };
    format!("{value:.*}", digits as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_replaced_and_the_rest_stays() {
        let page = "a\n<!-- x -->\nold\n<!-- end of x -->\nb\n";
        let once = replace(page, "x", "new\n").unwrap();
        assert_eq!(once, "a\n<!-- x -->\nnew\n<!-- end of x -->\nb\n");
        assert_eq!(replace(&once, "x", "new\n").unwrap(), once);
        assert!(replace(page, "y", "").is_err());
    }

    #[test]
    fn the_number_of_runs_tells_how_well_an_error_is_known() {
        assert!(
            number_of_runs(200).starts_with("200 runs of each way: an error of log Z is known to about 5 %")
        );
        assert!(number_of_runs(8).contains("about 25 %"));
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.0, 0.012345, 1.5, 123.4, 4567.8].map(number), ["0", "0.0123", "1.50", "123", "4568"]);
    }
}
