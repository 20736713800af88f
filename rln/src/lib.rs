//! The part of RLN-V2 that Python is too slow for: the Poseidon hash and the Groth16 proofs of the circuit for
//! membership trees of depth 20 and one message id. Everything else is in the Python package `fairway.rln`.
//!
//! Bytes in, bytes out. A field element has 32 bytes, little-endian, and is below the order of the scalar field of
//! BN254. Whatever else is given raises `ValueError`. All methods of `Circuit` release the GIL.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rln::prelude::{
    ArkGroth16Backend, CanonicalDeserialize, CanonicalSerialize, Fr, Hasher, PartialProof as Part,
    PoseidonHash, Proof, RLNBuilder, RLNMerkleProof, RLNPartialWitnessInput, RLNProofValues,
    RLNWitnessInput, SecretFr, Stateless, RLN,
};

const DEPTH: usize = 20;
const FIELD: usize = 32;
const PROOF: usize = 128;
/// proof | root | x | y | nullifier
const PROVEN: usize = PROOF + 4 * FIELD;
/// secret | limit | message id | x | external nullifier | path | one byte, 0 or 1, for each level of the path
const WITNESS: usize = (5 + DEPTH) * FIELD + DEPTH;
/// Most inputs of a Poseidon hash for which zerokit has parameters.
const MOST_INPUTS: usize = 8;

fn refused(what: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(what.to_string())
}

fn sized<'a>(bytes: &'a [u8], size: usize, what: &str) -> PyResult<&'a [u8]> {
    if bytes.len() == size {
        Ok(bytes)
    } else {
        Err(refused(format!("{what} has {size} bytes, not {}", bytes.len())))
    }
}

fn field(bytes: &[u8]) -> PyResult<Fr> {
    Fr::deserialize_compressed(sized(bytes, FIELD, "a field element")?)
        .map_err(|error| refused(format!("not a field element: {error}")))
}

/// The element at place `index` of concatenated ones; the caller has checked the length.
fn nth(bytes: &[u8], index: usize) -> PyResult<Fr> {
    field(&bytes[index * FIELD..(index + 1) * FIELD])
}

fn append(out: &mut Vec<u8>, value: &impl CanonicalSerialize) -> PyResult<()> {
    value.serialize_compressed(out).map_err(refused)
}

fn witness(raw: &[u8]) -> PyResult<RLNWitnessInput> {
    sized(raw, WITNESS, "a witness")?;
    let mut secret = nth(raw, 0)?;
    let path = (5..5 + DEPTH).map(|index| nth(raw, index)).collect::<PyResult<Vec<_>>>()?;
    RLNWitnessInput::new_single()
        .identity_secret(SecretFr::from(&mut secret))
        .user_message_limit(nth(raw, 1)?)
        .message_id(nth(raw, 2)?)
        .x(nth(raw, 3)?)
        .external_nullifier(nth(raw, 4)?)
        .merkle_proof(RLNMerkleProof::new(path, raw[(5 + DEPTH) * FIELD..].to_vec()))
        .build()
        .map_err(refused)
}

fn proven(proof: &Proof, values: &RLNProofValues) -> PyResult<Vec<u8>> {
    let of_several = || refused("the circuit gave values for several message ids");
    let mut out = Vec::with_capacity(PROVEN);
    append(&mut out, proof)?;
    append(&mut out, &values.root())?;
    append(&mut out, &values.x())?;
    append(&mut out, &values.y().ok_or_else(of_several)?)?;
    append(&mut out, &values.nullifier().ok_or_else(of_several)?)?;
    Ok(out)
}

/// What of a proof depends on the membership and its path alone. It holds the secret: it has no bytes and no text.
#[pyclass(frozen, module = "fairway_rln")]
struct PartialProof(Part);

/// The circuit with its keys, which are part of this library. Threads may share one.
#[pyclass(frozen, module = "fairway_rln")]
struct Circuit(RLN<Stateless, ArkGroth16Backend<PoseidonHash>>);

#[pymethods]
impl Circuit {
    #[new]
    fn new(py: Python<'_>) -> Self {
        py.detach(|| Self(RLNBuilder::stateless().build()))
    }

    /// prove(witness: bytes) -> bytes
    ///
    /// The witness is secret | limit | message id | x | external nullifier | 20 path elements | 20 path bits, a byte
    /// each. Returns proof (128 bytes) | root | x | y | nullifier.
    fn prove<'py>(&self, py: Python<'py>, witness: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let input = self::witness(witness)?;
        let (proof, values) = py.detach(|| self.0.generate_proof(&input)).map_err(refused)?;
        Ok(PyBytes::new(py, &proven(&proof, &values)?))
    }

    /// prove_partially(witness: bytes) -> PartialProof
    ///
    /// Serves every witness of the same secret, limit and path.
    fn prove_partially(&self, py: Python<'_>, witness: &[u8]) -> PyResult<PartialProof> {
        let input = RLNPartialWitnessInput::from(&self::witness(witness)?);
        py.detach(|| self.0.generate_partial_proof(&input)).map(PartialProof).map_err(refused)
    }

    /// finish(partial: PartialProof, witness: bytes) -> bytes
    ///
    /// What `prove` returns for the witness, in a third of the time. A partial proof of another secret, limit or path
    /// gives a proof that does not verify.
    fn finish<'py>(
        &self,
        py: Python<'py>,
        partial: &PartialProof,
        witness: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let input = self::witness(witness)?;
        let (proof, values) =
            py.detach(|| self.0.finish_proof(&partial.0, &input)).map_err(refused)?;
        Ok(PyBytes::new(py, &proven(&proof, &values)?))
    }

    /// verify(proven: bytes, external_nullifier: bytes) -> bool
    ///
    /// Whether the proof holds for these values. Whether the root is of the group and x of the message is for the
    /// caller to see. Raises ValueError for bytes that are no proof or no field elements.
    fn verify(&self, py: Python<'_>, proven: &[u8], external_nullifier: &[u8]) -> PyResult<bool> {
        sized(proven, PROVEN, "a proof with its values")?;
        let (proof, rest) = proven.split_at(PROOF);
        let values = RLNProofValues::new_single()
            .root(nth(rest, 0)?)
            .x(nth(rest, 1)?)
            .y(nth(rest, 2)?)
            .nullifier(nth(rest, 3)?)
            .external_nullifier(field(external_nullifier)?)
            .build();
        py.detach(|| {
            let proof = Proof::deserialize_compressed(proof).map_err(|error| error.to_string())?;
            self.0.verify(&proof, &values).map_err(|error| error.to_string())
        })
        .map_err(|error| refused(format!("not a proof: {error}")))
    }
}

/// poseidon(inputs: list[bytes]) -> bytes
///
/// The Poseidon hash of one to eight field elements.
#[pyfunction]
fn poseidon<'py>(py: Python<'py>, inputs: Vec<Vec<u8>>) -> PyResult<Bound<'py, PyBytes>> {
    if !(1..=MOST_INPUTS).contains(&inputs.len()) {
        return Err(refused(format!("Poseidon takes 1 to {MOST_INPUTS} field elements, not {}", inputs.len())));
    }
    let inputs = inputs.iter().map(|each| field(each)).collect::<PyResult<Vec<_>>>()?;
    let mut out = Vec::with_capacity(FIELD);
    append(&mut out, &Hasher::<PoseidonHash>::hash_list(&inputs))?;
    Ok(PyBytes::new(py, &out))
}

#[pymodule]
fn fairway_rln(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Circuit>()?;
    module.add_class::<PartialProof>()?;
    module.add_function(wrap_pyfunction!(poseidon, module)?)
}
