//! The address ranges of a device's live buffers, and what uses each. A launch checks every view among its arguments against them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_std::{ErasedKernel, View, ViewAccess};

use crate::Error;
use crate::order::{Operation, Streams, Use, Uses};
use crate::short_list::ShortList;

/// The address ranges of a device that buffers hold.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    live: Mutex<Live>,
}

/// What is known of the buffers, and of the streams that use them.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Those that are the buffers' own, by their first byte. No two overlap.
    own: BTreeMap<usize, Allocation>,
    /// Those that are lent, of which there are few at a time. They may overlap, and the same may be there twice.
    lent: Vec<Lent>,
    /// Of what is lent: others may have been lent the same memory, so this stays when it is given back.
    uses_of_lent: Uses,
    /// The number of allocations so far.
    count: AllocationNumber,
    pub(crate) streams: Streams,
}

/// Tells allocations apart, also those that have had the same address one after the other.
type AllocationNumber = u64;

#[derive(Debug)]
struct Allocation {
    bytes: usize,
    number: AllocationNumber,
    uses: Uses,
}

/// Memory of somebody else.
#[derive(Debug)]
struct Lent {
    range: Range<usize>,
    number: AllocationNumber,
    /// Whether its elements may lie between those of other memory that is lent so.
    interleaves: bool,
}

impl Lent {
    fn contains(&self, range: &Range<usize>) -> bool {
        self.range.start <= range.start && range.end <= self.range.end
    }
}

/// A part of a buffer, which may have been dropped by now.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) range: Range<usize>,
    number: AllocationNumber,
}

impl Live {
    /// Notes that `bytes` at `address` are now a buffer's. An empty buffer holds nothing.
    pub(crate) fn insert(&mut self, address: usize, bytes: usize) {
        if bytes > 0 {
            self.count += 1;
            self.own.insert(address, Allocation { bytes, number: self.count, uses: Uses::default() });
        }
    }

    /// Notes that `bytes` at `address` have been lent to a buffer.
    fn lend(&mut self, address: usize, bytes: usize, interleaves: bool) {
        if bytes > 0 {
            self.count += 1;
            let range = address..address.saturating_add(bytes);
            self.lent.push(Lent { range, number: self.count, interleaves });
        }
    }

    /// The buffer at this address that has been lent so many bytes.
    fn position_of_lent(&self, address: usize, bytes: usize) -> Option<usize> {
        let range = address..address.saturating_add(bytes);
        self.lent.iter().position(|lent| lent.range == range)
    }

    /// Whether these bytes may have, between their elements, elements of others.
    fn interleaves(&self, range: &Range<usize>) -> bool {
        self.lent.iter().any(|lent| lent.interleaves && lent.contains(range))
    }

    /// Notes that the buffer at `address` is about to be freed, or given back, and returns the operations that may still use it. What is
    /// lent, its lender keeps until they have finished.
    pub(crate) fn remove(&mut self, address: usize, bytes: usize, is_lent: bool) -> Vec<Arc<Operation>> {
        if is_lent {
            if let Some(index) = self.position_of_lent(address, bytes) {
                self.lent.swap_remove(index);
            }
            return Vec::new();
        }
        self.own.remove(&address).map(|mut allocation| allocation.uses.take()).unwrap_or_default()
    }

    /// The operations that one which uses this has to come after.
    pub(crate) fn conflicts(&self, with: &Use, operations: &mut Vec<Arc<Operation>>) {
        let uses = self.own_of(with.range.start).map_or(&self.uses_of_lent, |(_, allocation)| &allocation.uses);
        operations.extend(uses.conflicts(with).cloned());
    }

    /// Notes an operation that uses this, and has been started behind those that it has to come after.
    pub(crate) fn note(&mut self, now: Use, operation: &Arc<Operation>) {
        let start = self.own_of(now.range.start).map(|(start, _)| start);
        match start.and_then(|start| self.own.get_mut(&start)) {
            Some(allocation) => allocation.uses.note(now, operation),
            None => self.uses_of_lent.note(now, operation),
        }
    }

    /// The buffer that an address is in, if it is not lent.
    fn own_of(&self, address: usize) -> Option<(usize, &Allocation)> {
        let (&start, allocation) = self.own.range(..=address).next_back()?;
        (address - start < allocation.bytes).then_some((start, allocation))
    }

    /// The place of these bytes, which are inside a live buffer.
    pub(crate) fn place(&self, range: Range<usize>) -> Option<Place> {
        let number = match self.own_of(range.start) {
            Some((start, allocation)) => (range.end - start <= allocation.bytes).then_some(allocation.number),
            None => self.lent.iter().find(|lent| lent.contains(&range)).map(|lent| lent.number),
        }?;
        Some(Place { range, number })
    }

    /// Whether a place is still of the buffer that it was of.
    pub(crate) fn is_live(&self, place: &Place) -> bool {
        match self.own_of(place.range.start) {
            Some((start, allocation)) => {
                allocation.number == place.number && place.range.end - start <= allocation.bytes
            }
            None => self.lent.iter().any(|lent| lent.number == place.number && place.range.end <= lent.range.end),
        }
    }
}

impl Allocations {
    /// Notes that `bytes` at `address` are now a buffer's. An empty buffer holds nothing.
    pub(crate) fn insert(&self, address: usize, bytes: usize) {
        self.lock().insert(address, bytes);
    }

    /// Notes that `bytes` at `address` have been lent to a buffer; with `interleaves`, views of them may overlap views of others that have been
    /// lent so, although one is written.
    pub(crate) fn lend(&self, address: usize, bytes: usize, interleaves: bool) {
        self.lock().lend(address, bytes, interleaves);
    }

    /// Notes that a buffer has fewer or more bytes than before.
    pub(crate) fn resize(&self, address: usize, [before, now]: [usize; 2], is_lent: bool) {
        let mut live = self.lock();
        match live.own.get_mut(&address) {
            // The operations on bytes that it has no more stay: it may have them again.
            Some(allocation) if !is_lent => allocation.bytes = now,
            _ if is_lent => {
                let interleaves = live.position_of_lent(address, before).is_some_and(|at| live.lent[at].interleaves);
                live.remove(address, before, is_lent);
                live.lend(address, now, interleaves);
            }
            // Memory without bytes has no address.
            _ => {}
        }
    }

    /// Checks that every view among the kernel's arguments lies within one live buffer, and that no view that is written
    /// to overlaps another one. Empty views are of no memory, so anything goes. `device` names the device in the error.
    ///
    /// Views can be copied, and those of host slices are as safe to make as those of buffers: without this check, safe
    /// code could have a GPU read host memory, or two threads of a kernel write to one address.
    pub(crate) fn check(&self, kernel: &dyn ErasedKernel, device: impl Fn() -> String) -> Result<(), Error> {
        // Most launches are fine, and should cost little: names are only written down for an error.
        let mut views = ShortList::<Seen, 24>::new(Seen { start: 0, end: 0, access: ViewAccess::Read });
        let mut refused = None;
        {
            let live = self.lock();
            kernel.visit_views(&mut |view| {
                if refused.is_some() {
                    return;
                }
                refused = refusal(&live, views.as_slice(), &view)
                    .map(|refusal| (refusal, view.name.to_string(), view.address, view.bytes));
                // No overflow where it is not refused: the view is inside an allocation.
                let end = view.address.wrapping_add(view.bytes);
                views.push(Seen { start: view.address, end, access: view.access });
            });
        }
        let Some((refusal, view, address, bytes)) = refused else { return Ok(()) };
        Err(match refusal {
            Refusal::Astray => Error::AstrayView { kernel: kernel.declared().name, view },
            Refusal::Foreign => {
                Error::ForeignView { kernel: kernel.declared().name, view, address, bytes, device: device() }
            }
            Refusal::Overlaps { other, other_is_written } => {
                let other = view_name(kernel, other);
                let (written, other) = if other_is_written { (other, view) } else { (view, other) };
                Error::OverlappingViews { kernel: kernel.declared().name, written, other }
            }
        })
    }

    /// No code that holds the lock can panic halfway through a change, so a poisoned lock guards what is in order.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory that a kernel uses by its views. What is written atomically, or within another view, is written.
pub(crate) fn uses(kernel: &dyn ErasedKernel) -> Vec<Use> {
    let mut uses = Vec::new();
    kernel.visit_views(&mut |view| {
        if view.bytes > 0 {
            uses.push(Use::new(view.address, view.bytes, view.access != ViewAccess::Read));
        }
    });
    uses
}

/// A view that has been looked at.
#[derive(Clone, Copy)]
struct Seen {
    start: usize,
    end: usize,
    access: ViewAccess,
}

/// Why a launch is refused.
enum Refusal {
    /// A view is not inside a live buffer.
    Foreign,
    /// It is to be within an earlier one that is written, and is not.
    Astray,
    /// It overlaps an earlier one, by its position, and one of the two is written.
    Overlaps { other: usize, other_is_written: bool },
}

/// What is wrong with a view that comes after `others`.
fn refusal(live: &Live, others: &[Seen], view: &View<'_>) -> Option<Refusal> {
    if view.bytes == 0 {
        return None;
    }
    let own = live.own_of(view.address);
    let is_inside = |start: usize, bytes: usize| {
        view.address.checked_sub(start).is_some_and(|offset| offset <= bytes && view.bytes <= bytes - offset)
    };
    if !own.is_some_and(|(start, allocation)| is_inside(start, allocation.bytes))
        && !live.lent.iter().any(|lent| is_inside(lent.range.start, lent.range.len()))
    {
        return Some(Refusal::Foreign);
    }
    let range = view.address..view.address + view.bytes;
    if view.access == ViewAccess::StoreWithin {
        let is_within =
            |other: &Seen| other.access.is_exclusive() && other.start <= range.start && range.end <= other.end;
        return (!others.iter().any(is_within)).then_some(Refusal::Astray);
    }
    let is_written = view.access.is_exclusive();
    let other = others.iter().position(|other| {
        let access = other.access;
        let overlap = range.start < other.end && other.start < range.end && other.start < other.end;
        // What is within a view that is written has been compared with the others by that one.
        overlap
            && access != ViewAccess::StoreWithin
            && (is_written || access.is_exclusive())
            && !(live.interleaves(&range) && live.interleaves(&(other.start..other.end)))
    })?;
    Some(Refusal::Overlaps { other, other_is_written: !is_written })
}

/// The name of the view at a position among the kernel's.
fn view_name(kernel: &dyn ErasedKernel, position: usize) -> String {
    let mut names = Vec::new();
    kernel.visit_views(&mut |view| names.push(view.name.to_string()));
    names.swap_remove(position)
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use cuda_std::{ContractViolation, Kernel, KernelFacts, ViewName};

    use super::*;

    /// A kernel with these views among its arguments, and nothing else.
    #[derive(Clone, Copy)]
    struct Views<'a>(&'a [(&'a str, Range<usize>, ViewAccess)]);

    // SAFETY: it is never launched.
    unsafe impl Kernel for Views<'_> {
        const FACTS: KernelFacts = KernelFacts::new("views");

        fn check(&self) -> Result<(), ContractViolation> {
            Ok(())
        }

        fn visit_params(&self, _visit: &mut dyn FnMut(*const c_void)) {}

        fn visit_views(&self, visit: &mut dyn FnMut(View<'_>)) {
            for (name, range, access) in self.0 {
                let (name, address, bytes) = (ViewName::of(name), range.start, range.len());
                visit(View { name, address, bytes, element_bytes: 4, access: *access });
            }
        }

        unsafe fn run_thread(self) {
            unreachable!("views are looked at only")
        }
    }

    #[test]
    fn views_overlap_only_where_both_are_of_memory_that_interleaves() {
        use ViewAccess::{Read, ReadWrite};
        let allocations = Allocations::default();
        allocations.lend(1000, 100, true);
        allocations.lend(1050, 100, true);
        allocations.lend(1080, 300, false);
        let check =
            |views: &[(&str, Range<usize>, ViewAccess)]| allocations.check(&Views(views), || "a device".to_owned());
        assert!(check(&[("a", 1000..1100, Read), ("c", 1050..1150, ReadWrite)]).is_ok());
        let refused = check(&[("a", 1000..1100, Read), ("c", 1090..1300, ReadWrite)]);
        assert!(matches!(refused, Err(Error::OverlappingViews { .. })));
        // What is lent anew with another size is as it was.
        allocations.resize(1050, [100, 90], true);
        assert!(check(&[("a", 1000..1100, Read), ("c", 1050..1140, ReadWrite)]).is_ok());
    }

    #[test]
    fn what_is_stored_within_a_view_needs_that_view_before_it() {
        use ViewAccess::{Read, ReadWrite, StoreWithin};
        let allocations = Allocations::default();
        allocations.insert(1000, 100);
        allocations.insert(2000, 100);
        let check =
            |views: &[(&str, Range<usize>, ViewAccess)]| allocations.check(&Views(views), || "a device".to_owned());
        let result = ("c", 1000..1100, ReadWrite);
        assert!(check(&[("a", 2000..2100, Read), result.clone(), ("map", 1000..1100, StoreWithin)]).is_ok());
        assert!(check(&[result.clone(), ("map", 1040..1080, StoreWithin), ("b", 2000..2100, Read)]).is_ok());
        let astray = |views: &[(&str, Range<usize>, ViewAccess)]| match check(views) {
            Err(Error::AstrayView { kernel: "views", view }) => view == "map",
            _ => false,
        };
        assert!(astray(&[("map", 1000..1100, StoreWithin), result.clone()]), "before the view");
        assert!(astray(&[("a", 1000..1100, Read), ("map", 1000..1100, StoreWithin)]), "a view that is only read");
        assert!(astray(&[("c", 1000..1050, ReadWrite), ("map", 1040..1080, StoreWithin)]), "beyond its end");
        assert!(astray(&[result.clone(), ("map", 2000..2100, StoreWithin)]), "another buffer");
        assert!(matches!(
            check(&[result.clone(), ("map", 1000..1101, StoreWithin)]),
            Err(Error::ForeignView { view, .. }) if view == "map"
        ));
        // What overlaps the one overlaps the other.
        let overlapping = check(&[result, ("map", 1000..1050, StoreWithin), ("a", 1000..1004, Read)]);
        assert!(matches!(overlapping, Err(Error::OverlappingViews { written, .. }) if written == "c"));
    }
}
