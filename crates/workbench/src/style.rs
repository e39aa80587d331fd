//! Colours and width, by where the text goes.
//!
//! Colours are on a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`; and elsewhere if `CLICOLOR_FORCE` is set, and not 0.

use std::env;
use std::fmt::Display;
use std::io::{IsTerminal, stdout};

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// Whether there are colours.
    pub(crate) colours: bool,
    /// The columns of the terminal.
    pub(crate) width: usize,
}

/// A meaning, which has a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Warning,
    /// What stands out, without a judgement.
    Strong,
    /// What may be passed over.
    Faint,
}

impl Style {
    /// That of the standard output.
    pub(crate) fn of_stdout() -> Self {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let forced = set("CLICOLOR_FORCE").is_some_and(|value| value != "0");
        let colours = set("NO_COLOR").is_none() && (forced || (stdout().is_terminal() && !is_dumb));
        let columns = set("COLUMNS").and_then(|value| value.to_str()?.parse().ok());
        let of_terminal = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        // A file has no width: what people read there in an editor is as wide as this.
        let width = columns.or_else(of_terminal).unwrap_or(120);
        Self { colours, width: width.max(40) }
    }

    /// No colours.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { colours: false, width: 120 }
    }

    /// The text in the colour of its meaning. Every line ends as it began, so that a program that is killed leaves the terminal as it was.
    pub(crate) fn paint(&self, tone: Tone, text: impl Display) -> String {
        let text = text.to_string();
        if !self.colours || text.is_empty() {
            return text;
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "1;31",
            Tone::Warning => "33",
            Tone::Strong => "1",
            Tone::Faint => "2",
        };
        let lines = text.split('\n');
        lines.map(|line| format!("\x1b[{code}m{line}\x1b[0m")).collect::<Vec<_>>().join("\n")
    }

    /// Words in lines that fit beside an indent, the first line without it.
    pub(crate) fn wrap(&self, text: &str, indent: usize) -> String {
        let width = self.width.saturating_sub(indent).max(20);
        let mut lines = vec![String::new()];
        for word in text.split(' ') {
            let line = lines.last_mut().expect("there is one from the start");
            if line.is_empty() {
                line.push_str(word);
            } else if line.chars().count() + 1 + word.chars().count() <= width {
                line.push(' ');
                line.push_str(word);
            } else {
                lines.push(word.to_owned());
            }
        }
        lines.join(&format!("\n{}", " ".repeat(indent)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_colour_and_its_end() {
        let colours = Style { colours: true, width: 80 };
        assert_eq!(colours.paint(Tone::Good, "a\nb"), "\x1b[32ma\x1b[0m\n\x1b[32mb\x1b[0m");
        assert_eq!(Style::plain().paint(Tone::Bad, "a\nb"), "a\nb");
    }

    #[test]
    fn words_are_wrapped_beside_an_indent() {
        let style = Style { colours: false, width: 40 };
        assert_eq!(
            style.wrap("one two three four five six seven", 20),
            format!("one two three four\n{0}five six seven", " ".repeat(20))
        );
        assert_eq!(style.wrap("short", 4), "short");
    }
}
