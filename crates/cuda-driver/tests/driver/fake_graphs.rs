//! The fake driver's graphs. The nodes of a launch are done in any order that their dependencies leave.

use std::ffi::{c_int, c_uint, c_void};
use std::ops::Range;
use std::sync::Arc;

use crate::fake_faults::{Kind, made};
use crate::fake_kernels::{Launch, prepare};
use crate::fake_streams::{Work, enqueue, random_below};
use crate::{
    CURRENT_CONTEXT, INVALID_VALUE, LAST_STREAM, SUCCESS, check, destroyed, prescribed_in_context, refusal_to_destroy,
};
use std::sync::atomic::Ordering::SeqCst;

#[derive(Clone)]
struct Node {
    /// Whether it is a kernel's.
    is_launch: bool,
    after: Vec<usize>,
    uses: Vec<Range<u64>>,
    work: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Clone, Default)]
struct Graph {
    nodes: Vec<Node>,
}

impl Graph {
    /// Adds a node; its handle is its number, from 1.
    unsafe fn add(&mut self, handle: *mut usize, mut node: Node, after: *const usize, count: usize) -> u32 {
        let after = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(after, count) } };
        if after.iter().any(|&handle| handle == 0 || handle > self.nodes.len()) {
            return INVALID_VALUE;
        }
        node.after = after.iter().map(|handle| handle - 1).collect();
        self.nodes.push(node);
        unsafe { *handle = self.nodes.len() };
        SUCCESS
    }
}

/// `CUDA_KERNEL_NODE_PARAMS`.
#[repr(C)]
struct KernelNodeParams {
    function: usize,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    dynamic_shared_bytes: c_uint,
    params: *const *const c_void,
    extra: usize,
}

impl KernelNodeParams {
    unsafe fn node(&self) -> Result<Node, u32> {
        assert_eq!(self.extra, 0);
        let prepared = unsafe { prepare(self.function, self.grid, self.block, self.dynamic_shared_bytes, self.params) };
        let Launch { uses, work } = prepared?;
        Ok(Node { is_launch: true, after: Vec::new(), uses, work })
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphCreate(graph: *mut usize, flags: c_uint) -> u32 {
    check!(prescribed_in_context("cuGraphCreate"));
    assert_eq!(flags, 0);
    made(Kind::Graph);
    unsafe { *graph = Box::into_raw(Box::<Graph>::default()) as usize };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphAddKernelNode(
    node: *mut usize,
    graph: usize,
    after: *const usize,
    count: usize,
    params: *const KernelNodeParams,
) -> u32 {
    check!(prescribed_in_context("cuGraphAddKernelNode"));
    unsafe {
        match (*params).node() {
            Ok(new) => (*(graph as *mut Graph)).add(node, new, after, count),
            Err(code) => code,
        }
    }
}

/// `CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE` is all that is set.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphKernelNodeSetAttribute(_node: usize, attribute: c_int, value: *const [c_int; 16]) -> u32 {
    check!(prescribed_in_context("cuGraphKernelNodeSetAttribute"));
    assert_eq!((attribute, unsafe { (*value)[0] }), (2, 1));
    SUCCESS
}

/// `CUDA_MEMCPY3D`, as words: 6 and 17 are the addresses, 4 and 15 the kinds of memory, 22 to 24 the extents.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphAddMemcpyNode(
    node: *mut usize,
    graph: usize,
    after: *const usize,
    count: usize,
    copy: *const [u64; 25],
    context: usize,
) -> u32 {
    check!(prescribed_in_context("cuGraphAddMemcpyNode"));
    assert_eq!(context, CURRENT_CONTEXT.get());
    let copy = unsafe { *copy };
    let (source, target, [bytes, height, depth]) = (copy[6], copy[17], [copy[22], copy[23], copy[24]]);
    assert_eq!((copy[4] as u32, copy[15] as u32, height, depth), (2, 2, 1, 1), "{copy:?}");
    let work = move || unsafe {
        (target as *mut u8).copy_from_nonoverlapping(source as *const u8, bytes as usize);
    };
    let uses = vec![source..source + bytes, target..target + bytes];
    let new = Node { is_launch: false, after: Vec::new(), uses, work: Arc::new(work) };
    unsafe { (*(graph as *mut Graph)).add(node, new, after, count) }
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
struct MemsetParams {
    target: u64,
    pitch: usize,
    value: c_uint,
    element_bytes: c_uint,
    width: usize,
    height: usize,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphAddMemsetNode(
    node: *mut usize,
    graph: usize,
    after: *const usize,
    count: usize,
    params: *const MemsetParams,
    context: usize,
) -> u32 {
    check!(prescribed_in_context("cuGraphAddMemsetNode"));
    assert_eq!(context, CURRENT_CONTEXT.get());
    let MemsetParams { target, value, element_bytes, width, height, .. } = unsafe { params.read() };
    assert_eq!((element_bytes, height), (1, 1));
    let work = move || unsafe { (target as *mut u8).write_bytes(value as u8, width) };
    let uses = vec![target..target + width as u64];
    let new = Node { is_launch: false, after: Vec::new(), uses, work: Arc::new(work) };
    unsafe { (*(graph as *mut Graph)).add(node, new, after, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, flags: u64) -> u32 {
    check!(prescribed_in_context("cuGraphInstantiateWithFlags"));
    assert_eq!(flags, 0);
    made(Kind::ExecutableGraph);
    unsafe { *executable = Box::into_raw(Box::new((*(graph as *const Graph)).clone())) as usize };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphExecKernelNodeSetParams(
    executable: usize,
    node: usize,
    params: *const KernelNodeParams,
) -> u32 {
    check!(prescribed_in_context("cuGraphExecKernelNodeSetParams"));
    let graph = unsafe { &mut *(executable as *mut Graph) };
    match unsafe { (*params).node() } {
        Ok(new) => {
            let old = &mut graph.nodes[node - 1];
            assert!(old.is_launch);
            *old = Node { after: std::mem::take(&mut old.after), ..new };
            SUCCESS
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphLaunch(executable: usize, stream: usize) -> u32 {
    LAST_STREAM.store(stream, SeqCst);
    check!(prescribed_in_context("cuGraphLaunch"));
    let graph = unsafe { &*(executable as *const Graph) };
    let (mut left, mut order): (Vec<usize>, Vec<Arc<dyn Fn() + Send + Sync>>) =
        ((0..graph.nodes.len()).collect(), Vec::new());
    while !left.is_empty() {
        let is_ready = |&&number: &&usize| graph.nodes[number].after.iter().all(|before| !left.contains(before));
        let ready: Vec<usize> = left.iter().filter(is_ready).copied().collect();
        let next = ready[random_below(ready.len())];
        left.retain(|&number| number != next);
        order.push(graph.nodes[next].work.clone());
    }
    let uses = graph.nodes.iter().flat_map(|node| node.uses.clone()).collect();
    let work: Work = Box::new(move || order.iter().for_each(|work| work()));
    enqueue(stream, uses, work);
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphDestroy(graph: usize) -> u32 {
    check!(refusal_to_destroy("cuGraphDestroy"));
    drop(unsafe { Box::from_raw(graph as *mut Graph) });
    destroyed(Kind::Graph)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphExecDestroy(executable: usize) -> u32 {
    check!(refusal_to_destroy("cuGraphExecDestroy"));
    drop(unsafe { Box::from_raw(executable as *mut Graph) });
    destroyed(Kind::ExecutableGraph)
}
