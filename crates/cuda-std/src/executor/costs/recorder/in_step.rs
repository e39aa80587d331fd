//! Lanes that leave out accesses of a line which others make: in an unrolled loop, say, of which the last rounds are not there for all of them.
//!
//! ```text
//!  lane 0, which has come to the line most often      100  228   612  740  1124 1252      one address after the other
//!  lane 9, 36 bytes further on, without every other   136        648       1160
//!                                                     ▲          ▲         ▲
//!                                                     100 + 36   612 + 36  1124 + 36
//! ```
//!
//! Addresses of a lane are, as a rule, those of another one and a distance that is the same all along. By it each access of a lane finds
//! its place among those of the lane that has most.

use std::vec::Vec;

use super::super::super::context::LANES;
use super::Access;

/// How many distances are tried for a lane, at most: a line that is come to thousands of times would take long otherwise.
const TRIES: usize = 64;

/// The same accesses with the rounds that these distances show; none if all lanes have made as many, or if some have addresses with no such
/// distance.
pub(super) fn in_step(accesses: &[Access]) -> Option<Vec<Access>> {
    let mut of_lane = [const { Vec::new() }; LANES];
    for access in accesses {
        of_lane[usize::from(access.lane) % LANES].push(access.address);
    }
    let most = of_lane.iter().map(Vec::len).max()?;
    if of_lane.iter().all(|lane| lane.is_empty() || lane.len() == most) {
        return None;
    }
    let first = of_lane.iter().position(|lane| lane.len() == most)?;
    let all = of_lane[first].clone();
    // What two lanes are apart that have come as often.
    let other = (first + 1..LANES).rev().find(|&lane| of_lane[lane].len() == most);
    let stride = other.map(|other| distance(all[0], of_lane[other][0]) / (other - first) as isize);
    let mut rounds = [const { Vec::new() }; LANES];
    for (lane, addresses) in of_lane.iter().enumerate().filter(|(_, lane)| !lane.is_empty()) {
        rounds[lane] = if addresses.len() == most {
            (0..most as u32).collect()
        } else {
            let expected = stride.map(|stride| stride * (lane as isize - first as isize));
            let others = all[..=most - addresses.len()].iter().take(TRIES).map(|&at| distance(at, addresses[0]));
            expected.into_iter().chain(others).find_map(|distance| places(&all, addresses, distance))?
        };
    }
    let with_round = |access: &Access| {
        let round = rounds[usize::from(access.lane) % LANES][access.number as usize];
        Access { round, ..*access }
    };
    Some(accesses.iter().map(with_round).collect())
}

/// How far it is from one address to another.
fn distance(from: usize, to: usize) -> isize {
    to.wrapping_sub(from).cast_signed()
}

/// The place of each address among all of those, which are this far before them.
fn places(all: &[usize], addresses: &[usize], distance: isize) -> Option<Vec<u32>> {
    let mut rest = all.iter().enumerate();
    let place = |address: &usize| rest.find(|(_, at)| at.wrapping_add_signed(distance) == *address);
    addresses.iter().map(place).map(|found| found.map(|(round, _)| round as u32)).collect()
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    /// Those of a lane, one after the other.
    fn of_lane(lane: u16, addresses: &[usize]) -> Vec<Access> {
        let access =
            |(number, &address): (usize, &usize)| Access { number: number as u32, round: 0, lane, bytes: 4, address };
        addresses.iter().enumerate().map(access).collect()
    }

    fn rounds(lanes: &[Vec<Access>]) -> Option<Vec<Vec<u32>>> {
        let all = in_step(&lanes.concat())?;
        let of = |lane: usize| all.iter().filter(|it| usize::from(it.lane) == lane).map(|it| it.round).collect();
        Some((0..lanes.len()).map(of).collect())
    }

    #[test]
    fn a_lane_that_leaves_out_accesses_is_in_step_with_those_that_make_all() {
        let all = [100, 228, 612, 740, 1124, 1252];
        let last = all.map(|address| address + 8);
        let lanes = [of_lane(0, &all), of_lane(1, &[104, 616, 1128]), of_lane(2, &last)];
        assert_eq!(rounds(&lanes).unwrap(), [vec![0, 1, 2, 3, 4, 5], vec![0, 2, 4], vec![0, 1, 2, 3, 4, 5]]);
        // By itself it might be any of them: how far lanes are apart decides.
        let lanes = [of_lane(0, &all), of_lane(1, &[744]), of_lane(2, &last)];
        assert_eq!(rounds(&lanes).unwrap()[1], [3]);
    }

    #[test]
    fn where_no_distance_fits_nothing_is_said() {
        let all = [100, 228, 612];
        assert_eq!(rounds(&[of_lane(0, &all), of_lane(1, &[104, 700])]), None);
        assert_eq!(rounds(&[of_lane(0, &all), of_lane(1, &all)]), None, "by number they are together");
    }
}
