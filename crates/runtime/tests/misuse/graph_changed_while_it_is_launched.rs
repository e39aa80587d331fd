//! One thread cannot replace a launch of a graph while another launches it.

use cuda_std::executor::Checks;
use cuda_std::prelude::*;
use tilewright_runtime::{Device, Error, Graph};

#[kernel(block = 32, grid = 1)]
fn read(x: GlobalSlice<'_, f32>) {
    let _ = x.len();
}

fn change(graph: &Graph, x: GlobalSlice<'_, f32>) -> Result<(), Error> {
    graph.set_launch(0, read { x })
}

fn main() -> Result<(), Error> {
    let device = Device::cpu(Checks::Bounds);
    let buffer = device.upload(&[1.0f32])?;
    let mut builder = device.new_graph()?;
    builder.launch(read { x: buffer.view() })?;
    let graph = builder.finish()?;
    std::thread::scope(|scope| {
        scope.spawn(|| device.launch_graph(&graph));
        change(&graph, buffer.view())
    })
}
