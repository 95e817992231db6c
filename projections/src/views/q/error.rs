//! What is wrong with a file of q's.

/// Why a file of q's can't be taken for what it should be. Each names the file, the place, what is expected there and
/// what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QError {
    /// It is no JSON object.
    #[error(
        "{file}: at byte {offset}, one JSON object is expected, and there is: {found}; restore the file from a copy"
    )]
    NotJson {
        /// The file, and the element of it, if it is one.
        file: String,
        /// Where in the file or element, in bytes.
        offset: usize,
        /// What the decoder says.
        found: String,
    },
    /// Its version is not one that is known.
    #[error("{file}: field version is {found}, and {expected} is expected; a newer logdump may know it")]
    Version {
        /// The file.
        file: String,
        /// The versions that are known.
        expected: &'static str,
        /// The version found, as it stands there; `missing` if there is none.
        found: String,
    },
    /// A field is of another type than it should be.
    #[error("{file}: field {field} is {found}, and {expected} is expected; correct the field or remove it")]
    Field {
        /// The file.
        file: String,
        /// The field, from the top of the file.
        field: String,
        /// What it should be.
        expected: &'static str,
        /// The beginning of what it is.
        found: String,
    },
    /// It nests deeper than anything that q writes.
    #[error("{file}: {field} nests deeper than {limit} levels; it was not written by q")]
    TooDeep {
        /// The file.
        file: String,
        /// The field.
        field: String,
        /// The deepest level.
        limit: usize,
    },
}
