//! The importance draw: a token from one row, weighed for another.
//!
//! With `q` the row that is drawn from and `w` the target's: `t ~ exp(q − LSE q)`,
//! `logp = q[t] − LSE q`, `logw = w[t] − logp`. A row that is its own target gives `logw = LSE w`,
//! whatever the token.

use lockstep_sample::Drawn;

use super::Sampled;
use crate::chooser::{Chooser, RowToDraw, draw_rows};
use crate::potential::{Row, RowResult};

/// Draws a token from a row and weighs it for `target`, a row over the same positions; without one
/// the row is its own target.
///
/// It is properly weighted if the row is live wherever the target is:
/// `E[exp(logw) · 1{token = t}] = exp(w[t])`. A token that the target excludes weighs `-inf`, and a
/// dead row gives [`Sampled::DEAD`]. [`Direct`](super::Direct) draws this way.
///
/// ```
/// use lockstep_control::chooser::{Keyed, RowToDraw};
/// use lockstep_control::draw_from;
/// use lockstep_control::potential::Row;
/// use lockstep_sample::{DrawKey, ProblemKey};
///
/// let (proposal, target) = (Row::dense([0.5_f64.ln(), 0.5_f64.ln()]), Row::dense([0.0, 2_f64.ln()]));
/// let key = DrawKey::new(ProblemKey::new(7, 0), 0, 1, 0);
/// let to_draw = RowToDraw { row: &proposal, row_len: 2, eos_position: 1, key };
/// let drawn = draw_from(&mut Keyed::default(), &to_draw, Some(&target))?;
/// let weight = if drawn.token.is_some_and(|token| token.is_eos()) { 4_f64 } else { 2.0 };
/// assert!((drawn.logw - weight.ln()).abs() < 1e-12);
/// # Ok::<(), lockstep_control::ControlError>(())
/// ```
///
/// # Errors
/// If one of the rows is malformed, or a draw function of the caller's fails.
pub fn draw_from(
    chooser: &mut dyn Chooser,
    to_draw: &RowToDraw<'_>,
    target: Option<&Row>,
) -> RowResult<Sampled> {
    if let Some(target) = target {
        target.check_len(to_draw.row_len)?;
    }
    let drawn = draw_rows(chooser, &[*to_draw]).pop().expect("a draw for the one row")?;
    Ok(weighed(drawn, target, to_draw.eos_position))
}

/// What was drawn with its weight for `target`, or for the row it was drawn from.
pub(super) fn weighed(drawn: Option<Drawn>, target: Option<&Row>, eos_position: usize) -> Sampled {
    let Some(Drawn { token, log_mass, logp }) = drawn else { return Sampled::DEAD };
    let position = if token.is_eos() { eos_position } else { token.index() };
    let logw = target.map_or(log_mass, |target| target.at(position) - logp);
    Sampled { token: Some(token), logw, logp: Some(logp) }
}
