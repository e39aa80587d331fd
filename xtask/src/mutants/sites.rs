//! The sites of the kernels: a place in the source, what is asked for there, and one way to do something else. Which cases come to which
//! sites, which of them are run for a site, and what has come of it.
//!
//! ```text
//! suite --changes ──► case  seconds  its sites        suite --change SITE --case … --case …
//!                     scan/0  0.02   a b c       ───► for each site its cases, those first that take least, until one tells
//!                     scan/1  0.31   a b c d
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use rayon::prelude::*;

use super::equivalent::Equivalent;
use super::notes::{Done, Met};
use super::{Arguments, Outcome, equivalent, listing, run_suite};
use crate::workspace::root;

/// How many percent of the sites have to be caught, and how many may be equivalent.
const CAUGHT: f64 = 95.0;
const EQUIVALENT: f64 = 5.0;

/// How many seconds a case takes that no sample waits for.
const SLOW: f64 = 3.0;

/// How many kernels have the same case, of those that come to a site: the others do the same.
const KERNELS: usize = 3;

/// A case of the suite.
struct Case {
    /// As the suite calls it.
    name: String,
    seconds: f64,
}

impl Case {
    /// What kernel or operation it is of, and its number.
    fn parts(&self) -> (&str, &str) {
        self.name.split_once('/').unwrap_or((&self.name, ""))
    }
}

/// Which cases come to which sites.
pub(super) struct Sites {
    cases: Vec<Case>,
    /// The cases of each, those first that take least.
    met: BTreeMap<String, Vec<usize>>,
    /// Whether the cases are but some that come to all sites.
    is_cover: bool,
}

/// What has come of a site.
pub(super) struct Site {
    /// The place, what is asked for there, and the change.
    pub(super) name: String,
    pub(super) outcome: Outcome,
    /// The proof that the change changes nothing, if there is one.
    pub(super) equivalent: Option<&'static Equivalent>,
}

impl Site {
    /// The file.
    pub(super) fn file(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }

    /// The place, what is asked for there, and the change.
    pub(super) fn parts(&self) -> [&str; 3] {
        let mut parts = self.name.split(' ');
        [(); 3].map(|()| parts.next().unwrap_or_default())
    }
}

/// What has come of all sites.
pub(super) struct Found {
    pub(super) sites: Vec<Site>,
    /// How many there are, those among them that were not asked for.
    pub(super) of: usize,
    /// The seed, if they are a sample.
    pub(super) seed: Option<u64>,
    /// Cases that come to all sites between them.
    cover: Vec<String>,
}

impl Sites {
    /// Runs all cases that there are, but for those that the notes have.
    pub(super) fn of_all(suite: &Path, met: &Met) -> anyhow::Result<Self> {
        let mut subjects = listing(suite, &["--list".to_owned()])?;
        subjects.retain(|subject| !met.has(subject));
        let lines = subjects.par_iter().with_max_len(1).map(|subject| {
            let lines = changes(suite, ["--kernel", subject])?;
            println!("{subject}: {} cases", lines.iter().filter(|line| !line.starts_with(' ')).count());
            met.add(subject, &lines)?;
            Ok(lines)
        });
        let lines: Vec<Vec<String>> = lines.collect::<anyhow::Result<_>>()?;
        Self::parse(met.lines().chain(lines.iter().flatten().map(String::as_str)), false)
    }

    /// Runs some cases that come to all sites.
    pub(super) fn of_cover(suite: &Path) -> anyhow::Result<Self> {
        let path = cover_file();
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let cases: Vec<_> = text.lines().collect();
        let lines = cases.par_iter().with_max_len(1).map(|case| changes(suite, ["--case", case]));
        let lines: Vec<Vec<String>> = lines.collect::<anyhow::Result<_>>()?;
        Self::parse(lines.iter().flatten().map(String::as_str), true)
    }

    /// From lines as the suite prints them: a case, and its sites, which are indented.
    fn parse<'a>(lines: impl Iterator<Item = &'a str>, is_cover: bool) -> anyhow::Result<Self> {
        let (mut cases, mut met) = (Vec::new(), BTreeMap::<String, Vec<usize>>::new());
        for line in lines {
            match line.strip_prefix("  ") {
                Some(site) => {
                    ensure!(!cases.is_empty(), "`{site}` is of no case");
                    met.entry(site.to_owned()).or_default().push(cases.len() - 1);
                }
                None => {
                    let parts = line.strip_suffix(" s").and_then(|line| line.rsplit_once(": "));
                    let (name, seconds) = parts.with_context(|| format!("`{line}` is no case"))?;
                    cases.push(Case { name: name.to_owned(), seconds: seconds.parse()? });
                }
            }
        }
        for reached in met.values_mut() {
            reached.sort_by(|a, b| cases[*a].seconds.total_cmp(&cases[*b].seconds));
        }
        Ok(Self { cases, met, is_cover })
    }

    /// Cases that come to all sites between them, to each by [`KERNELS`] kernels if there are as many, but for those that only slow cases come
    /// to: again and again the one that comes to most that lack a kernel for its time.
    fn cover(&self) -> Vec<String> {
        let quick = |case: &&usize| self.cases[**case].seconds < SLOW;
        let mut of_cases: Vec<Vec<usize>> = vec![Vec::new(); self.cases.len()];
        for (site, reached) in self.met.values().enumerate() {
            reached.iter().filter(quick).for_each(|case| of_cases[*case].push(site));
        }
        let mut kernels: Vec<BTreeSet<&str>> = vec![BTreeSet::new(); self.met.len()];
        let mut chosen = BTreeSet::new();
        loop {
            // What a program takes to start counts as well.
            let worth = |case: usize| {
                let (kernel, _) = self.cases[case].parts();
                let lacks = |site: &&usize| kernels[**site].len() < KERNELS && !kernels[**site].contains(kernel);
                of_cases[case].iter().filter(lacks).count() as f64 / (self.cases[case].seconds + 0.05)
            };
            let worths = (0..self.cases.len()).map(|case| (case, worth(case)));
            let best = worths.filter(|(_, worth)| *worth > 0.0).max_by(|(_, a), (_, b)| a.total_cmp(b));
            let Some((best, _)) = best else { break };
            let Case { name, .. } = &self.cases[best];
            of_cases[best].iter().for_each(|site| _ = kernels[*site].insert(self.cases[best].parts().0));
            chosen.insert(name.clone());
        }
        chosen.into_iter().collect()
    }

    /// The cases that are run for a site.
    fn of_site(&self, reached: &[usize]) -> Vec<usize> {
        let mut kernels: BTreeMap<&str, usize> = BTreeMap::new();
        let is_new = |case: &&usize| {
            let count = kernels.entry(self.cases[**case].parts().1).or_default();
            *count += 1;
            *count <= KERNELS
        };
        reached.iter().filter(is_new).copied().collect()
    }

    /// Makes the change of each site in turn, or of as many as a sample has.
    pub(super) fn try_all(&self, suite: &Path, arguments: &Arguments) -> anyhow::Result<Found> {
        let sources = equivalent::Sources::default();
        let mut wanted: Vec<_> = self.met.iter().filter(|(site, _)| site.contains(&arguments.filter)).collect();
        let of = self.met.len();
        if let Some(count) = arguments.sample {
            println!("a sample of {count} of {} sites, with seed {}", wanted.len(), arguments.seed);
            wanted.sort_by_key(|(site, _)| number_of(site, arguments.seed));
            wanted.truncate(count as usize);
        } else {
            println!("{} sites, {} cases", wanted.len(), self.cases.len());
        }
        let done = Done::open(arguments.done.as_deref())?;
        let sites = wanted.par_iter().with_max_len(1).map(|(site, reached)| {
            let equivalent = equivalent::of(site, &sources)?;
            let outcome = match (equivalent, done.of(site)) {
                (Some(_), _) => Outcome::Survived,
                (None, Some(outcome)) => outcome,
                (None, None) => {
                    let outcome = self.try_site(suite, site, reached, arguments)?;
                    if arguments.sample.is_none() || matches!(outcome, Outcome::Survived) {
                        println!("{site}: {outcome}");
                    }
                    done.add(site, &outcome)?;
                    outcome
                }
            };
            Ok(Site { name: (*site).clone(), outcome, equivalent })
        });
        let sites = sites.collect::<anyhow::Result<_>>()?;
        Ok(Found { sites, of, seed: arguments.sample.map(|_| arguments.seed), cover: self.cover() })
    }

    fn try_site(&self, suite: &Path, site: &str, reached: &[usize], arguments: &Arguments) -> anyhow::Result<Outcome> {
        let cases = self.of_site(reached);
        let mut run = vec!["--change".to_owned(), site.to_owned()];
        run.extend(["--budget".to_owned(), arguments.budget.to_string()]);
        run.extend(cases.iter().flat_map(|case| ["--case".to_owned(), self.cases[*case].name.clone()]));
        if self.is_cover {
            // There may be others that tell.
            let kernels: BTreeSet<&str> = cases.iter().map(|case| self.cases[*case].parts().0).collect();
            run.extend(kernels.into_iter().flat_map(|kernel| ["--kernel".to_owned(), kernel.to_owned()]));
        }
        run_suite(suite, &run, self.limit(&cases).min(arguments.limit))
    }

    /// After how many seconds a case does not end: many times what the longest takes.
    fn limit(&self, cases: &[usize]) -> u64 {
        let longest = cases.iter().map(|case| self.cases[*case].seconds).fold(0.0, f64::max);
        10 + (20.0 * longest) as u64
    }
}

impl Found {
    /// Those that are not equivalent.
    pub(super) fn counted(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().filter(|site| site.equivalent.is_none())
    }

    /// Those that nobody has told of, and that are not known to be equivalent.
    pub(super) fn survivors(&self) -> impl Iterator<Item = &Site> {
        self.counted().filter(|site| matches!(site.outcome, Outcome::Survived))
    }

    /// How many percent of those that count are caught.
    pub(super) fn caught(&self) -> f64 {
        let all = self.counted().count();
        100.0 * (all - self.survivors().count()) as f64 / all.max(1) as f64
    }

    /// What is not as it has to be.
    pub(super) fn failure(&self) -> Option<String> {
        let equivalent = self.sites.iter().filter(|site| site.equivalent.is_some()).count();
        let share = 100.0 * equivalent as f64 / self.sites.len().max(1) as f64;
        if self.caught() < CAUGHT {
            return Some(format!("{:.1} % of the sites are caught, less than {CAUGHT} %", self.caught()));
        }
        // Of a few, chance decides.
        let is_all = self.seed.is_none() && self.sites.len() == self.of;
        (is_all && share > EQUIVALENT)
            .then(|| format!("{share:.1} % are left out as equivalent, more than {EQUIVALENT} %"))
    }

    /// Writes the cases that a sample runs.
    pub(super) fn write_cover(&self) -> anyhow::Result<()> {
        let path = cover_file();
        let text: String = self.cover.iter().map(|case| format!("{case}\n")).collect();
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }
}

/// The changes that can be made of what some cases come to, as the suite prints them.
fn changes(suite: &Path, [option, name]: [&str; 2]) -> anyhow::Result<Vec<String>> {
    listing(suite, &["--changes", option, name].map(str::to_owned))
}

/// Cases that come to the sites between them, one to a line; a full run writes the file.
fn cover_file() -> PathBuf {
    root().join("xtask/src/mutants/cover.txt")
}

/// A number that looks like chance, the same for the same text and seed (FNV-1a, and the last steps of SplitMix64).
fn number_of(text: &str, seed: u64) -> u64 {
    let hash = text
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325 ^ seed, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
    let hash = (hash ^ hash >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let hash = (hash ^ hash >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ hash >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
scan/0: 0.010 s
  a.rs:1:2 shared-load index+1
scan/1: 0.500 s
  a.rs:1:2 shared-load index+1
  a.rs:9:2 sync_threads omitted
sum/0: 0.001 s
  a.rs:1:2 shared-load index+1
";

    #[test]
    fn cases_come_in_the_order_of_their_time_and_cover_all_sites() {
        let sites = Sites::parse(LINES.lines(), false).unwrap();
        assert_eq!(sites.met["a.rs:1:2 shared-load index+1"], [2, 0, 1]);
        assert_eq!(sites.cover(), ["scan/0", "scan/1", "sum/0"]);
        assert!(Sites::parse("  a".lines(), false).is_err() && Sites::parse("a".lines(), false).is_err());
    }

    #[test]
    fn samples_are_the_same_for_the_same_seed() {
        assert_eq!(number_of("a", 1), number_of("a", 1));
        assert!(number_of("a", 1) != number_of("a", 2) && number_of("a", 1) != number_of("b", 1));
    }

    #[test]
    fn too_few_that_are_caught_fail_and_so_do_too_many_that_are_left_out() {
        let site = |outcome: &Outcome, is_equivalent: bool| Site {
            name: String::new(),
            outcome: outcome.clone(),
            equivalent: is_equivalent.then_some(&equivalent::EQUIVALENT[0]),
        };
        let found = |caught: usize, survived: usize, equivalent: usize| {
            let caught = (0..caught).map(|_| site(&Outcome::NoEnd, false));
            let survived = (0..survived).map(|_| site(&Outcome::Survived, false));
            let left_out = (0..equivalent).map(|_| site(&Outcome::Survived, true));
            let sites: Vec<_> = caught.chain(survived).chain(left_out).collect();
            Found { of: sites.len(), sites, seed: None, cover: Vec::new() }
        };
        assert_eq!(found(95, 5, 5).failure(), None);
        assert!(found(94, 6, 0).failure().unwrap().contains("94.0 %"));
        assert!(found(90, 0, 10).failure().unwrap().contains("10.0 % are left out"));
    }

    #[test]
    fn the_cases_of_a_sample_are_listed() {
        let text = fs::read_to_string(cover_file()).unwrap();
        assert!(text.lines().count() > 10 && text.lines().all(|line| line.contains('/')));
    }
}
