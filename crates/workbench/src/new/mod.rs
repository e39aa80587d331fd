//! `cargo tilewright new`: a crate of kernels outside of this repository, with an operation, its tests, and a program.
//!
//! ```text
//!  DIR/Cargo.toml  build.rs  src/main.rs  tests/operation.rs        the program
//!  DIR/kernels/Cargo.toml  clippy.toml  build.rs  src/lib.rs        kernel and operation
//! ```
//!
//! Its dependencies are the crates of this repository, by their path. Everything is written into a directory beside DIR, which then
//! takes its name: nobody sees a crate that is half there.

pub(crate) mod writing;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::place::repository;
use crate::project::sources::entry_points;

/// The options of `new`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where to write the crate: its last part is the crate's name
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// The kernel to begin with
    #[arg(long, value_enum, default_value_t = Kernel::Elementwise)]
    kernel: Kernel,

    /// Print JSON: where the crate is, and what its kernel and its operation are called.
    #[arg(long)]
    json: bool,
}

/// A kernel to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kernel {
    /// One thread for each element: the sum of two arrays, negative ones made zero.
    Elementwise,
    /// One block for each sum: the rows of a matrix.
    Reduce,
    /// Tiles in shared memory: the transpose of a matrix.
    Tile,
}

impl Kernel {
    /// The source, and the name of its operation.
    fn template(self) -> (&'static str, &'static str) {
        match self {
            Self::Elementwise => (include_str!("template/kernels/elementwise.rs"), "AddRelu"),
            Self::Reduce => (include_str!("template/kernels/reduce.rs"), "RowSums"),
            Self::Tile => (include_str!("template/kernels/tile.rs"), "Transpose"),
        }
    }
}

impl Kernel {
    /// The name of the kernel in the source.
    fn name(self) -> &'static str {
        entry_points(self.template().0).next().expect("each template has a kernel")
    }
}

/// The lock file of an example, whose packages are the same but for the two of its own.
const LOCK: &str = include_str!("../../../../examples/01-axpy/Cargo.lock");
/// The name of that example.
const LOCKED: &str = "axpy";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let directory = create(&arguments.directory, arguments.kernel, repository(), is_from_repository())?;
    let (shown, kernel) = (directory.display(), arguments.kernel.name());
    if arguments.json {
        println!("{}", serde_json::json!({ "directory": directory, "kernel": kernel }));
        return Ok(());
    }
    println!("{shown} is a crate of kernels with a program. In it:\n");
    println!("    cargo test                       # all cases on the CPU executor, with all its checks");
    println!("    cargo run                        # the same, and on a GPU if there is one");
    println!("    cargo tilewright watch {kernel:<9} # the same after every save, and what the kernel was compiled to");
    println!("\nkernels/src/lib.rs has the kernel and its operation.");
    Ok(())
}

/// Whether this program is run where cargo has built it, and not as it was installed. Then `cargo tilewright` is a command in the repository
/// alone, and the crate needs to say what it is.
pub(crate) fn is_from_repository() -> bool {
    is_built_by_cargo(&std::env::current_exe().unwrap_or_default())
}

/// Whether a program lies where cargo builds. The tag is written with a target directory that cargo makes itself, and not into one that it finds,
/// such as a volume of a container; the lock is in the directory of the profile in any case.
fn is_built_by_cargo(program: &Path) -> bool {
    program.with_file_name(".cargo-lock").is_file()
        || program.ancestors().any(|directory| directory.join("CACHEDIR.TAG").is_file())
}

/// The file that makes `cargo tilewright` an alias in a crate, and its text.
pub(crate) fn alias(repository: &str) -> (&'static str, String) {
    let manifest = format!("{repository}/Cargo.toml");
    let words = ["run", "--quiet", "--manifest-path", &manifest, "--package", "tilewright-workbench", "--"];
    // In a directory of the repository it takes the place of the repository's own alias, a string, which cargo joins with no array. Only an array
    // can have a path with a space.
    let alias =
        if manifest.contains(char::is_whitespace) { format!("{words:?}") } else { format!("{:?}", words.join(" ")) };
    let text = include_str!("template/config.toml").replace("{{repository}}", repository).replace("{{alias}}", &alias);
    (".cargo/config.toml", text)
}

/// Writes a crate into a directory, which is not there yet or empty; where it is.
fn create(directory: &Path, kernel: Kernel, repository: &Path, with_alias: bool) -> anyhow::Result<PathBuf> {
    let directory = std::path::absolute(directory).context("the directory has no name")?;
    let shown = directory.display();
    let name = directory.file_name().with_context(|| format!("{shown} has no name that a crate could have"))?;
    let name = name.to_str().filter(|name| is_name(name)).with_context(|| {
        format!(
            "{} cannot be the name of a crate: use small letters, digits, `-` and `_`, beginning with a letter, and no keyword",
            name.display()
        )
    })?;
    let lock = lock(name);
    let is_clear = |name: &str| lock.matches(&format!("\nname = {name:?}\n")).count() == 1;
    ensure!(
        is_clear(name) && is_clear(&format!("{name}-kernels")) && !["runtime", "testkit"].contains(&name),
        "`{name}` is the name of a crate that the program needs: choose another"
    );
    let repository = writing::for_manifest(repository)?;
    let (source, operation) = kernel.template();
    let fill = |template: &str| {
        let text = template.replace("{{name}}", name).replace("{{crate}}", &name.replace('-', "_"));
        let text = text.replace("{{repository}}", repository).replace("{{Operation}}", operation);
        text.replace("{{kernel}}", kernel.name())
    };
    let alias = with_alias.then(|| alias(repository));
    let mut files = vec![
        ("Cargo.toml", fill(include_str!("template/Cargo.toml"))),
        ("Cargo.lock", lock),
        ("README.md", fill(include_str!("template/README.md"))),
        ("rust-toolchain.toml", include_str!("../../../../rust-toolchain.toml").to_owned()),
        (".gitignore", fill(include_str!("template/gitignore"))),
        ("build.rs", fill(include_str!("template/build.rs"))),
        ("src/main.rs", fill(include_str!("template/main.rs"))),
        ("tests/operation.rs", fill(include_str!("template/operation.rs"))),
        ("kernels/Cargo.toml", fill(include_str!("template/kernels/Cargo.toml"))),
        // Methods of std that a kernel must not call, as for the kernels of this repository.
        ("kernels/clippy.toml", include_str!("../../../../gpu-kernels/clippy.toml").to_owned()),
        ("kernels/build.rs", fill(include_str!("template/kernels/build.rs"))),
        ("kernels/src/lib.rs", source.to_owned()),
    ];
    files.extend(alias);
    writing::write_crate(&directory, &files)?;
    Ok(directory)
}

/// Whether a package can be called that.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
        && !is_taken(name)
}

/// Whether a word is a keyword, or the name of a crate or of a directory of cargo's that is always there.
fn is_taken(word: &str) -> bool {
    const TAKEN: &str = "abstract alloc as async await become box break const continue core crate do dyn else enum extern false \
        final fn for gen if impl in let loop macro match mod move mut override priv proc_macro pub ref return self static std struct \
        super test trait true try type typeof unsafe unsized use virtual where while yield build deps examples incremental";
    TAKEN.split_whitespace().any(|taken| taken == word)
}

/// The lock file of a crate of this name. Cargo does not mind the order.
fn lock(name: &str) -> String {
    let of_kernels = LOCK.replace(&format!("\"{LOCKED}-kernels\""), &format!("\"{name}-kernels\""));
    of_kernels.replace(&format!("\"{LOCKED}\""), &format!("\"{name}\""))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Command, Output};

    use clap::ValueEnum as _;

    use super::*;

    /// Runs cargo in a crate, with the target directory of the repository: its dependencies are the same.
    fn cargo(directory: &Path, arguments: &[&str]) -> Output {
        let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
        cargo.args(arguments).args(["--locked", "--offline", "--target-dir"]).arg(repository().join("target"));
        cargo.current_dir(directory).output().unwrap()
    }

    #[test]
    fn what_it_writes_passes_its_tests_and_runs() {
        let place = tempfile::tempdir().unwrap();
        for kernel in Kernel::value_variants() {
            // One is called as the example whose lock file it gets.
            let name = if *kernel == Kernel::Elementwise { LOCKED.to_owned() } else { format!("my-{kernel:?}") };
            let name = name.to_lowercase();
            let directory = place.path().join(&name);
            // An empty directory will do.
            if *kernel == Kernel::Tile {
                fs::create_dir(&directory).unwrap();
            }
            assert_eq!(create(&directory, *kernel, repository(), true).unwrap(), directory);
            for arguments in [&["test", "--workspace"][..], &["run"]] {
                let output = cargo(&directory, arguments);
                let (text, messages) =
                    (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                assert!(output.status.success(), "{name}: {arguments:?}: {text}\n{messages}");
                assert!(!messages.contains("warning"), "{name}: {messages}");
                assert!(text.contains("every_case_is_right ... ok") || text.contains("cases right"), "{name}: {text}");
            }
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 3, "nothing else is left");
    }

    /// By itself, because nothing has to be built for it.
    #[test]
    fn what_it_writes_is_formatted_and_says_what_cargo_tilewright_is_where_nobody_else_does() {
        let place = tempfile::tempdir().unwrap();
        for (kernel, with_alias) in Kernel::value_variants().iter().zip([true, false, true]) {
            let directory = create(&place.path().join(kernel.name()), *kernel, repository(), with_alias).unwrap();
            let mut format = Command::new("cargo");
            let format = format.args(["fmt", "--all", "--check"]).current_dir(&directory).output().unwrap();
            assert!(format.status.success(), "{kernel:?}: {}", String::from_utf8_lossy(&format.stdout));
            assert_eq!(directory.join(".cargo/config.toml").is_file(), with_alias);
            let readme = fs::read_to_string(directory.join("README.md")).unwrap();
            assert!(readme.contains(&format!("cargo tilewright watch {}", kernel.name())), "{readme}");
        }
        let config = fs::read_to_string(place.path().join("add_relu/.cargo/config.toml")).unwrap();
        let manifest = repository().join("Cargo.toml");
        assert!(config.contains(&format!(" --manifest-path {} ", manifest.display())), "{config}");
    }

    #[test]
    fn a_program_that_cargo_has_built_is_known_as_such_and_an_installed_one_is_not() {
        let place = tempfile::tempdir().unwrap();
        let in_directory = |name: &str| {
            fs::create_dir_all(place.path().join(name)).unwrap();
            place.path().join(name).join("cargo-tilewright")
        };
        let (tagged, found, installed) = (in_directory("made/debug"), in_directory("found/debug"), in_directory("bin"));
        fs::write(place.path().join("made/CACHEDIR.TAG"), "").unwrap();
        fs::write(place.path().join("found/debug/.cargo-lock"), "").unwrap();
        assert!(is_built_by_cargo(&tagged), "by the tag");
        assert!(is_built_by_cargo(&found), "in a target directory that was there before cargo");
        assert!(!is_built_by_cargo(&installed));
    }

    #[test]
    fn the_alias_takes_the_place_of_the_repositorys_in_a_directory_of_it() {
        let target = repository().join("target");
        fs::create_dir_all(&target).unwrap();
        let place = tempfile::tempdir_in(target).unwrap();
        let (path, text) = alias("/elsewhere");
        fs::create_dir(place.path().join(".cargo")).unwrap();
        fs::write(place.path().join(path), text).unwrap();
        let output = Command::new("cargo").arg("--list").current_dir(place.path()).output().unwrap();
        let (list, messages) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(
            list.contains("alias: run --quiet --manifest-path /elsewhere/Cargo.toml --package"),
            "{list}{messages}"
        );
        assert!(alias("/a b").1.contains("\"--manifest-path\", \"/a b/Cargo.toml\", "), "an array, for a space");
    }

    /// On the CPU it would be another function than what a kernel can have on a GPU.
    #[test]
    fn a_method_of_std_in_a_kernel_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let directory = create(&place.path().join("clipped"), Kernel::Elementwise, repository(), false).unwrap();
        let clippy = || cargo(&directory, &["clippy", "--package", "clipped-kernels"]);
        let output = clippy();
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !messages.contains("warning"), "{messages}");

        let path = directory.join("kernels/src/lib.rs");
        let mut source = fs::read_to_string(&path).unwrap();
        // References are in f64, and may use it.
        source += "\npub fn reference(x: f64) -> f64 {\n    x.sqrt()\n}\n";
        source += "\npub fn f(x: f32) -> f32 {\n    x.exp() + f32::mul_add(x, x, x)\n}\n";
        fs::write(&path, source).unwrap();
        let output = clippy();
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && !messages.contains("disallowed method `f64::"), "{messages}");
        for (method, right) in
            [("f32::exp", "write `cuda_std::math::exp`"), ("f32::mul_add", "write `cuda_std::math::fma`")]
        {
            let about =
                messages.split("error: ").find(|about| about.contains(&format!("disallowed method `{method}`")));
            assert!(
                about.is_some_and(|about| about.contains(right) && about.contains("kernels/src/lib.rs:")),
                "{messages}"
            );
        }
    }

    #[test]
    fn all_crates_of_kernels_have_the_same_rules() {
        let rules = include_str!("../../../../gpu-kernels/clippy.toml");
        let examples =
            fs::read_dir(repository().join("examples")).unwrap().map(|entry| entry.unwrap().path().join("kernels"));
        let crates: Vec<_> = examples
            .filter(|path| path.is_dir())
            .chain(["crates/blocks", "course/kernels"].map(|path| repository().join(path)))
            .collect();
        assert!(crates.len() > 3, "{crates:?}");
        for path in crates.iter().map(|path| path.join("clippy.toml")) {
            assert!(
                fs::read_to_string(&path).is_ok_and(|text| text == rules),
                "copy gpu-kernels/clippy.toml to {path:?}"
            );
        }
        // What there is in place of a method is named.
        let files = fs::read_dir(repository().join("crates/cuda-std/src/math")).unwrap();
        let math: String = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
        for function in math.lines().filter_map(|line| line.strip_prefix("pub fn ")?.split('(').next()) {
            let is_of_std = rules.contains(&format!("\"f32::{function}\"")) || function == "fma";
            assert!(!is_of_std || rules.contains(&format!("write `cuda_std::math::{function}`")), "{function}");
        }
    }

    #[test]
    fn what_is_there_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("mine");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("notes"), "mine").unwrap();
        let message = create(&directory, Kernel::Tile, repository(), false).unwrap_err().to_string();
        assert!(message.contains("mine is there already, and is not empty"), "{message}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(
            create(&file, Kernel::Tile, repository(), false).unwrap_err().to_string().contains("cannot be a directory")
        );
        let nowhere = place.path().join("nowhere/crate1");
        assert!(
            create(&nowhere, Kernel::Tile, repository(), false)
                .unwrap_err()
                .to_string()
                .contains("make that directory first")
        );
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "nothing is left");
    }

    #[test]
    fn names_that_no_crate_can_have_are_refused() {
        let place = tempfile::tempdir().unwrap();
        for name in ["1st", "with space", "Upper", "fn", "test", "deps", "rayon", "runtime", "a.b", "-x"] {
            let message = create(&place.path().join(name), Kernel::Tile, repository(), false).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains("name of a crate"), "{name}: {message}");
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        assert!(create(Path::new("/"), Kernel::Tile, repository(), false).is_err());
    }
}
