//! Scales: numbers to places on an axis, and the numbers that have a tick.

/// A number that an axis names.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// The number.
    pub value: f64,
    /// Its name; empty for a line without a name.
    pub label: String,
}

/// From numbers to places between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Equal differences are equal lengths.
    Linear {
        /// The numbers at both ends.
        ends: [f64; 2],
    },
    /// Equal ratios are equal lengths; ticks at powers of ten, and at twice and five times these where there is room.
    Log10 {
        /// The numbers at both ends, which are positive.
        ends: [f64; 2],
    },
    /// The same with ticks at powers of two, named `1/4`, `1/2`, `1`, `2`.
    Log2 {
        /// The numbers at both ends, which are positive.
        ends: [f64; 2],
    },
    /// Days since 1970, linear, with dates for names.
    Days {
        /// The days at both ends.
        ends: [f64; 2],
    },
}

/// What axes go to at most, down and up: beyond, steps and ratios would not be numbers.
const FARTHEST: [f64; 2] = [1e-300, 1e300];

/// The least and the largest of the numbers that a logarithm can be taken of.
fn positive_range(values: impl IntoIterator<Item = f64>) -> Option<[f64; 2]> {
    range(values.into_iter().filter(|value| *value > 0.0).map(|value| value.clamp(FARTHEST[0], FARTHEST[1])))
}

/// The least and the largest of the finite numbers.
fn range(values: impl IntoIterator<Item = f64>) -> Option<[f64; 2]> {
    values.into_iter().filter(|value| value.is_finite()).fold(None, |range, value| {
        let [least, most] = range.unwrap_or([value, value]);
        Some([value.min(least), value.max(most)])
    })
}

impl Scale {
    /// From zero to what all numbers fit below.
    pub fn linear_from_zero(values: impl IntoIterator<Item = f64>) -> Self {
        let most = positive_range(values).map_or(1.0, |[_, most]| most);
        let step = nice_step(most / 5.0);
        Self::Linear { ends: [0.0, (most / step).ceil() * step] }
    }

    /// Whole tenths of decades around the numbers that are positive and finite: 1, 2 or 5 times a power of ten.
    pub fn log10(values: impl IntoIterator<Item = f64>) -> Self {
        let [least, most] = positive_range(values).unwrap_or([1.0, 10.0]);
        // A little room, so that no mark sits on the frame.
        let (least, most) = (round_125(least / 1.1, false), round_125(most * 1.1, true));
        Self::Log10 { ends: if least < most { [least, most] } else { [least / 2.0, least * 5.0] } }
    }

    /// Whole powers of two around the numbers, at least from the first of `at_least` to the second, at most those of `at_most`: numbers
    /// beyond are drawn at the ends.
    pub fn log2(values: impl IntoIterator<Item = f64>, at_least: [i32; 2], at_most: [i32; 2]) -> Self {
        let [least, most] = positive_range(values).unwrap_or([1.0, 1.0]);
        let least = (least.log2().floor() as i32).min(at_least[0]).max(at_most[0]);
        let most = (most.log2().ceil() as i32).max(at_least[1]).min(at_most[1]);
        Self::Log2 { ends: [least, most].map(|power| f64::from(power).exp2()) }
    }

    /// Days, with room at both ends.
    pub fn days(values: impl IntoIterator<Item = f64>) -> Self {
        // 27,000 years: what is beyond is no date.
        let [first, last] = range(values.into_iter().filter(|day| day.abs() < 1e7)).unwrap_or([0.0, 1.0]);
        let room = ((last - first) * 0.06).max(0.25);
        Self::Days { ends: [first - room, last + room] }
    }

    /// The numbers at both ends.
    pub fn ends(&self) -> [f64; 2] {
        match *self {
            Self::Linear { ends } | Self::Log10 { ends } | Self::Log2 { ends } | Self::Days { ends } => ends,
        }
    }

    /// The place of a number: 0 at the first end, 1 at the last one, and never beyond. None for what has no place: NaN, and what a
    /// logarithm cannot be taken of.
    pub fn place(&self, value: f64) -> Option<f64> {
        let [first, last] = self.ends();
        let place = match self {
            Self::Linear { .. } | Self::Days { .. } => (value - first) / (last - first),
            Self::Log10 { .. } | Self::Log2 { .. } if value > 0.0 => {
                // Not of quotients, which can be too large for a number.
                (value.ln() - first.ln()) / (last.ln() - first.ln())
            }
            Self::Log10 { .. } | Self::Log2 { .. } => return None,
        };
        (!place.is_nan()).then(|| place.clamp(0.0, 1.0))
    }

    /// The numbers that have a line, at most about `most` of which have a name.
    pub fn ticks(&self, most: usize) -> Vec<Tick> {
        let ends = self.ends();
        match self {
            Self::Linear { .. } => {
                let step = nice_step((ends[1] - ends[0]) / most.max(1) as f64);
                let (first, last) = ((ends[0] / step).ceil() as i64, (ends[1] / step + 1e-9).floor() as i64);
                (first..=last).map(|number| number as f64 * step).map(|value| tick(value, figure(value))).collect()
            }
            Self::Log10 { .. } => log10_ticks(ends, most),
            Self::Log2 { .. } => {
                let [first, last] = ends.map(|end| end.log2().round() as i32);
                let every = ((last - first + 1) as usize).div_ceil(most.max(1)).max(1) as i32;
                let name = |power: i32| match power {
                    _ if power % every != 0 => String::new(),
                    0.. => figure(f64::from(power).exp2()),
                    _ => format!("1/{}", figure(f64::from(-power).exp2())),
                };
                (first..=last).map(|power| tick(f64::from(power).exp2(), name(power))).collect()
            }
            Self::Days { .. } => {
                let step = ((ends[1] - ends[0]) / most.max(1) as f64).ceil().max(1.0);
                let first = (ends[0]).ceil() as i64;
                let days = (first..=ends[1].floor() as i64).step_by(step as usize);
                days.map(|day| tick(day as f64, date_of(day))).collect()
            }
        }
    }
}

fn tick(value: f64, label: String) -> Tick {
    Tick { value, label }
}

/// 1, 2 or 5 times a power of ten, not below the step.
fn nice_step(step: f64) -> f64 {
    round_125(step, true)
}

/// 1, 2 or 5 times a power of ten: the next one up, or down.
fn round_125(value: f64, up: bool) -> f64 {
    let power = value.log10().floor();
    let unit = 10f64.powf(power);
    let steps = [1.0, 2.0, 5.0, 10.0];
    let found = if up {
        steps.into_iter().find(|step| step * unit >= value * (1.0 - 1e-9))
    } else {
        steps.into_iter().rfind(|step| step * unit <= value * (1.0 + 1e-9))
    };
    found.unwrap_or(1.0) * unit
}

/// Powers of ten, and where these are few, twice and five times them; names for as many as there is room for.
fn log10_ticks(ends: [f64; 2], most: usize) -> Vec<Tick> {
    let [first, last] = ends.map(f64::log10);
    let within = |value: f64| value >= ends[0] * (1.0 - 1e-9) && value <= ends[1] * (1.0 + 1e-9);
    let decades = (first.floor() as i32..=last.ceil() as i32).map(|power| (power, 10f64.powi(power)));
    let factors: &[f64] = match last - first {
        width if width <= 2.5 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let every = ((last - first).ceil() as usize).div_ceil(most.max(1)).max(1) as i32;
    let mut ticks = Vec::new();
    for (power, decade) in decades {
        for factor in factors {
            // 5·10⁻² by multiplication has another last digit than 0.05, which no reader wants to see.
            let value = factor * decade;
            let named = power.rem_euclid(every) == 0;
            if within(value) && (named || every == 1) {
                // Beside 10⁻⁴ there is no 0.001.
                let name = if ends[0] < 1e-3 && value < 0.5 { scientific(value) } else { figure(value) };
                ticks.push(tick(value, if named { name } else { String::new() }));
            }
        }
    }
    ticks
}

/// A number for readers, with three digits: `0.052`, `2.38`, `419`, `65 536`, `1.2×10⁻⁷`, `∞`.
pub fn figure(value: f64) -> String {
    if value.is_nan() {
        return "not a number".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞" } else { "−∞" }.to_owned();
    }
    let (sign, size) = (if value < 0.0 { "−" } else { "" }, value.abs());
    let digits = match size {
        0.0 => "0".to_owned(),
        _ if !(0.000_999_5..9_999_500.0).contains(&size) => return sign.to_owned() + &scientific(size),
        _ if size >= 999.5 => grouped(size.round() as u64),
        _ => {
            let before = if size >= 99.95 {
                0
            } else if size >= 9.995 {
                1
            } else {
                2 - (size.log10().floor() as i32).min(0)
            };
            let text = format!("{size:.*}", before.max(0) as usize);
            if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
        }
    };
    sign.to_owned() + &digits
}

/// Thousands apart, by a space that does not break.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    if digits.len() <= 4 {
        return digits;
    }
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// `1.2×10⁻⁷`, without `1×`.
fn scientific(size: f64) -> String {
    let text = format!("{size:.1e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let raised = |character| match character {
        '-' => '⁻',
        digit => "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit as usize - '0' as usize).unwrap_or(digit),
    };
    let power: String = power.chars().map(raised).collect();
    match digits.trim_end_matches('0').trim_end_matches('.') {
        "1" => format!("10{power}"),
        digits => format!("{digits}×10{power}"),
    }
}

/// The days from 1970-01-01 to a time of RFC 3339, with its part of the day; none where it is no such time.
pub(crate) fn days_of(time: &str) -> Option<f64> {
    let number = |range: std::ops::Range<usize>| time.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March here, so that the day that a leap year has more is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468;
    let seconds = match (number(11..13), number(14..16), number(17..19)) {
        (Some(hours), Some(minutes), Some(seconds)) => hours * 3600 + minutes * 60 + seconds,
        _ => 0,
    };
    Some(days as f64 + seconds as f64 / 86_400.0)
}

/// The date of a day since 1970-01-01.
fn date_of(day: i64) -> String {
    // The days of the first of each month around it are tried: there are few.
    let year = 1970 + day.div_euclid(366) - 1;
    let firsts = (year..year + 4 + day.unsigned_abs() as i64 / 100_000)
        .flat_map(|year| (1..=12).map(move |month| (year, month)));
    let found =
        firsts.filter_map(|(year, month)| Some((days_of(&format!("{year:04}-{month:02}-01"))? as i64, year, month)));
    match found.take_while(|(first, ..)| *first <= day).last() {
        Some((first, year, month)) => format!("{year:04}-{month:02}-{:02}", day - first + 1),
        None => format!("day {day}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scale: Scale, most: usize) -> Vec<String> {
        scale.ticks(most).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn places_are_between_the_ends_whatever_the_number() {
        let scale = Scale::log10([0.3, 700.0]);
        assert_eq!(scale.ends(), [0.2, 1000.0]);
        assert_eq!(scale.place(0.2), Some(0.0));
        assert!((scale.place(1000.0).unwrap() - 1.0).abs() < 1e-12);
        let [one, two, four] = [1.0, 2.0, 4.0].map(|value| scale.place(value).unwrap());
        assert!(((two - one) - (four - two)).abs() < 1e-12, "equal ratios are equal lengths");
        for value in [f64::INFINITY, 1e300, 1e-300] {
            assert!((0.0..=1.0).contains(&scale.place(value).unwrap()), "{value}");
        }
        for value in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(scale.place(value), None, "{value}");
        }
    }

    #[test]
    fn scales_of_nothing_and_of_one_number_have_two_ends() {
        for values in [
            vec![],
            vec![5.0],
            vec![5e-324],
            vec![1e308],
            vec![5e-324, 1e308],
            vec![f64::NAN, f64::INFINITY],
            vec![0.0],
            vec![-3.0],
        ] {
            for scale in [
                Scale::linear_from_zero(values.clone()),
                Scale::log10(values.clone()),
                Scale::log2(values.clone(), [-1, 2], [-4, 7]),
                Scale::days(values.clone()),
            ] {
                let [first, last] = scale.ends();
                assert!(first < last && first.is_finite() && last.is_finite(), "{values:?} {scale:?}");
                assert!(scale.ticks(6).len() < 1000, "{scale:?}");
                assert!(scale.ticks(6).iter().all(|tick| scale.place(tick.value).is_some()), "{scale:?}");
            }
        }
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(names(Scale::Linear { ends: [0.0, 10.0] }, 5), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(names(Scale::Log10 { ends: [0.2, 20.0] }, 6), ["0.2", "0.5", "1", "2", "5", "10", "20"]);
        assert_eq!(names(Scale::Log10 { ends: [1e-8, 1e-4] }, 6), ["10⁻⁸", "10⁻⁷", "10⁻⁶", "10⁻⁵", "10⁻⁴"]);
        assert_eq!(names(Scale::Log10 { ends: [1e-4, 10.0] }, 6), ["10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "1", "10"]);
        assert_eq!(names(Scale::log2([0.6, 3.0], [-1, 2], [-4, 7]), 8), ["1/2", "1", "2", "4"]);
        let ends = [days_of("2026-11-20T12:00:00Z").unwrap(), days_of("2026-11-23").unwrap()];
        assert_eq!(names(Scale::Days { ends }, 4), ["2026-11-21", "2026-11-22", "2026-11-23"]);
        let named = names(Scale::Log10 { ends: [1e-30, 1e30] }, 6).into_iter().filter(|name| !name.is_empty()).count();
        assert!((4..=8).contains(&named), "{named}");
    }

    #[test]
    fn dates_are_days() {
        for (date, day) in
            [("1970-01-01", 0.0), ("2000-02-29", 11_016.0), ("2000-03-01", 11_017.0), ("2026-11-26", 20_783.0)]
        {
            assert_eq!(days_of(date), Some(day), "{date}");
            assert_eq!(date_of(day as i64), date);
        }
        assert_eq!(days_of("1970-01-02T12:00:00Z"), Some(1.5));
        for no in ["", "yesterday", "2026-13-01", "2026-00-01", "20é6-01-01"] {
            assert_eq!(days_of(no), None, "{no}");
        }
    }

    #[test]
    fn figures_have_three_digits() {
        let known = [
            (0.0, "0"),
            (0.0524, "0.0524"),
            (1.0, "1"),
            (2.376, "2.38"),
            (0.99996, "1"),
            (41.95, "42"),
            (419.2, "419"),
            (5000.0, "5000"),
            (65536.0, "65\u{202f}536"),
            (1.2e-7, "1.2×10⁻⁷"),
            (1e-7, "10⁻⁷"),
            (-2.5, "−2.5"),
            (f64::INFINITY, "∞"),
        ];
        for (value, text) in known {
            assert_eq!(figure(value), text, "{value}");
        }
    }
}
