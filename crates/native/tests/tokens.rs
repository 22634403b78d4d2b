//! The default model's tokenizer and chat template, against golden values.

use std::path::PathBuf;
use std::sync::LazyLock;

use lockstep_engine::text::{ChatTemplate, Message, Tokenizer};
use lockstep_native::gguf::{Gguf, TensorType, chat_template, tokenizer_spec};
use lockstep_sample::TokenId;
use serde::Deserialize;

static MODEL: LazyLock<Gguf> = LazyLock::new(|| {
    let path = model_path();
    assert!(path.is_file(), "{} is missing: run `make model`", path.display());
    Gguf::open(&path).expect("the model file opens")
});

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let spec = tokenizer_spec(&MODEL).expect("the file describes a tokenizer");
    Tokenizer::new(spec).expect("a supported tokenizer")
});

fn model_path() -> PathBuf {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    var("LOCKSTEP_MODEL").unwrap_or_else(|| {
        let cache = var("XDG_CACHE_HOME").or_else(|| Some(var("HOME")?.join(".cache")));
        cache.expect("HOME is set").join("lockstep/models/smollm2-135m.gguf")
    })
}

fn golden<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name);
    let bytes = std::fs::read(path).expect("testdata is in the repository");
    serde_json::from_slice(&bytes).expect("testdata is as this test reads it")
}

fn ids(ids: &[TokenId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}

#[derive(Deserialize)]
struct Text {
    text: String,
    ids: Vec<u32>,
    ids_special: Vec<u32>,
}

#[test]
fn every_golden_text_has_its_ids_and_decodes_back() {
    let texts: Vec<Text> = golden("smollm2-token-ids.json");
    assert_eq!(texts.len(), 43);
    assert!(texts.iter().any(|t| t.ids != t.ids_special), "the two columns differ somewhere");
    for t in texts {
        for (special, want) in [(false, &t.ids), (true, &t.ids_special)] {
            let got = TOKENIZER.encode(&t.text, special).unwrap();
            assert_eq!(&ids(&got), want, "{:?} with special = {special}", t.text);
            assert_eq!(TOKENIZER.decode_with_special(&got), t.text.as_bytes(), "{:?}", t.text);
            if !special {
                assert_eq!(TOKENIZER.decode(&got), t.text.as_bytes(), "{:?}", t.text);
            }
        }
    }
}

#[test]
fn the_vocabulary_is_the_files() {
    let vocabulary = TOKENIZER.vocabulary();
    assert_eq!((vocabulary.len(), vocabulary.eos().ids()), (49_152, &[2][..]));
    let special: Vec<u32> = (0..49_152).filter(|id| vocabulary.is_special(TokenId(*id))).collect();
    assert_eq!(special, (0..17).collect::<Vec<_>>());
    assert_eq!((TOKENIZER.bos(), TOKENIZER.add_bos()), (Some(TokenId(1)), false));
    assert_eq!(vocabulary.display(TokenId(2)), "<|im_end|>");
    assert_eq!(vocabulary.find(b" the"), TOKENIZER.encode(" the", false).unwrap().first().copied());
    assert_eq!(vocabulary.find(b"\xff"), None);
    let trie = vocabulary.trie();
    let mut visited = vec![0_u8; vocabulary.len()];
    trie.walk((), |(), _| Some(()), |(), id| visited[id.index()] += 1);
    assert!(visited.iter().enumerate().all(|(id, n)| *n == u8::from(id >= 17)));
    assert_eq!(trie.ids().len(), 49_135);
}

#[test]
fn potentials_18_a_special_token_is_in_no_walk_and_its_pieces_are() {
    let vocabulary = TOKENIZER.vocabulary();
    let pieces = TOKENIZER.encode("<|im_start|>", false).unwrap();
    assert!(pieces.len() > 1 && pieces.iter().all(|id| !vocabulary.is_special(*id)));
    let mut seen = Vec::new();
    vocabulary.trie().walk((), |(), _| Some(()), |(), id| seen.push(id));
    assert!(pieces.iter().all(|id| seen.contains(id)) && !seen.contains(&TokenId(1)));
    assert_eq!(TOKENIZER.encode("<|im_start|>", true).unwrap(), [TokenId(1)]);
}

#[test]
fn the_chat_template_gives_the_golden_prompt_after_its_own_system_message() {
    let source = chat_template(&MODEL).unwrap().unwrap();
    let vocabulary = TOKENIZER.vocabulary();
    let (bos, eos) = (vocabulary.display(TokenId(1)), vocabulary.display(TokenId(2)));
    let template = ChatTemplate::new(source, &bos, &eos).unwrap();
    let message = |role: &str, content: &str| Message { role: role.into(), content: content.into() };
    let prompts: serde_json::Value = golden("smollm2-logits.json");
    let schema = &prompts["schema"];
    let want = schema["text"].as_str().unwrap();
    let user = want.strip_prefix("<|im_start|>user\n").unwrap();
    let user = user.strip_suffix("<|im_end|>\n<|im_start|>assistant\n").unwrap();

    // A chat without a system message gets the model's own.
    let system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n";
    let rendered = template.render(&[message("user", user)], true).unwrap();
    assert_eq!(rendered, format!("{system}{want}"));
    let got = TOKENIZER.encode(&rendered, true).unwrap();
    let prompt: Vec<u32> = serde_json::from_value(schema["ids"].clone()).unwrap();
    assert!(ids(&got).ends_with(&prompt) && got.len() > prompt.len());

    let chat = [message("system", "Be brief."), message("user", "Hi"), message("assistant", "Hello")];
    assert_eq!(
        template.render(&chat, false).unwrap(),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
    );
}

#[test]
fn the_file_holds_the_tensors_of_a_llama_model() {
    let embedding = MODEL.tensor("token_embd.weight").unwrap();
    assert_eq!(embedding.shape, [576, 49_152]);
    let (block, bytes) = embedding.ty.block().unwrap();
    assert_eq!(embedding.data.len(), 576 * 49_152 / block * bytes);
    assert_eq!(MODEL.u64("llama.block_count").unwrap(), 30);
    assert!(MODEL.tensors().any(|t| t.ty == TensorType::Q4_1));
    assert!(MODEL.tensors().all(|t| MODEL.tensor(&t.name).is_ok()));
}
