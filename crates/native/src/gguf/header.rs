//! The part of a GGUF file before its data: keys, and where the tensors lie.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::error::{Problem, Quoted};
use super::read::Reader;
use super::tensor::{Tensor, TensorInfo, TensorType};
use super::value::Value;

const MAGIC: &[u8] = b"GGUF";
const MAX_DIMS: usize = 4;
const DEFAULT_ALIGNMENT: usize = 32;

/// The least bytes a key (name, type, one byte of value) and a tensor (name, dims, one dimension,
/// type, offset) can take.
const KEY_BYTES: usize = 8 + 4 + 1;
const TENSOR_BYTES: usize = 8 + 4 + 8 + 4 + 8;

#[derive(Debug)]
pub(super) struct Header {
    pub(super) values: BTreeMap<String, Value>,
    pub(super) tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
}

impl Header {
    /// Reads and checks the header of a file whose bytes are all of `bytes`.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Problem> {
        if !bytes.starts_with(MAGIC) {
            let begin = bytes[..bytes.len().min(16)].escape_ascii().to_string();
            return Err(Problem::NotGguf { begin });
        }
        let mut reader = Reader::new(bytes, MAGIC.len());
        match reader.u32(&|| "the version".into())? {
            2 | 3 => {}
            version if (1..=0xffff).contains(&version.swap_bytes()) => return Err(Problem::BigEndian),
            version => return Err(Problem::Version(version)),
        }
        let n_tensors = reader.u64(&|| "the number of tensors".into())?;
        let n_keys = reader.u64(&|| "the number of keys".into())?;
        let values = read_values(&mut reader, n_keys)?;
        let alignment = alignment(&values)?;
        let (tensors, by_name) = read_tensors(&mut reader, n_tensors, alignment)?;
        // In u128, where no sum of file positions and given offsets overflows.
        let data = (reader.position() as u128).next_multiple_of(alignment as u128);
        let tensors = tensors.into_iter().map(|t| t.place(data, bytes.len())).collect::<Result<_, _>>()?;
        Ok(Self { values, tensors, by_name })
    }

    /// The tensor called `name`; `bytes` are those that were parsed.
    pub(super) fn tensor<'a>(&'a self, name: &str, bytes: &'a [u8]) -> Result<Tensor<'a>, Problem> {
        let index = *self.by_name.get(name).ok_or_else(|| Problem::NoTensor(name.to_owned()))?;
        let TensorInfo { name, shape, ty, range } = &self.tensors[index];
        match range {
            Some(range) => Ok(Tensor { name, shape, ty: *ty, data: &bytes[range.clone()] }),
            None => Err(Problem::TensorType { name: name.clone(), ty: *ty }),
        }
    }
}

fn read_values(reader: &mut Reader<'_>, count: u64) -> Result<BTreeMap<String, Value>, Problem> {
    reader.check_room(count, KEY_BYTES, &|| format!("a header of {count} keys"))?;
    let mut values = BTreeMap::new();
    for i in 0..count {
        let key = reader.string(&|| format!("the name of key {i} of {count}"))?;
        let what = || format!("key {}", Quoted(key));
        let value = reader.value(&what)?;
        if values.insert(key.to_owned(), value).is_some() {
            return Err(Problem::Duplicate { what: what() });
        }
    }
    Ok(values)
}

fn alignment(values: &BTreeMap<String, Value>) -> Result<usize, Problem> {
    let key = "general.alignment";
    let Some(value) = values.get(key) else { return Ok(DEFAULT_ALIGNMENT) };
    let Some(given) = value.as_u64() else {
        let (has, want) = (value.describe(), "a non-negative integer");
        return Err(Problem::KeyType { key: key.into(), has, want });
    };
    match usize::try_from(given) {
        Ok(alignment) if alignment.is_power_of_two() && alignment >= 8 => Ok(alignment),
        _ => Err(Problem::Alignment(given)),
    }
}

/// A tensor before it is known where the data begins.
struct Unplaced {
    name: String,
    shape: Vec<usize>,
    ty: TensorType,
    /// Relative to the begin of the data.
    offset: u64,
    /// Its size, if the type is known.
    bytes: Option<usize>,
}

type Tensors = (Vec<Unplaced>, HashMap<String, usize>);

fn read_tensors(reader: &mut Reader<'_>, count: u64, alignment: usize) -> Result<Tensors, Problem> {
    reader.check_room(count, TENSOR_BYTES, &|| format!("a header of {count} tensors"))?;
    let (mut tensors, mut by_name) = (Vec::new(), HashMap::new());
    for i in 0..count {
        let name = reader.string(&|| format!("the name of tensor {i} of {count}"))?;
        let what = || format!("tensor {}", Quoted(name));
        let entry = || format!("the header entry of tensor {}", Quoted(name));
        let dims = reader.u32(&entry)?;
        if !(1..=MAX_DIMS as u32).contains(&dims) {
            return Err(Problem::Dims { what: what(), dims, limit: MAX_DIMS });
        }
        let dims = (0..dims).map(|_| reader.u64(&entry)).collect::<Result<Vec<_>, _>>()?;
        let ty = TensorType::from_id(reader.u32(&entry)?);
        let offset = reader.u64(&entry)?;
        if offset % alignment as u64 != 0 {
            return Err(Problem::Offset { what: what(), offset, alignment });
        }
        let Some(shape) = shape(&dims) else { return Err(Problem::Shape { what: what(), shape: dims }) };
        let bytes = match ty.block() {
            Some((block, _)) if shape[0] % block != 0 => {
                return Err(Problem::Row { what: what(), ty, row: shape[0], block });
            }
            Some((block, block_bytes)) => {
                let blocks = shape.iter().product::<usize>() / block;
                let bytes = blocks.checked_mul(block_bytes);
                Some(bytes.ok_or_else(|| Problem::Shape { what: what(), shape: dims })?)
            }
            None => None,
        };
        if by_name.insert(name.to_owned(), tensors.len()).is_some() {
            return Err(Problem::Duplicate { what: what() });
        }
        tensors.push(Unplaced { name: name.to_owned(), shape, ty, offset, bytes });
    }
    Ok((tensors, by_name))
}

/// The dimensions as sizes: none zero, and their product is one too.
fn shape(dims: &[u64]) -> Option<Vec<usize>> {
    let shape: Vec<usize> = dims.iter().map(|&ne| usize::try_from(ne).ok()).collect::<Option<_>>()?;
    let product = shape.iter().try_fold(1_usize, |product, &ne| product.checked_mul(ne))?;
    (product > 0).then_some(shape)
}

impl Unplaced {
    /// Its place in a file of `file` bytes whose data begins at `data`. A tensor of unknown type must
    /// at least begin inside the file.
    fn place(self, data: u128, file: usize) -> Result<TensorInfo, Problem> {
        let start = data + u128::from(self.offset);
        let end = start + self.bytes.unwrap_or(0) as u128;
        if end > file as u128 {
            let what = format!("tensor {}", Quoted(&self.name));
            return Err(Problem::Truncated { what, start, end, len: file });
        }
        let range = |bytes: usize| -> Range<usize> {
            let end = usize::try_from(end).expect("inside the file");
            end - bytes..end
        };
        let range = self.bytes.map(range);
        Ok(TensorInfo { name: self.name, shape: self.shape, ty: self.ty, range })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::test_file::{Builder, sample};
    use super::*;

    fn error(bytes: &[u8]) -> String {
        Header::parse(bytes).unwrap_err().to_string()
    }

    /// Parses, and if that works reads every byte that the result offers.
    fn exercise(bytes: &[u8]) -> bool {
        let Ok(header) = Header::parse(bytes) else { return false };
        for info in &header.tensors {
            let Ok(tensor) = header.tensor(&info.name, bytes) else {
                assert!(matches!(info.ty, TensorType::Other(_)));
                continue;
            };
            let (block, size) = tensor.ty.block().unwrap();
            assert_eq!(tensor.data.len(), tensor.shape.iter().product::<usize>() / block * size);
            std::hint::black_box(tensor.data.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
        }
        true
    }

    #[test]
    fn every_truncation_is_an_error_of_one_line() {
        let bytes = sample();
        assert!(exercise(&bytes));
        for len in 0..bytes.len() {
            let error = error(&bytes[..len]);
            let named = error.starts_with("truncated: ") || (len < 4 && error.starts_with("not a GGUF file"));
            assert!(named && !error.contains('\n'), "{len}: {error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn no_mutation_panics(
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            words in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
                any::<u64>(), (0_u32..64).prop_map(|s| 1 << s), (0_u32..64).prop_map(|s| u64::MAX >> s)
            ]), 0..3),
            cut in any::<prop::sample::Index>(),
            shorten in prop::bool::weighted(0.2),
        ) {
            let mut bytes = sample();
            for (at, byte) in edits {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            // Whole words too: counts, lengths and offsets at their extremes.
            for (at, word) in words {
                let at = at.index(bytes.len() - 8);
                bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            if shorten {
                bytes.truncate(cut.index(bytes.len()));
            }
            exercise(&bytes);
        }
    }

    #[test]
    fn a_word_of_extremes_at_every_place_never_panics() {
        let original = sample();
        for at in 0..original.len() - 8 {
            for word in [0, 1, 7, 1 << 31, 1 << 32, 1 << 60, i64::MAX as u64, u64::MAX - 7, u64::MAX] {
                let mut bytes = original.clone();
                bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(word));
                exercise(&bytes);
            }
        }
    }

    #[test]
    fn a_false_count_allocates_nothing() {
        // If the counts were believed, these would ask for exabytes and abort.
        let head = |tensors: u64, keys: u64| {
            let mut bytes = b"GGUF\x03\0\0\0".to_vec();
            bytes.extend(tensors.to_le_bytes());
            bytes.extend(keys.to_le_bytes());
            bytes
        };
        assert_eq!(
            error(&head(0, 1 << 60)),
            "truncated: a header of 1152921504606846976 keys needs bytes 24..14987979559889010712 but the file has 24"
        );
        assert!(error(&head(u64::MAX, 0)).starts_with("truncated: a header of 18446744073709551615 tensors"));
        for element in [0_u32, 5, 7, 8, 9, 12] {
            let mut bytes = head(0, 1);
            bytes.extend(1_u64.to_le_bytes());
            bytes.push(b'k');
            bytes.extend(9_u32.to_le_bytes());
            bytes.extend(element.to_le_bytes());
            bytes.extend((1_u64 << 60).to_le_bytes());
            bytes.extend([0; 64]);
            assert!(error(&bytes).starts_with("truncated: key `k` needs bytes 49.."), "{}", error(&bytes));
        }
    }

    #[test]
    fn contradictions_are_named() {
        let key = |name: &str| Builder::new().u32(name, 1);
        assert_eq!(error(&key("a").u32("a", 2).finish()), "key `a` occurs twice");
        assert_eq!(error(&key("a\n").u32("a\n", 2).finish()), "key `a\\n` occurs twice");
        let twice = Builder::new().tensor("t", &[4], 0, &[0; 16]).tensor("t", &[4], 0, &[0; 16]);
        assert_eq!(error(&twice.finish()), "tensor `t` occurs twice");
        let align = |n| error(&Builder::new().u32("general.alignment", n).finish());
        for n in [0, 1, 4, 24, u32::MAX] {
            assert_eq!(align(n), format!("general.alignment is {n}, not a power of two of at least 8"));
        }
        let tensor = |shape: &[u64], ty| error(&Builder::new().tensor("t", shape, ty, &[0; 64]).finish());
        assert_eq!(tensor(&[], 0), "tensor `t` has 0 dimensions, not 1 to 4");
        assert_eq!(tensor(&[1; 5], 0), "tensor `t` has 5 dimensions, not 1 to 4");
        assert_eq!(tensor(&[4, 0], 0), "tensor `t` has the impossible shape 4 x 0");
        assert_eq!(
            tensor(&[1 << 40, 1 << 40], 0),
            "tensor `t` has the impossible shape 1099511627776 x 1099511627776"
        );
        assert_eq!(tensor(&[1 << 62], 0), "tensor `t` has the impossible shape 4611686018427387904");
        assert_eq!(
            tensor(&[48, 2], 3),
            "tensor `t` is Q4_1 with rows of 48 values, not a multiple of its block of 32"
        );
        let at = Builder::new().tensor("t", &[4], 0, &[0; 16]).offset("t", 16).finish();
        assert_eq!(error(&at), "tensor `t` lies at offset 16, not a multiple of general.alignment 32");
        let far = Builder::new().tensor("t", &[4], 0, &[0; 16]).offset("t", u64::MAX - 31).finish();
        assert!(
            error(&far).starts_with("truncated: tensor `t` needs bytes 184467440737095516"),
            "{}",
            error(&far)
        );
        assert_eq!(
            error(&Builder::new().raw("b", 7, &[2]).finish()),
            "key `b` is the bool 2, neither 0 nor 1"
        );
        assert_eq!(
            error(&Builder::new().raw("v", 13, &[0]).finish()),
            "key `v` has the unknown value type 13"
        );
        assert_eq!(
            error(&Builder::new().raw("s", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff]).finish()),
            "key `s` is not valid UTF-8"
        );
        let nested = [9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0].repeat(5);
        assert_eq!(
            error(&Builder::new().raw("n", 9, &nested).finish()),
            "key `n` nests arrays deeper than 4"
        );
    }

    #[test]
    fn versions_are_told_apart() {
        let version = |version: u32| {
            let mut bytes = sample();
            bytes[4..8].copy_from_slice(&version.to_le_bytes());
            Header::parse(&bytes)
        };
        assert!(version(2).is_ok() && version(3).is_ok());
        assert_eq!(
            version(1).unwrap_err().to_string(),
            "GGUF version 1 is not supported, only 2 and 3: convert the model again"
        );
        assert!(version(4).unwrap_err().to_string().starts_with("GGUF version 4 "));
        assert!(version(3_u32.swap_bytes()).unwrap_err().to_string().starts_with("a big-endian GGUF file"));
    }

    #[test]
    fn an_alignment_moves_the_data_and_unknown_types_are_listed_only() {
        let built = Builder::new().u32("general.alignment", 256).tensor("a", &[2], 0, &[7; 8]).tensor(
            "b",
            &[3],
            23,
            &[9; 12],
        );
        let bytes = built.finish();
        let header = Header::parse(&bytes).unwrap();
        let a = header.tensor("a", &bytes).unwrap();
        assert_eq!((a.data, bytes.len()), (&[7; 8][..], 256 + 256 + 12));
        assert_eq!(header.tensors[1].ty, TensorType::Other(23));
        let error = header.tensor("b", &bytes).unwrap_err().to_string();
        assert_eq!(error, "the tensor `b` is of type IQ4_XS, which is not supported");
        assert_eq!(header.tensor("c", &bytes).unwrap_err().to_string(), "the tensor `c` is missing");
    }
}
