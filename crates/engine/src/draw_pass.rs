//! Answers whatever is asked of a step's logits while their tiles arrive: one pass for all rows.

use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep_sample::{
    ChainRow, Logprobs, RowDraw, RowError, SHARED_FROM, Sampled, TokenId, draw_row, sample_row, sample_rows,
};
use rayon::prelude::*;

use crate::error::EngineError;
use crate::generation::{Got, Held, Row};
use crate::model::LogitsSink;
use crate::row::{LogitRow, Reply, RowRequest, RowResult, Tile, Wish};
use crate::vocab::Vocabulary;

/// Bytes that one tile of logits may take.
const TILE_BYTES: usize = 32 << 20;

/// Something asked of a row of a forward's logits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due<'a> {
    /// Which of the forward's wanted rows.
    pub(crate) at: usize,
    pub(crate) ask: Ask<'a>,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask<'a> {
    /// A party's wishes.
    Wishes(&'a RowRequest),
    /// The next token of a generating row; held for it, if others must have a say.
    Draw(&'a Row),
    /// The log-probability of a token, and of the likeliest ones.
    Score { vocab: &'a Vocabulary, token: TokenId, top: usize },
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Answer {
    Wishes(Vec<RowResult>),
    Row(Got),
}

/// The draw pass: its threads, and the buffers that tiles are written to.
#[derive(Debug)]
pub(crate) struct DrawPass {
    threads: Threads,
    width: usize,
    tiles: Vec<Arc<Tile>>,
    time: Duration,
}

impl DrawPass {
    pub(crate) fn new(width: usize, threads: Option<NonZero<usize>>) -> Self {
        Self { threads: Threads::new(threads), width, tiles: Vec::new(), time: Duration::ZERO }
    }

    /// Time spent in draw passes so far.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// Takes a forward's logits and answers `due`, which is ordered by row.
    pub(crate) fn sink<'a>(&'a mut self, due: &'a [Due<'a>]) -> Sink<'a> {
        Sink { pass: self, due, rows: 0, answers: Vec::with_capacity(due.len()) }
    }

    /// Draws for rows that hold logits of earlier forwards.
    pub(crate) fn draw_held(&mut self, rows: &[(&Row, &Held)]) -> Vec<Got> {
        let start = Instant::now();
        let chain: Vec<ChainRow<'_>> =
            rows.iter().map(|(row, held)| row.chain(held.tile.row(held.at))).collect();
        let (sampled, _) = self.threads.run(self.width, &chain, 0, |_| ());
        self.time += start.elapsed();
        sampled.into_iter().map(Got::Sampled).collect()
    }

    /// A tile that nobody holds any more, or a new one. Further free ones are given back.
    fn free_tile(&mut self) -> Arc<Tile> {
        let free = self.tiles.iter().position(|tile| Arc::strong_count(tile) == 1);
        let tile = free.map(|free| self.tiles.swap_remove(free)).unwrap_or_default();
        self.tiles.retain(|tile| Arc::strong_count(tile) > 1);
        tile
    }
}

/// The pass's threads; none but the scheduler's own, if that is all it may have.
#[derive(Debug)]
struct Threads(Option<rayon::ThreadPool>);

impl Threads {
    fn new(threads: Option<NonZero<usize>>) -> Self {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.map_or(0, NonZero::get))
            .thread_name(|i| format!("lockstep-draw-{i}"))
            .build()
            .expect("the operating system can start threads");
        Self((pool.current_num_threads() > 1).then_some(pool))
    }

    /// Samples the rows of `chain` and runs `others`, which does `asked` things, each with a row of
    /// `width` logits. Where there are not two things to do, or little in all, nobody waits for a
    /// thread to wake.
    fn run<T: Send>(
        &self,
        width: usize,
        chain: &[ChainRow<'_>],
        asked: usize,
        others: impl FnOnce(Share) -> T + Send,
    ) -> (Vec<Result<Sampled, RowError>>, T) {
        let n = chain.len() + asked;
        match &self.0 {
            Some(pool) if n > 1 && n * width >= SHARED_FROM => {
                pool.install(|| (sample_rows(chain), others(Share::Pool)))
            }
            _ => (chain.iter().map(sample_row).collect(), others(Share::Nobody)),
        }
    }
}

/// With whom a part of the pass is shared.
#[derive(Clone, Copy, Debug)]
enum Share {
    /// The threads of the current pool.
    Pool,
    Nobody,
}

impl Share {
    /// `work` on every item, in order.
    fn map<T: Sync, R: Send>(self, items: &[T], work: impl Fn(&T) -> R + Send + Sync) -> Vec<R> {
        match self {
            Self::Pool => items.par_iter().map(work).collect(),
            Self::Nobody => items.iter().map(work).collect(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Sink<'a> {
    pass: &'a mut DrawPass,
    due: &'a [Due<'a>],
    rows: usize,
    answers: Vec<Answer>,
}

impl Sink<'_> {
    /// The answers, in the order of what was due; fewer, if the forward ended early.
    pub(crate) fn into_answers(self) -> Vec<Answer> {
        self.answers
    }
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
        let first = self.rows;
        self.rows += rows;
        let (due, later) = self.due.split_at(self.due.partition_point(|due| due.at < self.rows));
        self.due = later;
        let answers = answer_all(&self.pass.threads, &tile, first, due);
        self.answers.extend(answers);
        self.pass.tiles.push(tile);
        self.pass.time += start.elapsed();
    }
}

/// Answers everything that is due of a tile whose first row is the forward's row `first`.
fn answer_all(threads: &Threads, tile: &Arc<Tile>, first: usize, due: &[Due<'_>]) -> Vec<Answer> {
    let mut answers: Vec<Option<Answer>> = due.iter().map(|_| None).collect();
    // All rows of the sampler chain are one pass of their own, whatever else is asked is another.
    let (mut chained, mut chain, mut other) = (Vec::new(), Vec::new(), Vec::new());
    for (place, due) in due.iter().enumerate() {
        let at = due.at - first;
        match due.ask {
            Ask::Wishes(request) => other.push((place, at, Other::Wishes(request))),
            Ask::Score { vocab, token, top } => other.push((place, at, Other::Score { vocab, token, top })),
            Ask::Draw(row) if row.is_custom() || row.awaits_mask() => {
                answers[place] = Some(Answer::Row(Got::Held(Held { tile: Arc::clone(tile), at })));
            }
            Ask::Draw(row) => {
                chained.push(place);
                chain.push(row.chain(tile.row(at)));
            }
        }
    }
    let asked = other.iter().map(|(.., ask)| ask.len()).sum();
    let (sampled, others) = threads.run(tile.width, &chain, asked, |share| {
        share.map(&other, |(_, at, ask)| ask.answer(tile, *at, share))
    });
    for (place, sampled) in chained.into_iter().zip(sampled) {
        answers[place] = Some(Answer::Row(Got::Sampled(sampled)));
    }
    for ((place, ..), answer) in other.iter().zip(others) {
        answers[*place] = Some(answer);
    }
    answers.into_iter().map(|answer| answer.expect("everything is asked of one of the two")).collect()
}

/// What is asked besides tokens of the sampler chain.
#[derive(Clone, Copy)]
enum Other<'a> {
    Wishes(&'a RowRequest),
    Score { vocab: &'a Vocabulary, token: TokenId, top: usize },
}

impl Other<'_> {
    /// How many things it asks for.
    fn len(&self) -> usize {
        match self {
            Self::Wishes(request) => request.wishes.len(),
            Self::Score { .. } => 1,
        }
    }

    fn answer(&self, tile: &Arc<Tile>, at: usize, share: Share) -> Answer {
        match self {
            Self::Wishes(request) => {
                Answer::Wishes(share.map(&request.wishes, |wish| answer_wish(tile, at, request, wish)))
            }
            Self::Score { vocab, token, top } => {
                Answer::Row(Got::Scored(Logprobs::of(&tile.row(at)[..vocab.len()], *token, *top)))
            }
        }
    }
}

fn answer_wish(tile: &Arc<Tile>, at: usize, request: &RowRequest, wish: &Wish) -> RowResult {
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
