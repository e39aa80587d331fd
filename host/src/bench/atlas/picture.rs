//! The ratios of all shapes in a picture: a strip of marks for each class. How it is drawn: [`pages::draw`].
//!
//! ```text
//!              ¼      ½      1      2      4
//!   few-rows   │      │    · ┃ ·· ···  ·   │     48 shapes, mean 1.62
//!   squares    │      │      ┃    ·  · ····│     79 shapes, mean 3.11
//! ```

use pages::draw::Style;
use pages::sections::atlas::{self, Class, Ratio};

use super::report::{AtlasReport, Row};

impl AtlasReport {
    /// The picture as SVG.
    pub fn svg(&self) -> String {
        let ratio =
            |row: &Row| Some(Ratio { id: row.id.clone(), kernel: row.measured()?.kernel.clone(), ratio: row.ratio()? });
        let class = |name: &String| Class {
            name: name.clone(),
            ratios: self.results.iter().filter(|row| row.class == *name).filter_map(ratio).collect(),
        };
        let classes: Vec<Class> = self.summary.classes.iter().map(|summary| class(&summary.class)).collect();
        let commit = self.commit.as_ref().map(|commit| format!(", commit {commit}")).unwrap_or_default();
        let mean = self.summary.mean.map(|mean| format!("; mean of the classes' means {mean:.2}")).unwrap_or_default();
        let about = format!("{}, {}, seed {}{commit}, {}{mean}", self.device, self.precision, self.seed, self.date);
        atlas::picture(&classes, &about).svg("atlas", Style::OfFile)
    }
}
