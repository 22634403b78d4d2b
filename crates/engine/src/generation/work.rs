//! Code that we did not write: it runs on threads of its own, where it delays or ends only the rows
//! that asked for it.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use lockstep_sample::{Bitset, CustomRow, SampleError, Sampled, TokenId, sample_custom_rows};

use super::constraint::Constraint;
use super::row::{Held, Row};
use super::stream::RowId;
use crate::scheduler::{Command, panic_text};
use crate::sync::{Sender, Weak, spawn_blocking};

/// What came back.
#[derive(Debug)]
pub(crate) enum Worked {
    /// Rows that are drawn for, and calls of their code.
    Drawn { rows: Vec<(RowId, Box<Row>, Result<Sampled, SampleError>)>, calls: u64 },
    /// A constraint and its next mask.
    Masked { row: RowId, constraint: Box<dyn Constraint>, mask: Result<Arc<Bitset>, String> },
}

/// A row that is away to be drawn for.
type Away = (RowId, Box<Row>, Held);

/// Draws for `rows`. Those that share a sampler object are one job, since it must see them in order;
/// any other is a job of its own.
pub(crate) fn draw(rows: Vec<Away>, commands: &Weak<Sender<Command>>) {
    let mut jobs: Vec<Vec<Away>> = Vec::new();
    for away in rows {
        let shares = |job: &Vec<Away>| match (&job[0].1.sampler, &away.1.sampler) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        match jobs.iter().position(shares) {
            Some(at) => jobs[at].push(away),
            None => jobs.push(vec![away]),
        }
    }
    for job in jobs {
        let commands = Weak::clone(commands);
        spawn_blocking(move || report(&commands, draw_together(job)));
    }
}

fn draw_together(mut rows: Vec<Away>) -> Worked {
    let mut processors: Vec<_> = rows.iter_mut().map(|(_, row, _)| mem::take(&mut row.processors)).collect();
    let mut custom: Vec<CustomRow<'_>> = rows
        .iter()
        .zip(&mut processors)
        .map(|((_, row, held), processors)| CustomRow {
            row: row.chain(held.tile.row(held.at)),
            processors,
            sampler: row.sampler.clone(),
        })
        .collect();
    let pass = sample_custom_rows(&mut custom);
    drop(custom);
    for ((_, row, _), processors) in rows.iter_mut().zip(processors) {
        row.processors = processors;
    }
    let rows = rows.into_iter().zip(pass.rows).map(|((id, row, _), result)| (id, row, result)).collect();
    Worked::Drawn { rows, calls: pass.opaque_calls }
}

/// Has a constraint take `token`, if there is one, and find out its next mask.
pub(crate) fn advance(
    row: RowId,
    mut constraint: Box<dyn Constraint>,
    token: Option<TokenId>,
    commands: &Weak<Sender<Command>>,
) {
    let commands = Weak::clone(commands);
    spawn_blocking(move || {
        // After a panic the row ends, and the constraint with it.
        let mask = catch_unwind(AssertUnwindSafe(|| {
            token.map_or(Ok(()), |token| constraint.accept(token))?;
            constraint.mask()
        }));
        let mask = mask.unwrap_or_else(|panic| Err(format!("it panicked: {}", panic_text(&*panic))));
        report(&commands, Worked::Masked { row, constraint, mask });
    });
}

fn report(commands: &Weak<Sender<Command>>, worked: Worked) {
    if let Some(commands) = commands.upgrade() {
        let _ = commands.send(Command::Worked(worked));
    }
}
