//! rln 2.0.2, which other nodes use, behind lines of hex: `verify PROVEN EXTERNAL_NULLIFIER` answers true or false,
//! `prove WITNESS` answers PROVEN. The layouts are those of `fairway.rln.native`.

use std::io::{self, BufRead, Write};

use ark_serialize::{CanonicalDeserialize, CanonicalSerialize};
use rln::prelude::*;

const DEPTH: usize = 20;
const PROOF: usize = 128;

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn nth(bytes: &[u8], index: usize) -> Fr {
    Fr::deserialize_compressed(&bytes[index * 32..index * 32 + 32]).unwrap()
}

fn verify(rln: &RLN, proven: &[u8], external: &[u8]) -> bool {
    let Ok(proof) = Proof::deserialize_compressed(&proven[..PROOF]) else { return false };
    let rest = &proven[PROOF..];
    let (root, x, y, nullifier) = (nth(rest, 0), nth(rest, 1), nth(rest, 2), nth(rest, 3));
    let values = RLNProofValues::new(root, x, nth(external, 0), y, nullifier);
    rln.verify_with_roots(&proof, &values, &x, &[root]).unwrap_or(false)
}

fn prove(rln: &RLN, raw: &[u8]) -> Vec<u8> {
    let mut secret = nth(raw, 0);
    let path = (5..5 + DEPTH).map(|index| nth(raw, index)).collect();
    let bits = raw[(5 + DEPTH) * 32..].to_vec();
    let secret = IdSecret::from(&mut secret);
    let witness =
        RLNWitnessInput::new(secret, nth(raw, 1), nth(raw, 2), path, bits, nth(raw, 3), nth(raw, 4)).unwrap();
    let (proof, values) = rln.generate_rln_proof(&witness).unwrap();
    let mut out = Vec::new();
    proof.serialize_compressed(&mut out).unwrap();
    for value in [values.root(), values.x(), values.y(), values.nullifier()] {
        value.serialize_compressed(&mut out).unwrap();
    }
    out
}

fn main() {
    let rln = RLN::new().unwrap();
    for line in io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["verify", proven, external] => verify(&rln, &unhex(proven), &unhex(external)).to_string(),
            ["prove", witness] => {
                prove(&rln, &unhex(witness)).iter().map(|byte| format!("{byte:02x}")).collect()
            }
            _ => panic!("unknown: {line}"),
        };
        println!("{answer}");
        io::stdout().flush().unwrap();
    }
}
