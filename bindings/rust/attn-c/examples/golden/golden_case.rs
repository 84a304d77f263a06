//! A golden case: reading it, checking what a call made of it.

use std::path::Path;

use serde_json::Value;

/// Memory of a call, aligned to 64 bytes, and what it held before.
pub struct Block {
    memory: Vec<Line>,
    /// Its size; the memory is a little more.
    pub bytes: usize,
    before: Vec<u8>,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Block {
    fn new(contents: Vec<u8>) -> Self {
        let mut memory = vec![Line([0; 64]); contents.len() / 64 + 1];
        for (line, bytes) in memory.iter_mut().zip(contents.chunks(64)) {
            line.0[..bytes.len()].copy_from_slice(bytes);
        }
        Block { memory, bytes: contents.len(), before: contents }
    }

    /// The bytes as they are.
    pub fn data(&self) -> &[u8] {
        // SAFETY: lines are arrays of bytes without padding, one behind the other.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.bytes) }
    }

    /// Likewise, to be written.
    pub fn data_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().cast(), self.bytes) }
    }
}

/// A tensor of the call.
#[derive(Clone)]
pub struct Argument {
    pub slot: u32,
    pub code: u8,
    pub bits: u8,
    pub shape: Vec<i64>,
    pub strides: Vec<i64>,
    pub block: usize,
    pub byte_offset: i64,
}

impl Argument {
    fn read(json: &Value) -> Self {
        let list = |name: &str| -> Vec<i64> {
            json[name].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect()
        };
        let number = |name: &str| json[name].as_i64().unwrap();
        Argument {
            slot: number("slot") as u32,
            code: number("code") as u8,
            bits: number("bits") as u8,
            shape: list("shape"),
            strides: list("strides"),
            block: number("memory") as usize,
            byte_offset: number("byte_offset"),
        }
    }

    fn elements(&self) -> i64 {
        self.shape.iter().product()
    }

    fn size(&self) -> usize {
        usize::from(self.bits) / 8
    }

    /// Bytes from the block's begin to element number `linear` in row-major order.
    fn position(&self, mut linear: i64) -> usize {
        let mut offset = 0;
        for (size, stride) in self.shape.iter().zip(&self.strides).rev() {
            offset += linear % size * stride;
            linear /= size;
        }
        (self.byte_offset + offset * self.size() as i64) as usize
    }

    /// A floating-point element.
    fn value(&self, data: &[u8], linear: i64) -> f64 {
        let bytes = &data[self.position(linear)..][..self.size()];
        match (self.code, self.bits) {
            (2, 64) => f64::from_le_bytes(bytes.try_into().unwrap()),
            (2, 32) => f32::from_le_bytes(bytes.try_into().unwrap()).into(),
            (4, 16) => {
                let bits = u16::from_le_bytes(bytes.try_into().unwrap());
                f32::from_bits(u32::from(bits) << 16).into()
            }
            _ => float16(u16::from_le_bytes(bytes.try_into().unwrap())),
        }
    }
}

fn float16(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (fraction + 1024.0) * 2_f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 {
        -size
    } else {
        size
    }
}

/// A case with its memory.
pub struct Case {
    pub name: String,
    pub json: Value,
    pub blocks: Vec<Block>,
    pub inputs: Vec<Argument>,
    pub outputs: Vec<Argument>,
    data: Vec<u8>,
}

impl Case {
    /// Reads `<name>.json` and the data beside it.
    pub fn read(path: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let json: Value = serde_json::from_slice(&std::fs::read(path)?)?;
        let data = std::fs::read(path.with_extension("bin"))?;
        if json["format"] != 1 {
            return Err("its format is not 1".into());
        }
        let items = |name: &str| json[name].as_array().cloned().unwrap_or_default();
        let block = |one: &Value| {
            let bytes = one["bytes"].as_u64().unwrap() as usize;
            Block::new(match one["offset"].as_u64() {
                Some(offset) => data[offset as usize..][..bytes].to_vec(),
                None => vec![one["fill"].as_u64().unwrap() as u8; bytes],
            })
        };
        Ok(Case {
            name: json["name"].as_str().unwrap_or_default().to_string(),
            blocks: items("memory").iter().map(block).collect(),
            inputs: items("inputs").iter().map(Argument::read).collect(),
            outputs: items("outputs").iter().map(Argument::read).collect(),
            json,
            data,
        })
    }

    /// Compares what a call returned and left in memory with what is expected.
    pub fn check(&self, status: i32, message: &str) -> Result<(), String> {
        let error = &self.json["error"];
        let wanted = error["status"].as_i64().unwrap_or(0) as i32;
        if status != wanted {
            return Err(format!("status {status}, expected {wanted}: {message}"));
        }
        if !message.starts_with(error["message"].as_str().unwrap_or_default()) {
            return Err(format!("the message is: {message}"));
        }
        for result in self.json["results"].as_array().into_iter().flatten() {
            self.check_result(result)?;
        }
        self.check_memory(status == 0)
    }

    fn output(&self, slot: u32) -> Result<&Argument, String> {
        self.outputs.iter().find(|one| one.slot == slot).ok_or(format!("there is no output {slot}"))
    }

    fn span(&self, json: &Value, size: usize) -> &[u8] {
        let number = |name: &str| json[name].as_u64().unwrap() as usize;
        &self.data[number("offset")..][..number("count") * size]
    }

    fn numbers(&self, json: &Value) -> Vec<f64> {
        let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
        self.span(json, 8).chunks(8).map(number).collect()
    }

    fn check_result(&self, result: &Value) -> Result<(), String> {
        let output = self.output(result["slot"].as_u64().unwrap() as u32)?;
        let data = self.blocks[output.block].data();
        if result["bytes"].is_object() {
            let wanted = self.span(&result["bytes"], 1);
            for (i, bytes) in wanted.chunks(output.size()).enumerate() {
                if data[output.position(i as i64)..][..bytes.len()] != *bytes {
                    return Err(format!("output {}: element {i} has other bits", output.slot));
                }
            }
            return Ok(());
        }
        let (values, bounds) = (self.numbers(&result["values"]), self.numbers(&result["bounds"]));
        let width = result["row"].as_u64().unwrap() as usize;
        let mut whole = 0.0;
        for (row, wanted) in values.chunks(width).enumerate() {
            let mut sum = 0.0;
            for (i, want) in wanted.iter().enumerate() {
                let got = output.value(data, (row * width + i) as i64);
                if !want.is_nan() && got != *want {
                    sum += (got - want) * (got - want);
                }
            }
            whole += sum;
            check_bound(sum, bounds[row], output.slot)?;
        }
        check_bound(whole, bounds[bounds.len() - 1], output.slot)
    }

    /// Bytes that are no element of an output are as they were; all of them after a failure.
    fn check_memory(&self, written: bool) -> Result<(), String> {
        for (number, block) in self.blocks.iter().enumerate() {
            let mut free = vec![false; block.bytes];
            for output in self.outputs.iter().filter(|one| written && one.block == number) {
                for i in 0..output.elements() {
                    free[output.position(i)..][..output.size()].fill(true);
                }
            }
            let changed =
                (0..block.bytes).find(|&i| !free[i] && block.data()[i] != block.before[i]);
            if let Some(at) = changed {
                return Err(format!("memory block {number} was written at byte {at}"));
            }
        }
        Ok(())
    }

    /// FNV-1a, 64 bits, of all memory blocks in order and of the message.
    pub fn digest(&self, message: &str) -> u64 {
        let blocks = self.blocks.iter().flat_map(|block| block.data());
        blocks.chain(message.as_bytes()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

/// A sum of squares against a bound; what is no number is beyond every bound.
fn check_bound(squares: f64, bound: f64, slot: u32) -> Result<(), String> {
    let off = squares.sqrt();
    if off <= bound {
        return Ok(());
    }
    Err(format!("output {slot} is off by {off:e}, at most {bound:e}"))
}
