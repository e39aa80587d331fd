//! Puts together what the lanes of a warp have done between two points where it stopped.
//!
//! ```text
//!  lane 0      A  B  .  C
//!  lane 1      A  .  X  C           what both do is one step; what one does alone stands before what it does with others next
//!  together    A  B  X  C
//! ```

use std::collections::HashMap;
use std::vec::Vec;

use super::super::context::LANES;

/// What lanes do: two notes with the same key may be one step.
pub(super) trait Joins {
    type Key: Copy + Eq + core::hash::Hash;

    fn key(&self) -> Self::Key;

    /// Adds what another lane has done in the same step.
    fn join(&mut self, other: Self);
}

/// Steps of a warp, each with its lanes, from what lanes have done: each lane's notes in its order, one lane behind the other. The order of
/// each lane is kept.
pub(super) fn merge<N: Joins>(notes: Vec<(usize, N)>) -> Vec<(u32, N)> {
    let mut steps: Vec<(u32, N)> = Vec::new();
    // Where the n-th step with a key is.
    let mut known: HashMap<(N::Key, u32), usize> = HashMap::new();
    let mut notes = notes.into_iter().peekable();
    while let Some(lane) = notes.peek().map(|(lane, _)| *lane) {
        let of_lane = core::iter::from_fn(|| notes.next_if(|(other, _)| *other == lane).map(|(_, note)| note));
        let mut count: HashMap<N::Key, u32> = HashMap::new();
        let numbered: Vec<_> = of_lane
            .map(|note| {
                let count = count.entry(note.key()).or_default();
                *count += 1;
                ((note.key(), *count), note)
            })
            .collect();
        add_lane(&mut steps, &mut known, lane, numbered);
    }
    steps
}

fn add_lane<N: Joins>(
    steps: &mut Vec<(u32, N)>,
    known: &mut HashMap<(N::Key, u32), usize>,
    lane: usize,
    notes: Vec<((N::Key, u32), N)>,
) {
    debug_assert!(lane < LANES);
    let mut behind = 0;
    // What nobody has done yet at these places stands before the step with this number.
    let (mut alone, mut inserted) = (Vec::new(), Vec::new());
    for (key, note) in notes {
        match known.get(&key) {
            Some(&at) if at >= behind => {
                inserted.extend(alone.drain(..).map(|(key, note)| (at, key, note)));
                let (lanes, step) = &mut steps[at];
                *lanes |= 1 << lane;
                step.join(note);
                behind = at + 1;
            }
            _ => alone.push((key, note)),
        }
    }
    let end = steps.len();
    inserted.extend(alone.into_iter().map(|(key, note)| (end, key, note)));
    if inserted.is_empty() {
        return;
    }
    if inserted[0].0 == end {
        for (_, key, note) in inserted {
            known.entry(key).or_insert(steps.len());
            steps.push((1 << lane, note));
        }
        return;
    }
    // Where each step is afterwards.
    let mut moved = Vec::with_capacity(end);
    let mut all = Vec::with_capacity(end + inserted.len());
    let mut inserted = inserted.into_iter().peekable();
    let mut new = Vec::new();
    for (at, step) in core::mem::take(steps).into_iter().enumerate() {
        while let Some((_, key, note)) = inserted.next_if(|(before, ..)| *before == at) {
            new.push((key, all.len()));
            all.push((1 << lane, note));
        }
        moved.push(all.len());
        all.push(step);
    }
    for (_, key, note) in inserted {
        new.push((key, all.len()));
        all.push((1 << lane, note));
    }
    known.values_mut().for_each(|at| *at = moved[*at]);
    new.into_iter().for_each(|(key, at)| {
        known.entry(key).or_insert(at);
    });
    *steps = all;
}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};

    use super::*;

    impl Joins for char {
        type Key = char;

        fn key(&self) -> char {
            *self
        }

        fn join(&mut self, _: Self) {}
    }

    fn merged(lanes: &[&str]) -> String {
        let notes = lanes.iter().enumerate().flat_map(|(lane, notes)| notes.chars().map(move |note| (lane, note)));
        let steps = merge(notes.collect());
        // Each lane is still in its order.
        for (lane, notes) in lanes.iter().enumerate() {
            let own: String = steps.iter().filter(|(lanes, _)| lanes >> lane & 1 == 1).map(|(_, note)| *note).collect();
            assert_eq!(own, *notes, "lane {lane} of {lanes:?}");
        }
        let words: Vec<_> = steps.iter().map(|(lanes, note)| std::format!("{note}{lanes}")).collect();
        words.join(" ").to_string()
    }

    #[test]
    fn what_lanes_do_together_is_one_step_and_each_lane_keeps_its_order() {
        assert_eq!(merged(&["ABC", "ABC", "ABC"]), "A7 B7 C7");
        assert_eq!(merged(&["ABC", "AXC"]), "A3 B1 X2 C3");
        assert_eq!(merged(&["AB", "ABAB"]), "A3 B3 A2 B2");
        assert_eq!(merged(&["AB", "BA"]), "A1 B3 A2");
        assert_eq!(merged(&["AXA", "AAX"]), "A3 X1 A3 X2");
        assert_eq!(merged(&["", "A", "", "BA"]), "B8 A10");
        // What each lane alone does stays in the order of lanes.
        assert_eq!(merged(&["A", "B", "C"]), "A1 B2 C4");
    }
}
