//! What sampling costs in looks at logits and in exponentials: counted in tests, free elsewhere.
//!
//! Counts, unlike times, are the same on every machine and under any load, so they can be tested.

/// Counts looks at `n` logits.
#[inline(always)]
pub(crate) fn looks(n: usize) {
    #[cfg(test)]
    count::add(n, 0);
    #[cfg(not(test))]
    let _ = n;
}

/// Counts `n` exponentials.
#[inline(always)]
pub(crate) fn exponentials(n: usize) {
    #[cfg(test)]
    count::add(0, n);
    #[cfg(not(test))]
    let _ = n;
}

#[cfg(test)]
mod count {
    use std::cell::Cell;

    thread_local! {
        static COUNTS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }

    #[inline(never)]
    pub(super) fn add(looks: usize, exponentials: usize) {
        COUNTS.set((COUNTS.get().0 + looks, COUNTS.get().1 + exponentials));
    }

    /// What `work` counts on this thread: looks and exponentials.
    pub(super) fn of(work: impl FnOnce()) -> (usize, usize) {
        let before = COUNTS.get();
        work();
        (COUNTS.get().0 - before.0, COUNTS.get().1 - before.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Bitset, ChainRow, DrawKey, DrawMethod, EosSet, History, ProblemKey, RowDraw, SamplingParams,
        draw_row, sample_row, sample_rows,
    };

    const IDS: u32 = 20_000;

    fn key(row: u32) -> DrawKey {
        DrawKey::new(ProblemKey::new(61, 0), row, 1, 0)
    }

    /// A few large logits and a long tail, like a language model's.
    fn logits(row: u32) -> Vec<f32> {
        let noise = DrawKey { ordinal: 9, ..key(row) };
        let normal = |i: u32| (0..12).map(|k| noise.uniform(12 * i + k)).sum::<f64>() - 6.0;
        (0..IDS).map(|i| (3.0 * normal(i)) as f32).collect()
    }

    fn row<'a>(logits: &'a [f32], params: &'a SamplingParams, history: &'a History, at: u32) -> ChainRow<'a> {
        ChainRow {
            logits,
            vocab_size: logits.len(),
            params,
            history,
            special_ids: &[],
            mask: None,
            banned: &[],
            key: key(at),
            logprobs: None,
        }
    }

    /// Settings with the most that a row of theirs may cost, in looks and exponentials an id.
    fn settings() -> Vec<(&'static str, SamplingParams, f64, f64)> {
        let plain = SamplingParams::default;
        vec![
            ("greedy", SamplingParams { temperature: 0.0, ..plain() }, 1.0, 0.0),
            ("gumbel_max", plain(), 2.0, 1.0),
            ("inverse_cdf", SamplingParams { draw_method: DrawMethod::InverseCdf, ..plain() }, 2.05, 1.05),
            ("multinomial", SamplingParams { draw_method: DrawMethod::Multinomial, ..plain() }, 2.05, 1.05),
            ("top_p", SamplingParams { top_p: 0.95, ..plain() }, 3.1, 1.5),
            ("min_p", SamplingParams { min_p: 0.05, ..plain() }, 1.5, 0.05),
            ("top_k", SamplingParams { top_k: 50, ..plain() }, 1.3, 0.05),
            ("xtc", SamplingParams { xtc_probability: 1.0, xtc_threshold: 0.01, ..plain() }, 5.2, 2.1),
            (
                "all filters",
                SamplingParams {
                    temperature: 0.8,
                    top_p: 0.95,
                    min_p: 0.05,
                    top_k: 40,
                    xtc_probability: 1.0,
                    ..plain()
                },
                2.5,
                1.1,
            ),
            (
                "penalties and all filters",
                SamplingParams {
                    temperature: 0.8,
                    top_p: 0.95,
                    min_p: 0.05,
                    repetition_penalty: 1.1,
                    frequency_penalty: 0.3,
                    ..plain()
                },
                4.5,
                1.1,
            ),
        ]
    }

    fn assert_within(what: &str, counts: (usize, usize), looks: f64, exponentials: f64) {
        let an_id = |count: usize| count as f64 / f64::from(IDS);
        assert!(an_id(counts.0) <= looks, "{what}: {} looks an id", an_id(counts.0));
        assert!(an_id(counts.1) <= exponentials, "{what}: {} exponentials an id", an_id(counts.1));
        assert!(counts.0 >= IDS as usize, "{what} cannot know without a look");
    }

    #[test]
    fn a_row_is_looked_at_a_few_times_whatever_its_settings() {
        for (what, params, looks, exponentials) in settings() {
            for at in 0..3 {
                let logits = logits(at);
                let history = History::new(&params, &[]);
                let row = row(&logits, &params, &history, at);
                assert_within(what, count::of(|| assert!(sample_row(&row).is_ok())), looks, exponentials);
            }
        }
    }

    #[test]
    fn a_masked_row_is_looked_at_a_few_times() {
        let (params, history) = (SamplingParams::default(), History::default());
        let logits = logits(5);
        let mask = Bitset::from_ids(IDS as usize, (0..IDS).filter(|id| id % 3 != 0));
        let chained = ChainRow { mask: Some(&mask), ..row(&logits, &params, &history, 5) };
        // The guard, the copy, the largest logit, both masses at once; then the draw.
        assert_within("chain", count::of(|| assert!(sample_row(&chained).is_ok())), 6.0, 2.0);
        let (eos, method) = (EosSet::new([7]), DrawMethod::GumbelMax);
        let particle =
            RowDraw { logits: &logits, temperature: 1.0, eos: &eos, mask: Some(&mask), method, key: key(5) };
        // The largest logit; then all masses, for the normaliser, the mask and the race at once.
        assert_within("particle", count::of(|| assert!(draw_row(&particle).is_ok())), 2.0, 1.0);
    }

    /// A mask costs a particle nothing but, where its ids are so few that they are drawn as a list, a few
    /// masses each.
    #[test]
    fn a_masked_particle_costs_what_a_plain_one_costs() {
        let logits = logits(6);
        let eos = EosSet::new([]);
        for method in [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial] {
            let cost = |mask: Option<&Bitset>| {
                let row = RowDraw { logits: &logits, temperature: 1.0, eos: &eos, mask, method, key: key(6) };
                count::of(|| assert!(draw_row(&row).is_ok()))
            };
            let plain = cost(None);
            if method == DrawMethod::GumbelMax {
                assert_eq!(plain, (2 * IDS as usize, IDS as usize));
            }
            for allowed in [64, 640, 6400, 12_800] {
                let mask = Bitset::from_ids(IDS as usize, 640..640 + allowed);
                let (looks, exponentials) = cost(Some(&mask));
                assert!(looks <= plain.0 + 256, "{method}, {allowed} of {IDS}: {looks} looks, {plain:?}");
                // Of a list, the masses to sum; by a running sum also those of its weights, and of a part.
                let extra = exponentials.saturating_sub(plain.1);
                let listed = if allowed < IDS / 16 { allowed as usize } else { 0 };
                let most = if method == DrawMethod::GumbelMax { listed } else { 3 * listed };
                assert!(extra <= most, "{method}, {allowed} of {IDS}: {extra} more");
            }
        }
    }

    #[test]
    fn b_08_a_pass_costs_what_its_rows_cost_and_no_more() {
        let settings = settings();
        let logits: Vec<Vec<f32>> = (0..settings.len() as u32).map(logits).collect();
        let history = History::default();
        let rows: Vec<ChainRow<'_>> = settings
            .iter()
            .zip(&logits)
            .zip(0..)
            .map(|(((_, params, ..), logits), at)| row(logits, params, &history, at))
            .collect();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let pass = pool.install(|| count::of(|| assert!(sample_rows(&rows).iter().all(Result::is_ok))));
        let alone = count::of(|| rows.iter().for_each(|row| assert!(sample_row(row).is_ok())));
        assert_eq!(pass, alone);
    }

    /// Rows of settings that all differ, in values, order and way to draw, beside as many equal ones.
    #[test]
    fn b_08_rows_all_different_cost_at_most_1_15_of_equal_ones() {
        let equal =
            SamplingParams { temperature: 0.8, top_p: 0.95, min_p: 0.05, ..SamplingParams::default() };
        let methods = [DrawMethod::GumbelMax, DrawMethod::InverseCdf, DrawMethod::Multinomial];
        let different = |row: u32| SamplingParams {
            temperature: 0.6 + 0.02 * f64::from(row),
            top_p: 0.92 + 0.003 * f64::from(row),
            min_p: 0.03 + 0.002 * f64::from(row),
            top_k: [0, 50, 200][row as usize % 3],
            xtc_probability: [0.0, 0.5][usize::from(row % 4 == 1)],
            temperature_first: row % 5 == 2,
            draw_method: methods[row as usize / 2 % 3],
            ..SamplingParams::default()
        };
        let history = History::default();
        let cost = |settings: &dyn Fn(u32) -> SamplingParams| {
            (0..20).fold((0, 0), |(looks, exponentials), at| {
                let (logits, params) = (logits(at), settings(at));
                let row = row(&logits, &params, &history, at);
                let cost = count::of(|| assert!(sample_row(&row).is_ok()));
                (looks + cost.0, exponentials + cost.1)
            })
        };
        let (equal, different) = (cost(&|_| equal.clone()), cost(&different));
        let at_most = |cost: usize, of: usize| cost as f64 <= 1.15 * of as f64;
        assert!(at_most(different.0, equal.0), "{different:?} looks and exponentials, {equal:?} if equal");
        assert!(at_most(different.1, equal.1), "{different:?} looks and exponentials, {equal:?} if equal");
    }
}
