//! The picture.

use super::reports::{failed, report, row};

/// The names of elements in order, closed ones with a slash, and the values of attributes; panics where the text is not well-formed XML
/// of the few kinds that pictures have.
fn parsed(svg: &str) -> (Vec<String>, Vec<(String, String)>) {
    let (mut open, mut names, mut attributes) = (Vec::new(), Vec::new(), Vec::new());
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
            names.push(format!("/{name}"));
            continue;
        }
        let (tag, alone) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, mut values) = tag.split_once(' ').unwrap_or((tag, ""));
        while let Some((attribute, value)) = values.split_once("=\"") {
            let (value, others) = value.split_once('"').expect("a value ends");
            attributes.push((attribute.trim().to_owned(), value.to_owned()));
            values = others;
        }
        assert!(values.trim().is_empty(), "{tag}");
        names.push(name.to_owned());
        if !alone {
            open.push(name.to_owned());
        }
    }
    assert!(open.is_empty() && rest.is_empty() && names[0] == "svg", "{open:?} {rest}");
    (names, attributes)
}

/// The places of the marks: from the left, and whether they are of slower ones, which are triangles. Those of the legend are not among
/// them.
fn points(svg: &str) -> Vec<(f64, bool)> {
    let place = |line: &str| {
        let number = |after: &str| line.split(after).nth(1)?.split(['"', ',']).next()?.parse().ok();
        number("cx=\"").or_else(|| number("points=\"")).expect("a mark has a place")
    };
    let marks = svg.lines().filter(|line| line.contains("class=\"mark ") && line.contains(" many\""));
    marks.map(|line| (place(line), line.starts_with("<polygon"))).collect()
}

#[test]
fn a_picture_is_xml_with_a_point_for_each_ratio() {
    let rows = vec![
        row("one", 8, Some(0.5)),
        row("one", 16, Some(1.0)),
        row("one", 32, Some(2.0)),
        row("two", 8, Some(0.99)),
        row("two", 16, None),
        failed("three & <four>", 8),
    ];
    let svg = report(rows).svg();
    let (names, attributes) = parsed(&svg);
    assert_eq!(points(&svg).len(), 4);
    assert!(names.contains(&"circle".to_owned()) && names.contains(&"polygon".to_owned()), "{names:?}");
    for (name, value) in &attributes {
        if ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height"].contains(&name.as_str()) {
            assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{name}={value}");
        }
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    assert!(svg.contains("prefers-color-scheme: dark"));
    assert!(svg.contains("three &amp; &lt;four&gt;") && svg.contains("no ratios"), "{svg}");
    let [half, one, two, less] = points(&svg)[..] else { panic!("{svg}") };
    assert!((half.1, one.1, two.1, less.1) == (true, false, false, true));
    assert!(((one.0 - half.0) - (two.0 - one.0)).abs() < 0.2, "the axis is logarithmic: {half:?} {one:?} {two:?}");
}

#[test]
fn what_is_beyond_the_axis_is_drawn_at_its_ends() {
    let far = [1e-9, 1e9, 1e-300, 1e300].map(|ratio| row("one", 8, Some(ratio)));
    let svg = report(far.to_vec()).svg();
    parsed(&svg);
    let places = points(&svg);
    assert_eq!((places[0], places[1]), (places[2], places[3]));
    assert!(places.iter().all(|(place, _)| (80.0..=930.0).contains(place)), "{places:?}");
}

#[test]
fn a_picture_of_nothing_and_of_no_ratios_is_one_all_the_same() {
    for rows in [Vec::new(), vec![row("one", 8, None)], vec![failed("one", 8)], vec![row("one", 8, Some(0.0))]] {
        let svg = report(rows).svg();
        parsed(&svg);
        assert!(points(&svg).is_empty() && !svg.contains("NaN"), "{svg}");
    }
}
