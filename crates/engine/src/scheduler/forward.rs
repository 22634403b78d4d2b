//! One call of the model: what it is fed, what is asked of its logits, and whom the answers are for.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::Scheduler;
use super::batch::{Owner, Part};
use crate::draw_pass::{Answer, Ask, Due};
use crate::error::EngineError;
use crate::generation::{Feed, Got, Purpose};
use crate::model::{BatchItem, Model, Wanted};
use crate::row::RowResult;
use crate::ticket::QueuedRow;

/// A step under way.
pub(super) struct Step {
    pub(super) requests: Vec<QueuedRow>,
    /// By request, once it has its answers.
    pub(super) answers: Vec<Option<Vec<RowResult>>>,
    /// What came of generating rows' logits.
    pub(super) got: Vec<(Purpose, Got)>,
    /// Generating rows that failed, by their places.
    pub(super) failed: BTreeSet<usize>,
}

impl Step {
    pub(super) fn has_failed(&self, owner: &Owner) -> bool {
        match owner {
            Owner::Request(at) => self.answers[*at].is_some(),
            Owner::Row(feed) => self.failed.contains(&feed.at),
        }
    }

    fn fail(&mut self, owner: &Owner, error: &EngineError) {
        match owner {
            Owner::Request(at) => self.answers[*at] = Some(self.requests[*at].request.all_fail(error)),
            Owner::Row(feed) => _ = self.failed.insert(feed.at),
        }
    }
}

/// Whom an answer is for.
#[derive(Clone, Copy, Debug)]
enum For {
    Request(usize),
    Row(Purpose),
}

impl Scheduler {
    /// One call of the model. Returns whether anything was asked of its logits.
    pub(super) fn forward(&mut self, parts: &[Part], step: &mut Step) -> bool {
        let requests = &step.requests;
        let mut batch = Vec::with_capacity(parts.len());
        let mut due: Vec<Due<'_>> = Vec::new();
        // Whom each answer is for.
        let mut owners = Vec::new();
        let mut logit_rows = 0;
        for part in parts {
            let range = part.start..part.end;
            let item = match &part.owner {
                Owner::Request(at) => {
                    let request = &requests[*at].request;
                    if part.is_last {
                        due.push(Due { at: logit_rows, ask: Ask::Wishes(request) });
                        owners.push(For::Request(*at));
                    }
                    let wanted = if part.is_last { Wanted::Last } else { Wanted::None };
                    BatchItem { seq: request.seq, tokens: &request.tokens[range], wanted }
                }
                Owner::Row(feed) => {
                    let (purposes, all) = self.rows.purposes(feed);
                    let row = self.rows.row(feed.at).expect("a row that is fed is here");
                    for &(place, purpose) in &purposes {
                        let ask = match purpose {
                            Purpose::Draw(at) => {
                                Ask::Draw(self.rows.row(at).expect("a row that draws next is here"))
                            }
                            Purpose::Score { token, top, .. } => Ask::Score { vocab: &row.vocab, token, top },
                        };
                        due.push(Due { at: logit_rows + place, ask });
                        owners.push(For::Row(purpose));
                    }
                    let wanted = match (all, purposes.is_empty()) {
                        (true, _) => Wanted::All,
                        (false, true) => Wanted::None,
                        (false, false) => Wanted::Last,
                    };
                    BatchItem { seq: self.rows.seq(feed.at), tokens: &row.history.tokens()[range], wanted }
                }
            };
            logit_rows += item.wanted.rows(item.tokens.len());
            batch.push(item);
        }
        let start = Instant::now();
        let drawn_before = self.draws.time();
        let mut sink = self.draws.sink(&due);
        let outcome = self.model.forward(&batch, &mut sink);
        let given = sink.into_answers();
        let spent = start.elapsed();
        let drawing = self.draws.time() - drawn_before;
        let forward_time = spent.saturating_sub(drawing);
        let asked = !due.is_empty();
        drop(due);
        drop(batch);
        match outcome {
            Ok(()) => {
                for (owner, answer) in owners.into_iter().zip(given) {
                    match (owner, answer) {
                        (For::Request(at), Answer::Wishes(results)) => step.answers[at] = Some(results),
                        (For::Row(purpose), Answer::Row(got)) => step.got.push((purpose, got)),
                        (For::Request(_), Answer::Row(_)) | (For::Row(_), Answer::Wishes(_)) => {
                            unreachable!("answers come in the order of what is asked")
                        }
                    }
                }
                for part in parts {
                    if let Owner::Row(feed) = &part.owner {
                        self.rows.fed(feed, &mut self.model);
                    }
                }
            }
            Err(error) => {
                let error = EngineError::from(error);
                for part in parts {
                    step.fail(&part.owner, &error);
                    if let Owner::Row(feed) = &part.owner {
                        self.rows.failed(feed, &error, &mut self.model);
                    }
                }
            }
        }
        self.count_forward(parts, forward_time, drawing);
        asked
    }

    fn count_forward(&mut self, parts: &[Part], time: Duration, drawing: Duration) {
        let (mut prompt, mut decode, mut others) = (0, 0, 0);
        for part in parts {
            let n = part.end - part.start;
            match part.owner {
                Owner::Row(Feed { is_prompt: true, .. }) => prompt += n,
                Owner::Row(_) => decode += n,
                Owner::Request(_) => others += n,
            }
        }
        let tokens = prompt + decode + others;
        self.pace.note(time, prompt, decode + others);
        let share = |n: usize| time.mul_f64(n as f64 / tokens.max(1) as f64);
        self.stat(|stats| {
            stats.forwards += 1;
            stats.tokens += tokens as u64;
            stats.forward_time += time;
            stats.prefill_time += share(prompt);
            stats.decode_time += share(decode);
            stats.draw_time += drawing;
        });
    }
}
