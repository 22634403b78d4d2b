//! GGUF files for tests, made in memory.

/// Puts keys and tensors together into a file.
pub(super) struct Builder {
    keys: Vec<u8>,
    n_keys: u64,
    alignment: usize,
    tensors: Vec<Entry>,
    data: Vec<u8>,
}

struct Entry {
    name: String,
    shape: Vec<u64>,
    ty: u32,
    offset: u64,
}

fn put_str(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

impl Builder {
    pub(super) fn new() -> Self {
        Self { keys: Vec::new(), n_keys: 0, alignment: 32, tensors: Vec::new(), data: Vec::new() }
    }

    /// A key with a value given by its type's number and its bytes.
    pub(super) fn raw(mut self, key: &str, ty: u32, value: &[u8]) -> Self {
        put_str(&mut self.keys, key);
        self.keys.extend(ty.to_le_bytes());
        self.keys.extend(value);
        self.n_keys += 1;
        self
    }

    pub(super) fn u32(mut self, key: &str, value: u32) -> Self {
        if key == "general.alignment" {
            self.alignment = (value as usize).clamp(1, 4096);
        }
        self.raw(key, 4, &value.to_le_bytes())
    }

    pub(super) fn str(self, key: &str, value: &str) -> Self {
        let mut bytes = Vec::new();
        put_str(&mut bytes, value);
        self.raw(key, 8, &bytes)
    }

    pub(super) fn array(self, key: &str, ty: u32, count: u64, items: &[u8]) -> Self {
        let value = [&ty.to_le_bytes()[..], &count.to_le_bytes(), items].concat();
        self.raw(key, 9, &value)
    }

    pub(super) fn strings(self, key: &str, texts: &[&str]) -> Self {
        let mut items = Vec::new();
        texts.iter().for_each(|text| put_str(&mut items, text));
        self.array(key, 8, texts.len() as u64, &items)
    }

    pub(super) fn tensor(mut self, name: &str, shape: &[u64], ty: u32, data: &[u8]) -> Self {
        self.data.resize(self.data.len().next_multiple_of(self.alignment), 0);
        let offset = self.data.len() as u64;
        self.tensors.push(Entry { name: name.into(), shape: shape.into(), ty, offset });
        self.data.extend(data);
        self
    }

    /// Moves a tensor's offset, and leaves its data alone.
    pub(super) fn offset(mut self, name: &str, offset: u64) -> Self {
        self.tensors.iter_mut().filter(|t| t.name == name).for_each(|t| t.offset = offset);
        self
    }

    pub(super) fn finish(self) -> Vec<u8> {
        let mut out = b"GGUF\x03\0\0\0".to_vec();
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend(self.n_keys.to_le_bytes());
        out.extend(self.keys);
        for Entry { name, shape, ty, offset } in self.tensors {
            put_str(&mut out, &name);
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().for_each(|ne| out.extend(ne.to_le_bytes()));
            out.extend(ty.to_le_bytes());
            out.extend(offset.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out.extend(self.data);
        out
    }
}

/// A small valid file with a value of every type and three tensors.
pub(super) fn sample() -> Vec<u8> {
    let floats = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    let ints = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    Builder::new()
        .str("general.architecture", "llama")
        .u32("llama.block_count", 2)
        .raw("llama.rope.freq_base", 6, &1e5_f32.to_le_bytes())
        .raw("test.u8", 0, &[200])
        .raw("test.i8", 1, &[0xff])
        .raw("test.u16", 2, &[1, 2])
        .raw("test.i16", 3, &[1, 2])
        .raw("test.i32", 5, &[1, 2, 3, 4])
        .raw("test.bool", 7, &[1])
        .raw("test.u64", 10, &[1; 8])
        .raw("test.i64", 11, &7_i64.to_le_bytes())
        .raw("test.f64", 12, &0.5_f64.to_le_bytes())
        .array("test.bools", 7, 3, &[1, 0, 1])
        .array("test.nested", 9, 1, &[0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 2])
        .strings("tokenizer.ggml.tokens", &["a", "Ġ", ""])
        .array("tokenizer.ggml.token_type", 5, 3, &ints(&[1, 1, 3]))
        .array("tokenizer.ggml.scores", 6, 3, &floats(&[0.0, -1.5, -2.0]))
        .tensor("token_embd.weight", &[8, 3], 1, &[1; 48])
        .tensor("blk.0.attn_q.weight", &[64, 3], 3, &[2; 120])
        .tensor("output_norm.weight", &[4], 0, &floats(&[1.0, 2.0, 3.0, 4.0]))
        .finish()
}
