//! What every report says of its making: when, and by which program.

/// Now, in UTC (RFC 3339).
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The commit that the program was built from, with `-dirty` if files had changed; none outside a repository.
pub(crate) fn commit() -> Option<String> {
    option_env!("TILEWRIGHT_COMMIT").map(str::to_owned)
}
