//! Places of names beside marks, so that none covers another one.

/// A rectangle of a picture, in its units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Area {
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    fn is_within(&self, other: &Self) -> bool {
        self.left >= other.left && self.right <= other.right && self.top >= other.top && self.bottom <= other.bottom
    }

    /// A square around a point.
    pub(super) fn around(x: f64, y: f64, half: f64) -> Self {
        Self { left: x - half, top: y - half, right: x + half, bottom: y + half }
    }
}

/// The width of text in a common sans-serif font: the widest of those that a system may have, so that what fits here fits there.
pub(super) fn width_of(text: &str, size: f64) -> f64 {
    let width = |character: char| match character {
        'i' | 'j' | 'l' | '.' | ',' | '\'' | '|' | ':' | ' ' | '\u{202f}' | '/' => 0.34,
        'm' | 'w' | 'M' | 'W' | '×' | '∞' => 0.95,
        'A'..='Z' | '_' => 0.7,
        _ => 0.61,
    };
    text.chars().map(width).sum::<f64>() * size
}

/// The end of a name: `start` begins at x, `end` ends there, `middle` is centred.
pub(super) type Anchor = &'static str;

/// Where names go. What has a place stays; what finds none is left out: titles and tables have it all the same.
pub(super) struct Labels {
    within: Area,
    /// What no name covers: marks and other names.
    taken: Vec<Area>,
    /// What names cover only where there is no other place: lines.
    crossed: Vec<Area>,
}

impl Labels {
    pub(super) fn new(within: Area) -> Self {
        Self { within, taken: Vec::new(), crossed: Vec::new() }
    }

    /// Keeps an area free.
    pub(super) fn take(&mut self, area: Area) {
        self.taken.push(area);
    }

    /// Keeps the surroundings of lines from point to point free, where there is room elsewhere.
    pub(super) fn avoid(&mut self, points: &[(f64, f64)]) {
        const STEP: f64 = 5.0;
        for pair in points.windows(2) {
            let [(x1, y1), (x2, y2)] = [pair[0], pair[1]];
            let steps = ((x2 - x1).hypot(y2 - y1) / STEP).ceil().max(1.0);
            let places = (0..=steps as usize).map(|step| step as f64 / steps);
            self.crossed.extend(places.map(|part| Area::around(x1 + part * (x2 - x1), y1 + part * (y2 - y1), 1.0)));
        }
    }

    /// A place for a name beside a mark, as x, y of the baseline and the anchor: to the right, to the left, above, below, then farther.
    pub(super) fn beside(&mut self, x: f64, y: f64, text: &str, size: f64) -> Option<(f64, f64, Anchor)> {
        let (width, gap) = (width_of(text, size), 8.0);
        let nearby = [0.0, -1.0, 1.0, -2.0, 2.0, -3.0, 3.0].map(|step| step * size * 0.7);
        let at_sides = nearby
            .into_iter()
            .flat_map(|shift| [(x + gap, y + shift + size * 0.35, "start"), (x - gap, y + shift + size * 0.35, "end")]);
        let others = [(x, y - gap, "middle"), (x, y + gap + size * 0.8, "middle")];
        let area_of = |&(x, y, anchor): &(f64, f64, Anchor)| {
            let left = match anchor {
                "start" => x,
                "end" => x - width,
                _ => x - width / 2.0,
            };
            Area { left, top: y - size * 0.8, right: left + width, bottom: y + size * 0.2 }
        };
        let is_free = |area: &Area| area.is_within(&self.within) && !self.taken.iter().any(|taken| taken.meets(area));
        let free: Vec<_> = at_sides.chain(others).filter(|place| is_free(&area_of(place))).collect();
        let crosses =
            |place: &&(f64, f64, Anchor)| self.crossed.iter().filter(|line| line.meets(&area_of(place))).count();
        let found = free.iter().min_by_key(crosses).copied()?;
        self.taken.push(area_of(&found));
        Some(found)
    }
}

/// Places along a line, each as near to where it is wanted as it can be, `apart` from the others, in the same order, within both ends if
/// there is room for all.
pub(super) fn spread(wanted: &[f64], apart: f64, ends: [f64; 2]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&one, &other| wanted[one].total_cmp(&wanted[other]));
    let mut places = wanted.to_vec();
    let mut least = ends[0];
    for &index in &order {
        places[index] = places[index].max(least);
        least = places[index] + apart;
    }
    let mut most = ends[1];
    for &index in order.iter().rev() {
        places[index] = places[index].min(most);
        most = places[index] - apart;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cover_neither_one_another_nor_the_edge() {
        let within = Area { left: 0.0, top: 0.0, right: 400.0, bottom: 200.0 };
        let mut labels = Labels::new(within);
        let mut areas: Vec<Area> = Vec::new();
        let mut left_out = 0;
        for number in 0..60 {
            let (x, y) = (20.0 + f64::from(number % 6) * 60.0, 20.0 + f64::from(number / 6) * 9.0);
            let name = format!("kernel_{number}");
            let Some((x, y, anchor)) = labels.beside(x, y, &name, 10.0) else {
                left_out += 1;
                continue;
            };
            let width = width_of(&name, 10.0);
            let left = match anchor {
                "start" => x,
                "end" => x - width,
                _ => x - width / 2.0,
            };
            let area = Area { left, top: y - 8.0, right: left + width, bottom: y + 2.0 };
            assert!(area.is_within(&within) && areas.iter().all(|other| !other.meets(&area)), "{name}");
            areas.push(area);
        }
        assert!(left_out > 0 && areas.len() > 10, "{left_out} of 60 left out");
    }

    #[test]
    fn names_keep_off_lines_where_there_is_room() {
        let within = Area { left: 0.0, top: 0.0, right: 400.0, bottom: 200.0 };
        let mut labels = Labels::new(within);
        labels.avoid(&[(0.0, 100.0), (400.0, 100.0)]);
        let (_, y, _) = labels.beside(200.0, 100.0, "a name", 10.0).unwrap();
        assert!(!(98.0..=108.0).contains(&y), "{y}");
        let low = Area { top: 95.0, bottom: 106.0, ..within };
        let mut labels = Labels::new(low);
        labels.avoid(&[(0.0, 100.0), (400.0, 100.0)]);
        assert!(labels.beside(200.0, 100.0, "a name", 10.0).is_some(), "there is no other place");
    }

    #[test]
    fn places_along_a_line_are_apart_and_in_order() {
        let places = spread(&[50.0, 51.0, 10.0, 99.0, 100.0], 12.0, [0.0, 100.0]);
        let mut sorted = places.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 12.0 - 1e-9), "{places:?}");
        assert!(places[0] < places[1] && places[2] == 10.0 && places[4] <= 100.0, "{places:?}");
        assert!(spread(&[], 12.0, [0.0, 100.0]).is_empty());
    }
}
