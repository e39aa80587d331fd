//! Extents and positions in a grid or a block.

/// Three extents (of a grid, in blocks; of a block, in threads) or the three coordinates of a position in one.
///
/// As in CUDA, `x` runs fastest: consecutive threads of a warp have consecutive `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim3 {
    /// The fastest-running dimension.
    pub x: u32,
    /// The second dimension.
    pub y: u32,
    /// The slowest dimension.
    pub z: u32,
}

impl Dim3 {
    /// Extents or coordinates from their three numbers.
    pub const fn new(x: u32, y: u32, z: u32) -> Self {
        Self { x, y, z }
    }

    /// The number of positions in a volume of these extents.
    pub const fn volume(self) -> u128 {
        self.x as u128 * self.y as u128 * self.z as u128
    }
}

impl From<u32> for Dim3 {
    fn from(x: u32) -> Self {
        Self::new(x, 1, 1)
    }
}

impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Self {
        Self::new(x, y, 1)
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self::new(x, y, z)
    }
}

impl From<[u32; 3]> for Dim3 {
    fn from([x, y, z]: [u32; 3]) -> Self {
        Self::new(x, y, z)
    }
}

impl From<Dim3> for [u32; 3] {
    fn from(Dim3 { x, y, z }: Dim3) -> Self {
        [x, y, z]
    }
}

impl core::fmt::Display for Dim3 {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "({}, {}, {})", self.x, self.y, self.z)
    }
}
