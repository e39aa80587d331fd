//! Circles and levels of a graph.

use std::collections::BTreeSet;

/// The circles: each set of two or more nodes that all lead to one another.
pub(super) fn circles(nodes: usize, edges: &BTreeSet<(usize, usize)>) -> Vec<BTreeSet<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..nodes).map(|node| reached_from(node, edges)).collect();
    let mut found: Vec<BTreeSet<usize>> = Vec::new();
    for node in 0..nodes {
        let with: BTreeSet<usize> =
            reached[node].iter().copied().filter(|&other| reached[other].contains(&node)).collect();
        if with.len() > 1 && !found.contains(&with) {
            found.push(with);
        }
    }
    found
}

/// The nodes that edges lead to from a node, one after the other.
fn reached_from(node: usize, edges: &BTreeSet<(usize, usize)>) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut next = vec![node];
    while let Some(from) = next.pop() {
        for &(_, to) in edges.range((from, 0)..=(from, usize::MAX)) {
            if reached.insert(to) {
                next.push(to);
            }
        }
    }
    reached
}

/// The nodes of a graph without circles, level by level: edges lead to lower levels alone.
pub(super) fn levels(nodes: usize, edges: &BTreeSet<(usize, usize)>) -> Vec<Vec<usize>> {
    let mut left: BTreeSet<usize> = (0..nodes).collect();
    let mut levels = Vec::new();
    while !left.is_empty() {
        let leads_on = |node: &usize| edges.range((*node, 0)..=(*node, usize::MAX)).any(|(_, to)| left.contains(to));
        let level: Vec<usize> = left.iter().copied().filter(|node| !leads_on(node)).collect();
        assert!(!level.is_empty(), "the graph has a circle");
        left.retain(|node| !level.contains(node));
        levels.push(level);
    }
    levels
}
