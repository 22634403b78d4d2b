//! Answers the wishes of a step while its tiles of logits arrive: one pass for all rows.

use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep_sample::{RowDraw, draw_row};
use rayon::prelude::*;

use crate::error::EngineError;
use crate::model::LogitsSink;
use crate::row::{LogitRow, Reply, RowRequest, RowResult, Tile, Wish};

/// Bytes that one tile of logits may take.
const TILE_BYTES: usize = 32 << 20;

/// A row whose logits come out of the forward.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due<'a> {
    /// Where its answers go.
    pub(crate) row: usize,
    pub(crate) request: &'a RowRequest,
}

/// The draw pass: its threads, and the buffers that tiles are written to.
#[derive(Debug)]
pub(crate) struct DrawPass {
    threads: rayon::ThreadPool,
    width: usize,
    tiles: Vec<Arc<Tile>>,
    time: Duration,
}

impl DrawPass {
    pub(crate) fn new(width: usize, threads: Option<NonZero<usize>>) -> Self {
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.map_or(0, NonZero::get))
            .thread_name(|i| format!("lockstep-draw-{i}"))
            .build()
            .expect("the operating system can start threads");
        Self { threads, width, tiles: Vec::new(), time: Duration::ZERO }
    }

    /// Time spent in draw passes so far.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// Takes a forward's logits, which belong to `due` in order, and writes `answers`.
    pub(crate) fn sink<'a>(
        &'a mut self,
        due: &'a [Due<'a>],
        answers: &'a mut [Option<Vec<RowResult>>],
    ) -> Sink<'a> {
        Sink { pass: self, due, answers }
    }

    /// A tile that nobody holds any more, or a new one. Further free ones are given back.
    fn free_tile(&mut self) -> Arc<Tile> {
        let free = self.tiles.iter().position(|tile| Arc::strong_count(tile) == 1);
        let tile = free.map(|free| self.tiles.swap_remove(free)).unwrap_or_default();
        self.tiles.retain(|tile| Arc::strong_count(tile) > 1);
        tile
    }
}

#[derive(Debug)]
pub(crate) struct Sink<'a> {
    pass: &'a mut DrawPass,
    due: &'a [Due<'a>],
    answers: &'a mut [Option<Vec<RowResult>>],
}

impl LogitsSink for Sink<'_> {
    fn tile_rows(&self) -> usize {
        (TILE_BYTES / (self.pass.width * size_of::<f32>())).max(1)
    }

    fn tile(&mut self, rows: usize, fill: &mut dyn FnMut(&mut [f32])) {
        let mut tile = self.pass.free_tile();
        let buffer = Arc::get_mut(&mut tile).expect("a free tile is held by nobody else");
        buffer.width = self.pass.width;
        buffer.data.resize(rows * buffer.width, 0.0);
        fill(&mut buffer.data);

        let start = Instant::now();
        let (due, later) = self.due.split_at(rows);
        self.due = later;
        let wishes: Vec<(usize, &Due<'_>, &Wish)> = due
            .iter()
            .enumerate()
            .flat_map(|(at, due)| due.request.wishes.iter().map(move |wish| (at, due, wish)))
            .collect();
        let results: Vec<RowResult> = self.pass.threads.install(|| {
            wishes.par_iter().map(|(at, due, wish)| answer(&tile, *at, due.request, wish)).collect()
        });
        for due in due {
            self.answers[due.row] = Some(Vec::with_capacity(due.request.wishes.len()));
        }
        for ((_, due, _), result) in wishes.iter().zip(results) {
            self.answers[due.row].get_or_insert_default().push(result);
        }
        self.pass.tiles.push(tile);
        self.pass.time += start.elapsed();
    }
}

fn answer(tile: &Arc<Tile>, at: usize, request: &RowRequest, wish: &Wish) -> RowResult {
    let row = || LogitRow::new(Arc::clone(tile), at, Arc::clone(&request.vocab), request.temperature);
    match wish {
        Wish::Draw { key, method, mask } => {
            let draw = RowDraw {
                logits: tile.logits(at, &request.vocab),
                temperature: request.temperature,
                eos: request.vocab.eos(),
                mask: mask.as_deref(),
                method: *method,
                key: *key,
            };
            Ok(Reply::Drawn(draw_row(&draw).map_err(EngineError::Row)?))
        }
        Wish::Row | Wish::Hold => Ok(Reply::Row(row()?)),
        Wish::Tokens(tokens) => {
            let row = row()?;
            Ok(Reply::Tokens(tokens.iter().map(|token| row.logw(*token)).collect()))
        }
    }
}
