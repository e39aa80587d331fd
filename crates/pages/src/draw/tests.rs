//! Pictures are XML, hold every mark, and no name that leaves them.

use super::*;

/// The elements of a picture, in order, with their attributes; panics where the text is not well-formed XML of the few kinds that pictures
/// have.
pub(crate) fn elements(svg: &str) -> Vec<(String, Vec<(String, String)>)> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    let mut rest = svg.trim();
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        assert!(!text.contains('>') || open.last().is_some_and(|name| name == "style"), "{text}");
        for entity in text.split('&').skip(1) {
            assert!(["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|known| entity.starts_with(known)), "&{entity}");
        }
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        assert!(!tag.contains('<'), "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "{svg}");
            continue;
        }
        let (tag, alone) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, mut values) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut attributes = Vec::new();
        while let Some((attribute, value)) = values.split_once("=\"") {
            let (value, others) = value.split_once('"').expect("a value ends");
            attributes.push((attribute.trim().to_owned(), value.to_owned()));
            values = others;
        }
        assert!(values.trim().is_empty(), "{tag}");
        if !alone {
            open.push(name.to_owned());
        }
        found.push((name.to_owned(), attributes));
    }
    assert!(open.is_empty() && rest.is_empty() && found[0].0 == "svg", "{open:?} {rest}");
    for (name, attributes) in &found {
        for (attribute, value) in attributes {
            if ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height"].contains(&attribute.as_str()) {
                assert!(
                    value.parse::<f64>().is_ok_and(|number| (0.0..=100_000.0).contains(&number)),
                    "{name} {attribute}={value}"
                );
            }
        }
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    found
}

fn chart(points: Vec<Point>) -> Chart {
    let (xs, ys) = (points.iter().map(|point| point.x), points.iter().map(|point| point.y));
    Chart {
        title: "Two <axes> & \"more\"".to_owned(),
        description: "Points.".to_owned(),
        note: String::new(),
        x: Axis { name: "x".to_owned(), scale: Scale::log10(xs) },
        y: Axis { name: "y".to_owned(), scale: Scale::log10(ys) },
        series: vec![Series { name: "<one>".to_owned(), look: 1, joined: true, points }],
        limits: vec![Limit { name: "a limit".to_owned(), corners: vec![(1.0, 1.0), (10.0, 10.0), (20.0, 10.0)] }],
        height: 300.0,
    }
}

fn point(x: f64, y: f64) -> Point {
    Point { x, y, label: "a & b".to_owned(), title: "<t>".to_owned(), key: "'k'".to_owned(), ..Point::default() }
}

fn rows(values: &[f64]) -> Rows {
    let marks = values.iter().map(|&value| Mark { value, title: "<t>".to_owned(), ..Mark::default() });
    Rows {
        title: "Rows".to_owned(),
        description: "Marks.".to_owned(),
        note: "n".to_owned(),
        axis: "ratio".to_owned(),
        scale: Scale::log2(values.iter().copied(), [-1, 2], [-4, 7]),
        bars: true,
        spread: true,
        line: Some(1.0),
        legend: vec![(0, "ours".to_owned())],
        rows: vec![Row { name: "<script>".to_owned(), marks: marks.collect(), stroke: Some(1.5), ..Row::default() }],
    }
}

fn count(svg: &str, wanted: &str) -> usize {
    elements(svg).iter().filter(|(name, _)| name == wanted).count()
}

#[test]
fn a_chart_has_a_mark_for_each_point_that_has_a_place() {
    let picture = chart(vec![point(1.0, 2.0), point(3.0, 4.0), point(0.0, 1.0), point(1.0, f64::NAN)]);
    for style in [Style::OfPage, Style::OfFile] {
        let svg = picture.svg("c", style);
        // Two points and the legend.
        assert_eq!(count(&svg, "polygon"), 3, "{svg}");
        assert_eq!(svg.contains("prefers-color-scheme: dark"), style == Style::OfFile);
        assert!(
            svg.contains("role=\"img\"")
                && svg.contains("<title id=\"c-title\">Two &lt;axes&gt; &amp; &quot;more&quot;")
        );
    }
}

#[test]
fn pictures_of_nothing_are_pictures() {
    assert_eq!(count(&chart(Vec::new()).svg("c", Style::OfFile), "polygon"), 0);
    assert_eq!(count(&rows(&[]).svg("r", Style::OfFile), "circle"), 1, "the legend's");
    let none = Rows { rows: Vec::new(), legend: Vec::new(), ..rows(&[]) };
    assert_eq!(count(&none.svg("r", Style::OfPage), "circle"), 0);
}

#[test]
fn what_is_beyond_the_axis_is_at_its_ends() {
    let svg = rows(&[1e-9, 1e9, 1e-300, 1e300, f64::INFINITY]).svg("r", Style::OfPage);
    let places: Vec<f64> = (elements(&svg).iter())
        .filter(|(name, attributes)| name == "circle" && attributes.iter().any(|(_, value)| value.contains("many")))
        .map(|(_, attributes)| attributes.iter().find(|(name, _)| name == "cx").unwrap().1.parse().unwrap())
        .collect();
    assert_eq!(places.len(), 5);
    assert_eq!((places[0], places[1]), (places[2], places[3]));
    assert!(places.iter().all(|place| (80.0..950.0).contains(place)), "{places:?}");
}

#[test]
fn every_series_has_a_shape_of_its_own() {
    let mut shapes: Vec<String> = (0..SERIES).map(|series| svg::mark(0.0, 0.0, series, 4.0, "", "", "")).collect();
    shapes.iter_mut().for_each(|shape| *shape = shape.split(" class=").next().unwrap().to_owned());
    shapes.sort();
    shapes.dedup();
    assert_eq!(shapes.len(), SERIES);
}
