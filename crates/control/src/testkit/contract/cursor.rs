//! Cursors against whole contexts, after random scripts.

use lockstep_sample::{DrawKey, DrawMethod, ProblemKey, TokenId};

use super::{Oracle, Tolerance};
use crate::potential::{Answer, Cursor, Draws, Potential, Row, Status, Want};

/// Rows that a script begins with, and the most that a selection makes.
const ROWS: usize = 5;

/// Runs a random script of `steps` operations on a population: advancing (by spans too), probing,
/// rows, draws, requests in flight together or never waited for, selection, forks, release. After each,
/// every row must weigh what a fresh cursor gives its whole context, and copies must have stayed
/// independent. `seed` fixes the script, which draws its tokens from `symbols`, where ids outside
/// the vocabulary are welcome, and the end.
///
/// # Panics
/// If a row and its whole context disagree, or a row fails.
pub fn assert_cursor(
    potential: &dyn Potential,
    symbols: &[TokenId],
    steps: u32,
    seed: u64,
    tolerance: Tolerance,
) {
    let oracle = Oracle::new("agreement of cursor and whole contexts", potential);
    let check = Check { oracle: &oracle, symbols, tolerance };
    let mut population = check.open();
    for step in 1..=steps {
        let mut dice = Dice { key: DrawKey::new(ProblemKey::new(seed, 0), 0, step, 0), thrown: 0 };
        if check.growing(&population).is_empty() {
            check.refusals(&mut population);
            population = check.open();
        }
        match dice.below(9) {
            0..=2 => check.advance(&mut population, &mut dice),
            3 => check.two_in_flight(&mut population, &mut dice),
            4 => {
                // Kept for later, and never waited for.
                let rows = check.open_rows(&population);
                drop(population.cursor.request(&rows, Want::Hold));
            }
            5 => population.select(&dice.ancestors(population.rows.len())),
            6 => check.fork(&mut population, &mut dice),
            7 => check.draw(&mut population, &mut dice),
            _ => {
                let row = dice.below(population.rows.len());
                population.cursor.release(&[row]);
                population.rows[row].released = true;
            }
        }
        check.all(&mut population);
    }
    check.refusals(&mut population);
}

/// What a row should have read.
#[derive(Clone, Debug, Default)]
struct Column {
    context: Vec<TokenId>,
    released: bool,
}

impl Column {
    fn is_closed(&self) -> bool {
        self.context.last().is_some_and(|token| token.is_eos())
    }
}

/// A cursor, and what its rows should have read.
struct Population {
    cursor: Box<dyn Cursor>,
    rows: Vec<Column>,
}

impl Population {
    fn select(&mut self, ancestors: &[usize]) {
        self.cursor.select(ancestors);
        self.rows = ancestors.iter().map(|ancestor| self.rows[*ancestor].clone()).collect();
    }
}

/// Keyed choices of a script's step.
struct Dice {
    key: DrawKey,
    thrown: u32,
}

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.thrown += 1;
        (self.key.uniform(self.thrown) * n as f64) as usize
    }

    /// Between one and all of `rows`, in any order.
    fn some(&mut self, mut rows: Vec<usize>) -> Vec<usize> {
        let n = 1 + self.below(rows.len());
        for i in 0..n {
            let other = i + self.below(rows.len() - i);
            rows.swap(i, other);
        }
        rows.truncate(n);
        rows
    }

    fn ancestors(&mut self, n: usize) -> Vec<usize> {
        (0..1 + self.below(ROWS)).map(|_| self.below(n)).collect()
    }
}

/// The oracle and how to compare with it.
struct Check<'a> {
    oracle: &'a Oracle<'a>,
    symbols: &'a [TokenId],
    tolerance: Tolerance,
}

impl Check<'_> {
    fn open(&self) -> Population {
        Population { cursor: self.oracle.open(ROWS), rows: vec![Column::default(); ROWS] }
    }

    /// Rows that have not ended, dead ones included.
    fn open_rows(&self, population: &Population) -> Vec<usize> {
        (0..population.rows.len()).filter(|row| !population.rows[*row].is_closed()).collect()
    }

    /// Rows that can still be advanced to something live.
    fn growing(&self, population: &Population) -> Vec<usize> {
        let mut rows = self.open_rows(population);
        rows.retain(|row| self.expected(&population.rows[*row]) > f64::NEG_INFINITY);
        rows
    }

    fn expected(&self, column: &Column) -> f64 {
        if column.released { f64::NEG_INFINITY } else { self.oracle.score(&column.context) }
    }

    fn compare(&self, column: &Column, name: &str, actual: f64, expected: f64) {
        if !self.tolerance.close(actual, expected) {
            let released = if column.released { ", which was released," } else { "" };
            self.oracle.fail(
                &column.context,
                format_args!("{name} of the row{released} is {actual}, of a fresh one {expected}"),
            );
        }
    }

    /// Every row's score and completion.
    fn all(&self, population: &mut Population) {
        let Population { cursor, rows } = population;
        if cursor.len() != rows.len() {
            self.oracle.fail(&[], format_args!("the cursor has {} rows, not {}", cursor.len(), rows.len()));
        }
        let indices: Vec<usize> = (0..rows.len()).collect();
        for (column, score) in rows.iter().zip(cursor.score(&indices)) {
            let score = self.oracle.value(&column.context, "score", score);
            self.compare(column, "score", score, self.expected(column));
        }
        let open: Vec<usize> = indices.into_iter().filter(|row| !rows[*row].is_closed()).collect();
        for (row, complete) in open.iter().zip(cursor.complete(&open)) {
            let column = &rows[*row];
            let complete = self.oracle.value(&column.context, "complete", complete);
            let ended = Column {
                context: [column.context.as_slice(), &[TokenId::EOS]].concat(),
                released: column.released,
            };
            self.compare(column, "complete", complete, self.expected(&ended));
        }
    }

    /// The next token of a script: mostly a live one.
    fn token(&self, column: &Column, dice: &mut Dice) -> TokenId {
        let mut tokens = self.symbols.to_vec();
        if dice.below(6) > 0 && !column.released {
            tokens.push(TokenId::EOS);
            let mut cursor = self.oracle.at(std::slice::from_ref(&column.context));
            let row = self.oracle.row(&column.context, cursor.logw_next(&[0]).remove(0));
            let is_live = |token: &TokenId| self.oracle.entry(&row, *token) > f64::NEG_INFINITY;
            tokens.retain(is_live);
            // Sequences end, but not at once.
            if tokens.len() > 1 && dice.below(3) > 0 {
                tokens.retain(|token| !token.is_eos());
            }
        }
        if tokens.is_empty() { self.symbols[0] } else { tokens[dice.below(tokens.len())] }
    }

    /// Some open rows read one or two tokens.
    fn advance(&self, population: &mut Population, dice: &mut Dice) {
        let rows = dice.some(self.open_rows(population));
        let mut spans: Vec<Vec<TokenId>> = Vec::with_capacity(rows.len());
        for row in &rows {
            let column = &mut population.rows[*row];
            let mut span = Vec::new();
            for _ in 0..1 + dice.below(2) {
                if !column.is_closed() {
                    let token = self.token(column, dice);
                    column.context.push(token);
                    span.push(token);
                }
            }
            spans.push(span);
        }
        let slices: Vec<&[TokenId]> = spans.iter().map(Vec::as_slice).collect();
        for (row, status) in rows.iter().zip(population.cursor.advance(&rows, &slices)) {
            let column = &population.rows[*row];
            let live = self.expected(column) > f64::NEG_INFINITY;
            if !matches!((&status, live), (Status::Live, true) | (Status::Dead, false)) {
                self.oracle.fail(
                    &column.context,
                    format_args!("advance answers {status:?}, the weight is {}", self.expected(column)),
                );
            }
        }
    }

    /// Two requests are issued before either is waited for, the later one first.
    fn two_in_flight(&self, population: &mut Population, dice: &mut Dice) {
        let (dense, probed) = (dice.some(self.open_rows(population)), dice.some(self.open_rows(population)));
        let tokens = [self.symbols, &[TokenId::EOS]].concat();
        let first = population.cursor.request(&dense, Want::Row);
        let second = population.cursor.request(&probed, Want::Tokens(vec![tokens.clone(); probed.len()]));
        for (row, answer) in probed.iter().zip(second.wait()) {
            let column = &population.rows[*row];
            let weights = answer.map(Answer::into_tokens).unwrap_or_else(|error| {
                self.oracle.fail(&column.context, format_args!("probe fails: {error}"))
            });
            let expected = self.fresh_row(column);
            for (token, weight) in tokens.iter().zip(weights) {
                let expected = self.oracle.entry(&expected, *token);
                self.compare(column, "probe", weight, expected);
            }
        }
        for (row, answer) in dense.iter().zip(first.wait()) {
            let column = &population.rows[*row];
            let actual = self.oracle.row(&column.context, answer.map(Answer::into_row));
            let expected = self.fresh_row(column);
            for position in 0..self.oracle.vocab().row_len() {
                self.compare(column, "logw_next", actual.at(position), expected.at(position));
            }
        }
    }

    /// A cursor that draws does so from the row, and is not moved by it.
    fn draw(&self, population: &mut Population, dice: &mut Dice) {
        if !population.cursor.draws() {
            return;
        }
        let rows = dice.some(self.open_rows(population));
        let keys = (1..).zip(&rows).map(|(particle, _)| DrawKey { particle, ..dice.key }).collect();
        let draws = Draws { keys, method: DrawMethod::default(), masks: None };
        let answers = population.cursor.request(&rows, Want::Draw(draws)).wait();
        for (row, answer) in rows.iter().zip(answers) {
            let column = &population.rows[*row];
            let drawn = answer.map(Answer::into_draw).unwrap_or_else(|error| {
                self.oracle.fail(&column.context, format_args!("draw fails: {error}"))
            });
            let expected = self.fresh_row(column);
            let log_mass = drawn.map_or(f64::NEG_INFINITY, |drawn| drawn.log_mass);
            self.compare(column, "the mass drawn from", log_mass, expected.log_total());
            if let Some(drawn) = drawn {
                let weight = self.oracle.entry(&expected, drawn.token);
                self.compare(column, "the weight of a drawn token", drawn.logp + log_mass, weight);
            }
        }
    }

    fn fresh_row(&self, column: &Column) -> Row {
        if column.released {
            return Row::dead();
        }
        let mut cursor = self.oracle.at(std::slice::from_ref(&column.context));
        self.oracle.row(&column.context, cursor.logw_next(&[0]).remove(0))
    }

    /// Some rows go on in a cursor of their own; the script follows either.
    fn fork(&self, population: &mut Population, dice: &mut Dice) {
        let rows = dice.ancestors(population.rows.len());
        let mut fork = Population {
            cursor: population.cursor.fork(&rows),
            rows: rows.iter().map(|row| population.rows[*row].clone()).collect(),
        };
        if !self.open_rows(&fork).is_empty() {
            self.advance(&mut fork, dice);
        }
        self.all(population);
        self.all(&mut fork);
        if dice.below(2) == 0 {
            *population = fork;
        }
    }

    /// Nothing may follow the end; a dead row stays dead. The rows are not used afterwards.
    fn refusals(&self, population: &mut Population) {
        let spans = vec![std::slice::from_ref(&self.symbols[0]); population.rows.len()];
        let rows: Vec<usize> = (0..population.rows.len()).collect();
        let statuses = population.cursor.advance(&rows, &spans);
        for (column, status) in population.rows.iter().zip(statuses) {
            let live = self.expected(column) > f64::NEG_INFINITY;
            let right = match status {
                Status::Failed(_) => live && column.is_closed(),
                Status::Dead => !live || !column.is_closed(),
                Status::Live => live && !column.is_closed(),
            };
            if !right {
                self.oracle.fail(&column.context, format_args!("advancing the row answers {status:?}"));
            }
        }
    }
}
