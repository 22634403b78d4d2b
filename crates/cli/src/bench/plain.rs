//! Plain decoding on the engine: rows that draw, and nothing else.

use std::sync::Arc;

use lockstep::engine::row::{Reply, RowRequest, Wish};
use lockstep::engine::vocab::Vocabulary;
use lockstep::engine::{Party, Sequence, TokenId};
use lockstep::model::Loaded;
use lockstep::sample::{DrawKey, DrawMethod, ProblemKey};

use crate::error::CliError;

/// Independent rows under a few prompts.
pub(crate) struct Plain {
    party: Party,
    vocab: Arc<Vocabulary>,
    rows: Vec<Sequence>,
    tokens: Vec<TokenId>,
    problem: ProblemKey,
    step: u32,
}

impl Plain {
    /// Prefills each of `prompts` once and draws the first token of each of its `rows` rows.
    pub(crate) fn start(
        model: &Loaded,
        prompts: &[&[TokenId]],
        rows: usize,
        seed: u64,
    ) -> Result<Self, CliError> {
        let vocab = Arc::clone(model.tokenizer.vocabulary());
        let party = model.engine.party();
        let roots: Vec<Sequence> = prompts.iter().map(|_| party.open(None)).collect();
        let mut this = Self {
            party,
            vocab,
            rows: Vec::new(),
            tokens: Vec::new(),
            problem: ProblemKey::new(seed, 0),
            step: 1,
        };
        let request = |(i, (root, prompt)): (usize, (&Sequence, &&[TokenId]))| {
            let wishes = (i * rows..(i + 1) * rows).map(|row| this.draw(row)).collect();
            this.request(root, prompt.to_vec(), wishes)
        };
        this.tokens = this.submit(roots.iter().zip(prompts).enumerate().map(request).collect())?;
        this.rows = roots.iter().flat_map(|root| (0..rows).map(|_| root.fork())).collect();
        Ok(this)
    }

    /// Every row draws its next token.
    pub(crate) fn step(&mut self) -> Result<(), CliError> {
        self.step += 1;
        let requests = self
            .rows
            .iter()
            .zip(&self.tokens)
            .enumerate()
            .map(|(i, (row, token))| self.request(row, vec![*token], vec![self.draw(i)]))
            .collect();
        self.tokens = self.submit(requests)?;
        Ok(())
    }

    fn draw(&self, row: usize) -> Wish {
        let row = u32::try_from(row).unwrap_or(u32::MAX);
        Wish::Draw {
            key: DrawKey::new(self.problem, row, self.step, 0),
            method: DrawMethod::default(),
            mask: None,
        }
    }

    fn request(&self, row: &Sequence, tokens: Vec<TokenId>, wishes: Vec<Wish>) -> RowRequest {
        RowRequest { seq: row.id(), tokens, temperature: 1.0, vocab: Arc::clone(&self.vocab), wishes }
    }

    fn submit(&self, requests: Vec<RowRequest>) -> Result<Vec<TokenId>, CliError> {
        let replies = self.party.submit(requests).map_err(CliError::failed)?.wait();
        let token = |reply| match reply {
            // A row that ends goes on all the same: what is timed is a full batch.
            Ok(Reply::Drawn(drawn)) if drawn.token.is_eos() => {
                Ok(self.vocab.eos().lowest().map_or(TokenId(0), TokenId))
            }
            Ok(Reply::Drawn(drawn)) => Ok(drawn.token),
            Ok(_) => Err(CliError::failed("the engine answered a draw with something else")),
            Err(error) => Err(CliError::failed(error)),
        };
        replies.into_iter().flatten().map(token).collect()
    }
}
