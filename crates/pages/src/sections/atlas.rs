//! The atlas: ratios of shapes drawn by chance, class by class.

use super::names::{missing, provenance, share, slug};
use crate::draw::{Mark, Picture, Row, Rows, Scale};
use crate::page::{Cell, Figure, Part, Section, Table};
use crate::results::{Atlas, AtlasRow, Results, Source};

/// Ratios below this one are counted: less is no noise.
pub const SLOWER: f64 = 0.97;

/// A shape's ratio.
#[derive(Clone, Debug)]
pub struct Ratio {
    /// What tells the shape from others of its class.
    pub id: String,
    /// The kernel.
    pub kernel: String,
    /// The time of cuBLAS divided by ours.
    pub ratio: f64,
}

/// A class of shapes.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// The ratios of those that both have computed.
    pub ratios: Vec<Ratio>,
}

/// The geometric mean of positive numbers; none without any.
pub fn geometric_mean(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0);
    for number in numbers {
        (sum, count) = (sum + number.ln(), count + 1);
    }
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

impl Class {
    /// The geometric mean of its ratios.
    pub fn mean(&self) -> Option<f64> {
        geometric_mean(self.ratios.iter().map(|one| one.ratio))
    }

    /// The least.
    pub fn least(&self) -> Option<&Ratio> {
        self.ratios.iter().min_by(|one, other| one.ratio.total_cmp(&other.ratio))
    }

    /// How many are below [`SLOWER`].
    pub fn slower(&self) -> usize {
        self.ratios.iter().filter(|one| one.ratio < SLOWER).count()
    }
}

/// The picture: a strip of marks for each class. `about` is the line under the title.
pub fn picture(classes: &[Class], about: &str) -> Picture {
    let ratios = || classes.iter().flat_map(|class| class.ratios.iter().map(|one| one.ratio));
    let row = |class: &Class| {
        let mark = |one: &Ratio| Mark {
            value: one.ratio,
            look: usize::from(one.ratio < 1.0),
            title: format!("{}: {:.2}, {}", one.id, one.ratio, one.kernel),
            key: one.kernel.clone(),
            spread: None,
        };
        let figures = match (class.mean(), class.least()) {
            (Some(mean), Some(least)) => [
                format!("{} shapes, mean {mean:.2}", class.ratios.len()),
                format!("least {:.2}, {} below {SLOWER}", least.ratio, class.slower()),
            ],
            _ => ["no ratios".to_owned(), String::new()],
        };
        Row {
            name: class.name.clone(),
            marks: class.ratios.iter().map(mark).collect(),
            stroke: class.mean(),
            figures,
            heading: String::new(),
        }
    };
    let (count, slower) = (ratios().count(), classes.iter().map(Class::slower).sum::<usize>());
    Picture::Rows(Rows {
        title: "Times of cuBLAS divided by ours: to the right of 1, ours is faster".to_owned(),
        description: format!(
            "{count} shapes of {} classes, {slower} of them with a ratio below {SLOWER}.",
            classes.len()
        ),
        note: about.to_owned(),
        axis: "time of cuBLAS divided by ours; strokes are geometric means".to_owned(),
        scale: Scale::log2(ratios(), [-1, 2], [-4, 7]),
        bars: false,
        spread: true,
        line: Some(1.0),
        legend: vec![(0, "ours is faster".to_owned()), (1, "cuBLAS is faster".to_owned())],
        rows: classes.iter().map(row).collect(),
    })
}

/// The section.
pub fn section(results: &Results) -> Section {
    let mut section = Section::new(
        "atlas",
        "The atlas, class by class",
        "Shapes by chance in classes of products that occur: ours beside the fastest way of cuBLAS, in turns in one process. Each mark \
         is a shape; it shows where the project stands, the slow ones included.",
    );
    // The newest of each GPU and precision.
    let mut seen = Vec::new();
    for (source, atlas) in results.atlases() {
        let name = format!("{} {}", source.gpu, atlas.precision);
        if !seen.contains(&name) {
            section.parts.extend(parts(source, atlas));
            seen.push(name);
        }
    }
    if seen.is_empty() {
        let command = "tilewright bench --suite atlas --seed 606 --sample 20 --json FILE";
        section.parts.extend(missing("No file has the shapes of the atlas.", command, results, "atlas"));
    }
    section
}

fn parts(source: &Source, atlas: &Atlas) -> [Part; 2] {
    let mut classes: Vec<Class> = Vec::new();
    for row in &atlas.results {
        if !classes.iter().any(|class| class.name == row.class) {
            classes.push(Class { name: row.class.clone(), ratios: Vec::new() });
        }
        let class = classes.iter_mut().find(|class| class.name == row.class);
        if let (Some(class), Some(ratio), Some(measured)) = (class, row.ratio(), row.measured()) {
            class.ratios.push(Ratio { id: row.id.clone(), kernel: measured.kernel.clone(), ratio });
        }
    }
    let about = format!("{}, {}, seed {}", provenance(source), atlas.precision, atlas.seed);
    let mut of_classes = Table::new(
        format!("Classes of shapes on {}, {}", source.gpu, atlas.precision),
        &[
            "class",
            "#shapes",
            "#not run",
            "#ratios",
            "#mean ratio",
            "#least ratio",
            "least of",
            "#below 0.97",
            "#mean share of the limit",
        ],
    );
    for class in &classes {
        let rows = || atlas.results.iter().filter(|row| row.class == class.name);
        let not_run = rows().filter(|row| row.not_run().is_some()).count();
        of_classes.row(
            "",
            [
                Cell::text(&class.name),
                Cell::count(rows().count() as u64),
                Cell::count(not_run as u64),
                Cell::count(class.ratios.len() as u64),
                Cell::number(class.mean()),
                Cell::number(class.least().map(|least| least.ratio)),
                Cell::text(class.least().map_or("–", |least| &least.id)),
                Cell::count(class.slower() as u64),
                share(geometric_mean(rows().filter_map(AtlasRow::share))),
            ],
        );
    }
    let mut table = Table::new(
        format!("All shapes on {}, {}", source.gpu, atlas.precision),
        &["shape", "class", "kernel", "#ms", "#cuBLAS ms", "#ratio", "#share of the limit", "#largest error"],
    );
    for row in &atlas.results {
        let name = Cell::text(&row.id);
        let class = Cell::text(&row.class);
        match row.measured() {
            Some(it) => table.row(
                &it.kernel,
                [
                    name,
                    class,
                    Cell::text(&it.kernel),
                    Cell::number(it.times.median_ms),
                    Cell::number(it.baselines.first().map(|first| first.times.median_ms)),
                    Cell::number(row.ratio()),
                    share(row.share()),
                    Cell::number(it.error.max),
                ],
            ),
            None => table.row(
                "",
                [
                    name,
                    class,
                    Cell::text(format!("not run: {}", row.not_run().unwrap_or_default())),
                    Cell::number(None),
                    Cell::number(None),
                    Cell::number(None),
                    share(None),
                    Cell::number(None),
                ],
            ),
        }
    }
    let figure = Figure {
        name: format!("atlas-{}", slug(&format!("{} {}", source.gpu, atlas.precision))),
        picture: picture(&classes, &about),
        table,
        from: vec![source.file.clone()],
    };
    [Part::Figure(Box::new(figure)), Part::Table(of_classes)]
}
