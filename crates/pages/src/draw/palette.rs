//! Colours for light and dark, and the shapes that go with them.
//!
//! The series' colours are after Okabe and Ito, whose differences people of all kinds of colour vision see, darkened for white and
//! lightened for black until each has a contrast of 3 to 1 at least, which a test computes. No text has a series' colour.

/// A colour by its name in the style, light and dark.
pub(super) struct Colour {
    pub(super) name: &'static str,
    pub(super) light: &'static str,
    pub(super) dark: &'static str,
}

const fn colour(name: &'static str, light: &'static str, dark: &'static str) -> Colour {
    Colour { name, light, dark }
}

/// All of them. The first is the background.
pub(super) const COLOURS: [Colour; 15] = [
    colour("ground", "#ffffff", "#0d1117"),
    colour("raised", "#f6f8fa", "#161b22"),
    colour("text", "#1f2328", "#e6edf3"),
    colour("quiet", "#59636e", "#9da7b3"),
    colour("line", "#d1d9e0", "#30363d"),
    colour("strong", "#59636e", "#9198a1"),
    colour("link", "#0550ae", "#79b8ff"),
    colour("lit", "#fff3bf", "#4a3c00"),
    colour("s0", "#0072b2", "#56b4e9"),
    colour("s1", "#c24a00", "#ff9b57"),
    colour("s2", "#007a59", "#2fd3a5"),
    colour("s3", "#a03c7c", "#e89ac7"),
    colour("s4", "#806600", "#e6c229"),
    colour("s5", "#4f5861", "#c3cad1"),
    colour("s6", "#5b4bd6", "#a5a0ff"),
];

/// How many series can be told apart.
pub const SERIES: usize = 7;

/// What pictures look like, for the page that has some.
pub const CHART_STYLE: &str = include_str!("chart.css");

/// The colours as custom properties, one line for each: light ones, or dark ones.
fn properties(dark: bool) -> String {
    COLOURS
        .iter()
        .map(|colour| format!("  --{}: {};\n", colour.name, if dark { colour.dark } else { colour.light }))
        .collect()
}

/// The colours of a page: as the system has them, or as its switch says, whose radio buttons have the ids `theme-light` and
/// `theme-dark`; light on paper. The switch needs no script.
pub fn page_colours() -> String {
    let (light, dark) = (properties(false), properties(true));
    format!(
        ":root {{\n  color-scheme: light dark;\n{light}}}\n\
         @media (prefers-color-scheme: dark) {{ :root {{\n{dark}}} }}\n\
         :root:has(#theme-light:checked) {{\n  color-scheme: light;\n{light}}}\n\
         :root:has(#theme-dark:checked) {{\n  color-scheme: dark;\n{dark}}}\n\
         @media print {{ :root, :root:has(#theme-dark:checked) {{\n  color-scheme: light;\n{light}}} }}\n"
    )
}

/// The style of a picture that is a file. Colours stand in it as they are, because not all that show SVG know custom properties.
pub(super) fn style_of_files() -> String {
    let with = |style: &str, dark: bool| {
        COLOURS.iter().fold(style.to_owned(), |style, Colour { name, light, dark: other }| {
            style.replace(&format!("var(--{name})"), if dark { other } else { light })
        })
    };
    let coloured: String =
        CHART_STYLE.lines().filter(|line| line.contains("var(--")).map(|line| format!("{line}\n")).collect();
    let all = with(CHART_STYLE, false);
    format!("{all}@media (prefers-color-scheme: dark) {{\n{}}}\n", with(&coloured, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The relative luminance of `#rrggbb`, as WCAG has it.
    fn luminance(colour: &str) -> f64 {
        let part = |start: usize| {
            let value = f64::from(u8::from_str_radix(&colour[start..start + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn series_and_text_stand_out_from_the_ground() {
        assert_eq!(contrast("#000000", "#ffffff").round(), 21.0);
        let ground = &COLOURS[..2];
        for colour in &COLOURS[2..] {
            let least = match colour.name {
                "line" | "lit" => continue,
                "text" | "quiet" | "link" => 4.5,
                _ => 3.0,
            };
            for ground in ground {
                let (light, dark) = (contrast(colour.light, ground.light), contrast(colour.dark, ground.dark));
                assert!(light >= least && dark >= least, "{} on {}: {light:.2} {dark:.2}", colour.name, ground.name);
            }
        }
        assert_eq!(
            COLOURS.iter().filter(|colour| colour.name.starts_with('s') && colour.name.len() == 2).count(),
            SERIES
        );
    }

    #[test]
    fn a_file_has_colours_and_no_properties() {
        let style = style_of_files();
        assert!(!style.contains("var("), "{style}");
        for Colour { light, dark, .. } in &COLOURS[8..] {
            assert!(style.contains(light) && style.contains(dark), "{light} {dark}");
        }
    }
}
