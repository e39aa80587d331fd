//! Charts as SVG and pages as HTML, from the files that measurements leave: one page that a browser opens without a network, in
//! light and dark, printed, with the keyboard, or read aloud.
//!
//! ```text
//!  docs/results/*.json ──results──▶ Content ──sections──▶ Section { words, charts, tables } ──page──▶ report.html
//!                                                                   │
//!                                                                   └──draw──▶ one .svg for each chart
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`draw`] | scales, ticks, labels, colours with shapes, and the two charts that all pictures are: points on two axes, marks in rows |
//! | [`results`] | reads files of results, of each program that writes some |
//! | [`sections`] | what the files have to say about one question: the roofline, errors, history |
//! | [`page`] | HTML: headings, tables with captions, figures, the style and the script |
//!
//! Nothing here depends on the date or the machine: the same files give the same bytes.

pub mod draw;
pub mod page;
pub mod results;
pub mod sections;

/// Text as HTML and XML have it, in elements and in quoted attributes. Characters that XML cannot have become U+FFFD.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            // Those that turn the direction of what follows are as bad.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_text() {
        let hostile = "</title><script>alert('x\"')</script>&amp;\0\u{1b}\u{202e}\n";
        let safe = escaped(hostile);
        assert!(!safe.contains(['<', '>', '"', '\'', '\0', '\u{1b}', '\u{202e}', '\n']), "{safe}");
        assert!(safe.starts_with("&lt;/title&gt;&lt;script&gt;") && safe.contains("&amp;amp;"), "{safe}");
        assert_eq!(escaped("Σ|a||b|, 8192³"), "Σ|a||b|, 8192³");
    }
}
