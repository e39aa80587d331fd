//! Random programs of launches, copies, fills, events, graphs and looks at the host's memory, on a device and three streams.
//!
//! A program is what [`run`] does with the random numbers of its seed, which do not depend on what comes out. So the same seed does the
//! same on the CPU executor, where everything runs in the order of the program, and on a GPU; and what comes out has to be the same.

use runtime::{Buffer, Device, Error, Event, Graph, GraphBuilder, HostBuffer, Stream, StreamPriority};

use super::kernels::mix;

/// The elements of every buffer.
const LEN: usize = 300;
const BUFFERS: usize = 4;
const STREAMS: usize = 3;
/// The things that a program does.
const STEPS: usize = 40;

/// What a program runs on, and how its launches are.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most rounds of a launch, so how long one may take.
    pub rounds: u32,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Two different numbers below `end`.
    fn two(&mut self, end: usize) -> [usize; 2] {
        let first = self.below(end);
        [first, (first + 1 + self.below(end - 1)) % end]
    }
}

/// What has been seen of the buffers, FNV-1a.
struct Seen(u64);

impl Seen {
    fn see(&mut self, values: &[u32]) {
        for value in values {
            self.0 = (self.0 ^ u64::from(*value)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

/// A program that is running.
struct Program<'a> {
    device: &'a Device,
    limits: Limits,
    random: Random,
    seen: Seen,
    streams: Vec<Stream>,
    buffers: Vec<Buffer<u32>>,
    hosts: Vec<HostBuffer<u32>>,
    events: Vec<Event>,
    /// With the numbers of the steps that are launches.
    graph: Option<(Graph, Vec<usize>)>,
}

/// Runs the program of a seed, and returns what was seen: on every device the same.
///
/// # Errors
/// Those of the device.
pub fn run(device: &Device, seed: u64, limits: Limits) -> Result<u64, Error> {
    let new_stream = |number| {
        let priority = if number == 0 { StreamPriority::High } else { StreamPriority::Normal };
        device.new_stream_with_priority(priority)
    };
    let buffer = |number: usize| device.upload(&(0..LEN).map(|i| (i + 1000 * number) as u32).collect::<Vec<_>>());
    let mut program = Program {
        device,
        limits,
        random: Random(seed),
        seen: Seen(0xCBF2_9CE4_8422_2325),
        streams: (0..STREAMS).map(new_stream).collect::<Result<_, _>>()?,
        buffers: (0..BUFFERS).map(buffer).collect::<Result<_, _>>()?,
        hosts: (0..2).map(|_| device.allocate_on_host(LEN)).collect::<Result<_, _>>()?,
        events: Vec::new(),
        graph: None,
    };
    for _ in 0..STEPS {
        program.step()?;
    }
    program.see_everything()?;
    Ok(program.seen.0)
}

impl Program<'_> {
    fn step(&mut self) -> Result<(), Error> {
        let on = self.random.below(STREAMS + 1);
        let on: &Device = self.streams.get(on).map_or(self.device, |stream| stream);
        let Self { random, .. } = self;
        match random.below(28) {
            0..8 => {
                let (numbers, arguments) = (random.two(BUFFERS), arguments(random, self.limits));
                on.launch(launch(&mut self.buffers, numbers, arguments))?;
            }
            8..10 => on.copy_to_device(&self.hosts[random.below(2)], &mut self.buffers[random.below(BUFFERS)])?,
            10..13 => on.copy_to_host(&self.buffers[random.below(BUFFERS)], &mut self.hosts[random.below(2)])?,
            13 => {
                let [from, to] = pair(&mut self.buffers, random.two(BUFFERS));
                on.copy_on_device(from, to)?;
            }
            14 => on.fill_bytes(&mut self.buffers[random.below(BUFFERS)], random.next() as u8)?,
            15..17 => {
                let value = random.next() as u32;
                self.hosts[random.below(2)].as_mut_slice()?.iter_mut().for_each(|x| *x = x.wrapping_mul(31) ^ value);
            }
            17 => self.seen.see(self.hosts[random.below(2)].as_slice()?),
            18 => self.events.push(on.record_event()?),
            19 => {
                if let Some(event) = self.events.get(random.below(self.events.len().max(1))) {
                    on.wait_for(event)?;
                }
            }
            20 => {
                if let Some(event) = self.events.pop() {
                    event.synchronize()?;
                    assert!(event.has_happened()?);
                }
            }
            21 => {
                // Another buffer, most likely where this one was.
                let number = random.below(BUFFERS);
                let value = random.next() as u32;
                drop(self.buffers.remove(number));
                self.buffers.insert(number, on.allocate(LEN)?);
                self.buffers[number].copy_from(&[value; LEN])?;
            }
            22 => self.new_graph()?,
            23..25 => {
                if let Some((graph, _)) = &self.graph {
                    match on.launch_graph(graph) {
                        Err(Error::DeadGraphBuffer { .. }) => self.seen.see(&[1]),
                        result => result?,
                    }
                }
            }
            25 => {
                let (numbers, arguments) = (random.two(BUFFERS), arguments(random, self.limits));
                let which = random.below(8);
                if let Some((graph, launches)) = &mut self.graph
                    && let Some(step) = launches.get(which)
                {
                    match graph.set_launch(*step, launch(&mut self.buffers, numbers, arguments)) {
                        Err(Error::GraphStep { .. }) => self.seen.see(&[2]),
                        result => result?,
                    }
                }
            }
            26 => {
                let mut values = [0; LEN];
                self.buffers[random.below(BUFFERS)].copy_to(&mut values)?;
                self.seen.see(&values);
            }
            _ => {
                // What its stream was given goes on.
                let number = random.below(STREAMS);
                let is_waiting = random.below(2) == 0;
                if is_waiting {
                    on.synchronize()?;
                } else {
                    self.streams[number] = self.device.new_stream()?;
                }
            }
        }
        Ok(())
    }

    fn new_graph(&mut self) -> Result<(), Error> {
        let (mut builder, mut launches): (GraphBuilder, _) = (self.device.new_graph()?, Vec::new());
        let Self { random, .. } = self;
        for _ in 0..1 + random.below(6) {
            let numbers = random.two(BUFFERS);
            match random.below(6) {
                0 => {
                    let [from, to] = pair(&mut self.buffers, numbers);
                    builder.copy_on_device(from, to)?;
                }
                1 => builder.fill_bytes(&mut self.buffers[numbers[0]], random.next() as u8)?,
                _ => {
                    launches.push(builder.len());
                    let arguments = arguments(random, self.limits);
                    builder.launch(launch(&mut self.buffers, numbers, arguments))?;
                }
            }
        }
        self.graph = Some((builder.finish()?, launches));
        Ok(())
    }

    fn see_everything(&mut self) -> Result<(), Error> {
        for buffer in &self.buffers {
            let mut values = [0; LEN];
            buffer.copy_to(&mut values)?;
            self.seen.see(&values);
        }
        for host in &self.hosts {
            self.seen.see(host.as_slice()?);
        }
        Ok(())
    }
}

/// A factor and rounds.
fn arguments(random: &mut Random, limits: Limits) -> [u32; 2] {
    // Short launches and long ones.
    let most = (limits.rounds >> random.below(8)).max(1);
    [random.next() as u32 | 1, 1 + random.below(most as usize) as u32]
}

fn launch(buffers: &mut [Buffer<u32>], numbers: [usize; 2], [factor, rounds]: [u32; 2]) -> mix<'_> {
    let [x, y] = pair(buffers, numbers);
    mix { factor, rounds, x: x.view(), y: y.view_disjoint() }
}

/// Two different buffers.
fn pair(buffers: &mut [Buffer<u32>], numbers: [usize; 2]) -> [&mut Buffer<u32>; 2] {
    buffers.get_disjoint_mut(numbers).expect("the numbers are different")
}
