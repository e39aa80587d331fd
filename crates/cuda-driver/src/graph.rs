//! CUDA graphs: launches, fills and copies that are put together once, and started by one call any number of times.
//!
//! Built node by node (`cuGraphAddKernelNode` and its like) rather than captured from a stream: nothing that other threads or libraries do
//! meanwhile can disturb that, and it disturbs nobody.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use cust::memory::bytemuck::Pod;
use cust::sys::{
    self, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUgraph, CUgraphExec,
    CUgraphNode, CUkernelNodeAttrID, CUmemorytype, CUresult,
};

use crate::error::Error;
use crate::gpu::Gpu;
use crate::memory::DeviceMemory;
use crate::module::Function;

/// A graph that is being put together. Its nodes have numbers, from 0 on, in the order in which they were added.
#[derive(Debug)]
pub struct Graph {
    raw: CUgraph,
    gpu: Gpu,
    nodes: Vec<Node>,
    /// Whether the driver keeps it.
    is_left: bool,
}

#[derive(Debug)]
struct Node {
    /// `None` for what does nothing, such as a fill of no bytes: the driver has no such node.
    raw: Option<CUgraphNode>,
    /// Of a kernel: it stays loaded as long as the graph.
    function: Option<Function>,
}

/// A kernel in a graph, with its arguments.
#[derive(Debug)]
pub struct GraphLaunch<'a> {
    /// The kernel.
    pub function: &'a Function,
    /// The number of blocks along x, y and z.
    pub grid: [u32; 3],
    /// The number of threads of a block along x, y and z.
    pub block: [u32; 3],
    /// The dynamic shared memory of a block, in bytes.
    pub dynamic_shared_bytes: u32,
    /// The address of each argument; the arguments are copied.
    pub params: &'a mut [*mut c_void],
}

impl GraphLaunch<'_> {
    fn params(&mut self) -> CUDA_KERNEL_NODE_PARAMS {
        CUDA_KERNEL_NODE_PARAMS {
            func: self.function.raw(),
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.dynamic_shared_bytes,
            kernelParams: self.params.as_mut_ptr(),
            extra: ptr::null_mut(),
        }
    }
}

/// `CUlaunchAttributeValue` of the drivers from CUDA 11.8 on: 64 bytes, of which a number is all that is used here. The union that `cust`
/// declares is that of an older driver, and shorter.
#[repr(C, align(8))]
struct AttributeValue {
    number: c_int,
    rest: [u8; 60],
}

// SAFETY: the driver's functions may be called with a graph from any thread on which its context is current.
unsafe impl Send for Graph {}
// SAFETY: as for `Send`; what changes a graph takes `&mut`.
unsafe impl Sync for Graph {}

impl Gpu {
    /// An empty graph.
    ///
    /// # Errors
    /// [`Error::ContextLost`] after a kernel has failed; [`Error::Call`].
    pub fn new_graph(&self) -> Result<Graph, Error> {
        self.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` may be written to.
        self.call(|| unsafe { sys::cuGraphCreate(&mut raw, 0) })?;
        Ok(Graph { raw, gpu: self.clone(), nodes: Vec::new(), is_left: false })
    }

    /// The context that is current on this thread: this GPU's, which [`Gpu::bind`] has made so.
    fn current_context(&self) -> Result<CUcontext, Error> {
        let mut context = ptr::null_mut();
        // SAFETY: `context` may be written to.
        self.call(|| unsafe { sys::cuCtxGetCurrent(&mut context) })?;
        Ok(context)
    }
}

impl Graph {
    /// Adds a launch, which comes after the nodes of these numbers.
    ///
    /// # Errors
    /// Those of [`Function::launch`].
    ///
    /// # Safety
    /// As for [`Function::launch`], for each launch of the graph.
    ///
    /// # Panics
    /// If there is no node of one of the numbers.
    pub unsafe fn add_launch(&mut self, mut launch: GraphLaunch<'_>, after: &[usize]) -> Result<(), Error> {
        let GraphLaunch { function, grid, block, dynamic_shared_bytes, .. } = launch;
        function.prepare_launch(&self.gpu, grid, block, dynamic_shared_bytes)?;
        let (before, params) = (self.raw_nodes(after), launch.params());
        let mut node = ptr::null_mut();
        // SAFETY: the graph and the nodes are there, and `node` may be written to; what the kernel does is the caller's promise.
        let added = self.gpu.call(|| unsafe {
            sys::cuGraphAddKernelNode(&mut node, self.raw, before.as_ptr(), before.len(), &raw const params)
        });
        added.map_err(|error| function.launch_error(error, grid, block, dynamic_shared_bytes))?;
        self.nodes.push(Node { raw: Some(node), function: Some(function.clone()) });
        if function.is_cooperative() {
            let attribute = CUkernelNodeAttrID::CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE;
            let value = AttributeValue { number: 1, rest: [0; 60] };
            let value = (&raw const value).cast();
            // SAFETY: the node is there, and the value has the size that any driver reads.
            self.gpu.call(|| unsafe { sys::cuGraphKernelNodeSetAttribute(node, attribute, value) })?;
        }
        Ok(())
    }

    /// Adds a copy of `source` into `target`, which has the same length; it comes after the nodes of these numbers.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::ContextLost`] after a kernel has failed; [`Error::Call`].
    ///
    /// # Safety
    /// As for [`DeviceMemory::start_copy_from`], for each launch of the graph.
    ///
    /// # Panics
    /// If there is no node of one of the numbers.
    pub unsafe fn add_copy<T: Pod>(
        &mut self,
        source: &DeviceMemory<T>,
        target: &DeviceMemory<T>,
        after: &[usize],
    ) -> Result<(), Error> {
        if source.len() != target.len() {
            return Err(Error::LengthMismatch { host_len: source.len(), device_len: target.len() });
        }
        let copy = CUDA_MEMCPY3D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: source.address(),
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: target.address(),
            WidthInBytes: target.bytes(),
            Height: 1,
            Depth: 1,
            ..empty_copy()
        };
        self.add_unless_empty(target.bytes(), after, |node, graph, before, context| {
            // SAFETY: the graph and the nodes are there, and `node` may be written to; the memory is the caller's promise.
            unsafe { sys::cuGraphAddMemcpyNode(node, graph, before.as_ptr(), before.len(), &raw const copy, context) }
        })
    }

    /// Adds a fill of every byte; it comes after the nodes of these numbers.
    ///
    /// # Errors
    /// [`Error::ContextLost`] after a kernel has failed; [`Error::Call`].
    ///
    /// # Safety
    /// As for [`DeviceMemory::start_fill_bytes`], for each launch of the graph.
    ///
    /// # Panics
    /// If there is no node of one of the numbers.
    pub unsafe fn add_fill<T: Pod>(
        &mut self,
        target: &DeviceMemory<T>,
        value: u8,
        after: &[usize],
    ) -> Result<(), Error> {
        let fill = CUDA_MEMSET_NODE_PARAMS {
            dst: target.address(),
            pitch: 0,
            value: value.into(),
            elementSize: 1,
            width: target.bytes(),
            height: 1,
        };
        self.add_unless_empty(target.bytes(), after, |node, graph, before, context| {
            // SAFETY: the graph and the nodes are there, and `node` may be written to; the memory is the caller's promise.
            unsafe { sys::cuGraphAddMemsetNode(node, graph, before.as_ptr(), before.len(), &raw const fill, context) }
        })
    }

    /// Adds a node that touches so many bytes, behind the nodes of these numbers; one that does nothing if there are none. `add` has the
    /// driver add it.
    fn add_unless_empty(
        &mut self,
        bytes: usize,
        after: &[usize],
        add: impl FnOnce(&mut CUgraphNode, CUgraph, &[CUgraphNode], CUcontext) -> CUresult,
    ) -> Result<(), Error> {
        let before = self.raw_nodes(after);
        self.gpu.bind()?;
        let context = self.gpu.current_context()?;
        let mut raw = None;
        if bytes > 0 {
            let mut node = ptr::null_mut();
            self.gpu.call(|| add(&mut node, self.raw, &before, context))?;
            raw = Some(node);
        }
        self.nodes.push(Node { raw, function: None });
        Ok(())
    }

    /// The nodes of these numbers, but for those that do nothing.
    fn raw_nodes(&self, numbers: &[usize]) -> Vec<CUgraphNode> {
        numbers.iter().filter_map(|&number| self.nodes[number].raw).collect()
    }

    /// Has the driver prepare the graph, as it is, for launches.
    ///
    /// # Errors
    /// [`Error::ContextLost`] after a kernel has failed; [`Error::Call`], as for too little memory on the GPU.
    pub fn instantiate(self) -> Result<ExecutableGraph, Error> {
        self.gpu.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` may be written to, and the graph is there.
        self.gpu.call(|| unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, self.raw, 0) })?;
        let mut kernels: Vec<Arc<str>> = Vec::new();
        for function in self.nodes.iter().filter_map(|node| node.function.as_ref()) {
            if !kernels.contains(function.shared_name()) {
                kernels.push(function.shared_name().clone());
            }
        }
        Ok(ExecutableGraph { raw, graph: self, kernels })
    }
}

/// Fields of a copy, none of which says anything.
fn empty_copy() -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: ptr::null(),
        srcDevice: 0,
        srcArray: ptr::null_mut(),
        reserved0: ptr::null_mut(),
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: ptr::null_mut(),
        dstDevice: 0,
        dstArray: ptr::null_mut(),
        reserved1: ptr::null_mut(),
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: 0,
        Height: 0,
        Depth: 0,
    }
}

impl Drop for Graph {
    /// Errors stay unseen: nobody is left to tell, and the next use of the GPU reports the same error.
    fn drop(&mut self) {
        if !self.is_left && self.gpu.bind().is_ok() {
            // SAFETY: the graph is of the context that is current now, and this was its last use.
            let _ = self.gpu.call(|| unsafe { sys::cuGraphDestroy(self.raw) });
        }
    }
}

/// A graph that can be launched.
#[derive(Debug)]
pub struct ExecutableGraph {
    raw: CUgraphExec,
    /// Its nodes name those whose arguments change.
    graph: Graph,
    /// The names of its kernels, each once.
    kernels: Vec<Arc<str>>,
}

// SAFETY: the driver's functions may be called with it from any thread on which its context is current.
unsafe impl Send for ExecutableGraph {}
// SAFETY: as for `Send`; launches at the same time are the driver's to put in order, and what changes it takes `&mut`.
unsafe impl Sync for ExecutableGraph {}

impl ExecutableGraph {
    /// Starts all nodes on the stream of `gpu`, behind everything that was started there, and behind the graph's earlier launches. This
    /// does not wait.
    ///
    /// # Errors
    /// [`Error::ContextLost`] if an earlier kernel has failed; [`Error::Call`].
    ///
    /// # Safety
    /// `gpu` is a handle of the same GPU; what the nodes do with their memory is defined now: see where they were added.
    pub unsafe fn launch(&self, gpu: &Gpu) -> Result<(), Error> {
        gpu.bind()?;
        // SAFETY: the graph and the stream are of the context that is current now; the rest is the caller's promise.
        gpu.call(|| unsafe { sys::cuGraphLaunch(self.raw, gpu.stream()) })?;
        self.kernels.iter().for_each(|kernel| gpu.has_launched(kernel));
        Ok(())
    }

    /// Leaves the graph with the driver for as long as the process runs: for one of which nobody can tell whether it still runs.
    pub fn leave(mut self) {
        self.graph.is_left = true;
    }

    /// Gives the launch of this number other arguments, another grid, or another block, from the next launch of the graph on.
    ///
    /// # Errors
    /// Those of [`Function::launch`]; [`Error::Call`] if the driver refuses another kernel there.
    ///
    /// # Safety
    /// As for [`Graph::add_launch`].
    ///
    /// # Panics
    /// If there is no node of this number, or it is none of a kernel.
    pub unsafe fn set_launch(&mut self, number: usize, mut launch: GraphLaunch<'_>) -> Result<(), Error> {
        let GraphLaunch { function, grid, block, dynamic_shared_bytes, .. } = launch;
        let gpu = &self.graph.gpu;
        function.prepare_launch(gpu, grid, block, dynamic_shared_bytes)?;
        let node = &self.graph.nodes[number];
        let (Some(raw), Some(_)) = (node.raw, &node.function) else { panic!("node {number} is no launch") };
        let params = launch.params();
        // SAFETY: the node is of this graph; what the kernel does is the caller's promise.
        let set = gpu.call(|| unsafe { sys::cuGraphExecKernelNodeSetParams(self.raw, raw, &raw const params) });
        set.map_err(|error| function.launch_error(error, grid, block, dynamic_shared_bytes))?;
        self.graph.nodes[number].function = Some(function.clone());
        Ok(())
    }
}

impl Drop for ExecutableGraph {
    /// Errors stay unseen, as for [`Graph`]. Who drops it has waited for its launches.
    fn drop(&mut self) {
        if !self.graph.is_left && self.graph.gpu.bind().is_ok() {
            // SAFETY: it is of the context that is current now, and this was its last use.
            let _ = self.graph.gpu.call(|| unsafe { sys::cuGraphExecDestroy(self.raw) });
        }
    }
}
