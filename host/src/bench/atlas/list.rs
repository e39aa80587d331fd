//! The shapes of the atlas as text, and as JSON for programs that measure them with something else.

use serde::{Deserialize, Serialize};

use super::class::{Chosen, LIMIT_BYTES};
use super::shape::Shape;
use crate::provenance::{commit, now};

/// What the `schema` of a list says.
const SCHEMA: &str = "tilewright-atlas-shapes";

/// The version of the schema. It changes when a field changes its meaning or goes away.
const SCHEMA_VERSION: u32 = 1;

/// Shapes, class by class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShapeList {
    /// `tilewright-atlas-shapes`.
    pub schema: String,
    /// The version of the schema.
    pub schema_version: u32,
    /// When it was made, in UTC (RFC 3339).
    pub date: String,
    /// The version of this crate.
    pub version: String,
    /// The commit that the program was built from, with `-dirty` if files had been changed; none outside a repository.
    pub commit: Option<String>,
    /// What shapes were drawn by; 0 for the atlas itself.
    pub seed: u64,
    /// How many shapes of each class were asked for; none for all.
    pub sample: Option<usize>,
    /// The most bytes that A, B and C of a shape may lie in.
    pub limit_bytes: u64,
    /// The classes.
    pub classes: Vec<ListedClass>,
}

/// The shapes of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedClass {
    /// The name.
    pub name: String,
    /// What is in it, in a sentence.
    pub about: String,
    /// The shapes.
    pub shapes: Vec<ListedShape>,
}

/// A shape with its name. All distances are in elements of fp32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedShape {
    /// What tells it from all others of its class.
    pub id: String,
    /// The shape.
    #[serde(flatten)]
    pub shape: Shape,
}

impl ShapeList {
    /// A list of these shapes.
    pub fn new(seed: u64, sample: Option<usize>, chosen: &[Chosen]) -> Self {
        let listed = |shape: &Shape| ListedShape { id: shape.id(), shape: *shape };
        let class = |chosen: &Chosen| ListedClass {
            name: chosen.class.name.to_owned(),
            about: chosen.class.about.to_owned(),
            shapes: chosen.shapes.iter().map(listed).collect(),
        };
        Self {
            schema: SCHEMA.to_owned(),
            schema_version: SCHEMA_VERSION,
            date: now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit(),
            seed,
            sample,
            limit_bytes: LIMIT_BYTES,
            classes: chosen.iter().map(class).collect(),
        }
    }

    /// The list for people.
    pub fn text(&self) -> String {
        let mut text =
            "Shapes as m x n x k, with the layouts of A, B and C: N row-major, T column-major, S strides along both;\n\
                        +1 an offset, /520 the distance of rows with gaps, * a stride of 0.\n"
                .to_owned();
        for ListedClass { name, about, shapes } in &self.classes {
            text += &format!("\n{name}: {about} ({} shapes)\n", shapes.len());
            for ListedShape { id, shape } in shapes {
                text += &format!("  {id:<44} {:>9.2} MiB\n", shape.bytes() as f64 / f64::from(1 << 20));
            }
        }
        let count: usize = self.classes.iter().map(|class| class.shapes.len()).sum();
        text + &format!("\n{count} shapes in {} classes\n", self.classes.len())
    }
}
