//! `lockstep tokenize`: the tokens of a text.

use std::process::ExitCode;

use lockstep::model;
use lockstep::native::gguf::{Gguf, tokenizer_spec};
use serde_json::json;

use crate::args::TokenizeArgs;
use crate::error::CliError;
use crate::input;
use crate::stdout::print;
use crate::table::table;

pub(crate) fn tokenize(args: &TokenizeArgs) -> Result<ExitCode, CliError> {
    let text = input::text("TEXT", &args.text)?;
    // Only the tokenizer is needed: the weights stay on disk.
    let gguf = Gguf::open(&model::locate(&args.model.model)?).map_err(CliError::failed)?;
    let spec = tokenizer_spec(&gguf).map_err(CliError::failed)?;
    let tokenizer = lockstep::engine::text::Tokenizer::new(spec)?;
    let ids = tokenizer.encode(&text, args.special)?;
    let vocab = tokenizer.vocabulary();
    if args.json {
        let tokens: Vec<_> = ids
            .iter()
            .map(|id| json!({ "id": id.0, "text": vocab.display(*id), "special": vocab.is_special(*id) }))
            .collect();
        print(json!({ "tokens": tokens, "count": ids.len(), "model": args.model.model }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = table(["id", "token"], 1);
    for id in &ids {
        let special = if vocab.is_special(*id) { " (special)" } else { "" };
        table.add_row([id.to_string(), format!("{:?}{special}", vocab.display(*id))]);
    }
    print(format_args!("{table}\n{} tokens", ids.len()))?;
    Ok(ExitCode::SUCCESS)
}
