//! `cargo xtask browser`: opens the repository's pages in a browser without a window, and looks for what a reader would find.
//!
//! ```text
//!  each page ┬ light, dark ┬ 400 px ┬ no complaint in the console, no request to the network
//!            │             └ 1400 px┤ no page wider than its window, no text in pictures that covers other text
//!            │                      └ axe finds nothing, with tables closed and open
//!            ├ the switch of colours, the keyboard, the script
//!            ├ without a script: all tables are shown
//!            └ on paper: a PDF
//! ```
//!
//! A page with faults comes first, and each of them has to be found: what says nothing of faults says nothing of a page either. The
//! browser is Debian's chromium, axe comes from npm, in the version of `xtask/browser/package-lock.json`; neither becomes part of what is
//! built. What is missing is installed where that is possible.

mod devtools;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::workspace::{command, first_line, root, target_dir};
use devtools::Browser;

/// The options of `browser`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Pages to open [default: those of the repository].
    pages: Vec<PathBuf>,
    /// Leave pictures of them here: light and dark, 400 and 1400 pixels wide.
    #[arg(long, value_name = "DIR")]
    screenshots: Option<PathBuf>,
}

/// The repository's pages.
const PAGES: [&str; 1] = ["docs/results/report.html"];

/// A page with all sections, by files whose figures are made up: below the target directory.
const SAMPLE: &str = "browser/sample.html";

/// The page with faults, and a part of what has to be said of each.
const FAULTY: &str = "xtask/browser/faulty.html";
const PLANTED: [&str; 15] = [
    "console: error",
    "exception: ReferenceError",
    "network: the page asks for http://127.0.0.1:9/",
    "pixels wide in a window of",
    "covers",
    "leaves the picture",
    "color-contrast",
    "html-has-lang",
    "a table is not shown",
    "has no caption",
    "the keyboard does not",
    "the switch to dark changes nothing",
    "tables of figures are open at first",
    "the filter hides nothing",
    "on paper: the page is",
];

const AXE: &str = "node_modules/axe-core/axe.min.js";
const CHECKS: &str = include_str!("../../browser/checks.js");
const THEMES: [&str; 2] = ["light", "dark"];
const WIDTHS: [u32; 2] = [400, 1400];

/// What is installed, and how to get it by hand.
const ADVICE: &str = "apt-get install chromium npm, then cargo xtask browser; another browser is named by the environment variable CHROMIUM";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (program, axe) = prepare()?;
    let start = Instant::now();
    let mut browser = Browser::start(&program)?;
    let mut checker = Checker { browser: &mut browser, axe: &axe, screenshots: arguments.screenshots.as_deref() };
    let planted = Checker { screenshots: None, ..checker.again() }.page(&root().join(FAULTY))?;
    let missed: Vec<_> =
        PLANTED.into_iter().filter(|fault| !planted.iter().any(|found| found.contains(fault))).collect();
    if !missed.is_empty() {
        bail!("faults of {FAULTY} are not found: {}; what is: {}", missed.join(", "), planted.join("\n  "));
    }
    println!("{FAULTY}: all {} planted faults are found", PLANTED.len());

    let pages = match arguments.pages.as_slice() {
        [] => PAGES.iter().map(|page| root().join(page)).chain([sample()?]).collect(),
        pages => pages.to_vec(),
    };
    let mut failed = 0;
    for page in pages {
        let page = page.canonicalize().with_context(|| format!("there is no page {}", page.display()))?;
        let faults = checker.page(&page)?;
        failed += faults.len();
        println!(
            "{}: {}",
            page.display(),
            if faults.is_empty() { "nothing to complain of".to_owned() } else { format!("{} faults", faults.len()) }
        );
        faults.iter().for_each(|fault| println!("  {fault}"));
    }
    println!("took {:.1} s", start.elapsed().as_secs_f64());
    if failed > 0 { bail!("{failed} faults in pages") } else { Ok(()) }
}

/// Writes the sample of a report.
fn sample() -> anyhow::Result<PathBuf> {
    let path = target_dir().join(SAMPLE);
    let results = pages::results::Results::read(pages::results::SAMPLES)?;
    fs::write(&path, pages::sections::report(&results)).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The browser, and axe's source; both are installed first where that is possible and necessary.
///
/// # Errors
/// What is missing, and how to get it.
pub(crate) fn prepare() -> anyhow::Result<(String, String)> {
    let program = match find() {
        Some(program) => program,
        None => {
            install(&["chromium"])?;
            find().with_context(|| format!("there is no browser: {ADVICE}"))?
        }
    };
    // npm wants a directory of its own.
    let (from, to) = (root().join("xtask/browser"), target_dir().join("browser"));
    let source = to.join(AXE);
    let lock = fs::read_to_string(from.join("package-lock.json"))?;
    let is_there =
        fs::read_to_string(to.join("package-lock.json")).is_ok_and(|stored| stored == lock) && source.is_file();
    if !is_there {
        if first_line(command("npm", &["--version"])).is_none() {
            install(&["npm"])?;
        }
        fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
        for file in ["package.json", "package-lock.json"] {
            fs::copy(from.join(file), to.join(file))
                .with_context(|| format!("cannot copy {file} to {}", to.display()))?;
        }
        let mut npm = command("npm", &["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
        let status =
            npm.current_dir(&to).status().with_context(|| format!("there is no npm to get axe by: {ADVICE}"))?;
        if !status.success() {
            bail!("npm has not got axe ({status}): {ADVICE}");
        }
    }
    let axe = fs::read_to_string(&source).with_context(|| format!("npm has left no {}", source.display()))?;
    Ok((program, axe))
}

/// A browser that starts.
fn find() -> Option<String> {
    let names = match env::var("CHROMIUM") {
        Ok(name) => vec![name],
        Err(_) => ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned).into(),
    };
    names.into_iter().find(|name| first_line(command(name, &["--version"])).is_some())
}

/// Installs Debian packages where this user may.
fn install(packages: &[&str]) -> anyhow::Result<()> {
    let has_apt = first_line(command("apt-get", &["--version"])).is_some();
    let Some(commands) = workbench::apt(packages).filter(|_| has_apt) else {
        bail!("missing: {}, and this user cannot install them here: {ADVICE}", packages.join(", "));
    };
    for mut command in commands {
        let status =
            command.status().with_context(|| format!("there is no way to {}: {ADVICE}", packages.join(", ")))?;
        if !status.success() {
            bail!("{} could not be installed ({status}): {ADVICE}", packages.join(", "));
        }
    }
    Ok(())
}

/// What looks at pages.
struct Checker<'a> {
    browser: &'a mut Browser,
    axe: &'a str,
    screenshots: Option<&'a Path>,
}

impl Checker<'_> {
    fn again(&mut self) -> Checker<'_> {
        Checker { browser: self.browser, axe: self.axe, screenshots: self.screenshots }
    }

    /// What is wrong with a page.
    fn page(&mut self, page: &Path) -> anyhow::Result<Vec<String>> {
        let mut faults = Vec::new();
        for theme in THEMES {
            for width in WIDTHS {
                let found = self.looked_at(page, theme, width)?;
                faults.extend(found.into_iter().map(|fault| format!("{theme}, {width} px: {fault}")));
            }
        }
        faults.extend(self.switched(page)?);
        faults.extend(self.by_keyboard(page)?);
        self.browser.look("light", 1400)?;
        self.browser.open(page)?;
        faults.extend(self.check("script()")?);
        faults.extend(self.without_script(page)?);
        faults.extend(self.on_paper(page)?);
        Ok(faults)
    }

    /// One of the page's own checks.
    fn check(&mut self, call: &str) -> anyhow::Result<Vec<String>> {
        let found = self.browser.value_of(&format!("({}).{call}", CHECKS.trim()))?;
        let found = found.as_array().with_context(|| format!("{call} has not given a list: {found}"))?;
        Ok(found.iter().map(|fault| fault.as_str().unwrap_or_default().to_owned()).collect())
    }

    /// Keeps what a page looks like, where that was asked for.
    fn keep(&self, page: &Path, what: &str, content: &[u8]) -> anyhow::Result<()> {
        let Some(directory) = self.screenshots else { return Ok(()) };
        let name = page.file_stem().unwrap_or_default().to_string_lossy();
        let file = directory.join(format!("{name}-{what}"));
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(&file, content))
            .with_context(|| format!("cannot write {}", file.display()))
    }

    fn axe(&mut self) -> anyhow::Result<Vec<String>> {
        if self.browser.value_of("typeof axe")? != "object" {
            self.browser.value_of(&format!("{}; 0", self.axe))?;
        }
        self.check("axe()")
    }

    /// In a window of this width, in these colours.
    fn looked_at(&mut self, page: &Path, theme: &str, width: u32) -> anyhow::Result<Vec<String>> {
        self.browser.look(theme, width)?;
        self.browser.open(page)?;
        let mut faults = self.browser.complaints();
        for call in ["layout()", "pictures()", "structure()"] {
            faults.extend(self.check(call)?);
        }
        if self.screenshots.is_some() {
            let picture = self.browser.picture()?;
            self.keep(page, &format!("{theme}-{width}.png"), &picture)?;
        }
        faults.extend(self.axe()?);
        // What is closed is not looked at: everything is opened for a second look.
        self.browser.value_of("for (const one of document.querySelectorAll('details')) one.open = true; 0")?;
        faults.extend(self.check("layout()")?);
        faults.extend(self.axe()?);
        faults.dedup();
        Ok(faults)
    }

    /// By the page's own switch of colours, against what the system has.
    fn switched(&mut self, page: &Path) -> anyhow::Result<Vec<String>> {
        let mut faults = Vec::new();
        self.browser.look("light", 1400)?;
        self.browser.open(page)?;
        if self.browser.value_of("document.getElementById('theme-dark') === null")? == true {
            return Ok(faults);
        }
        let ground = "getComputedStyle(document.body).backgroundColor";
        for (system, other) in [("light", "dark"), ("dark", "light")] {
            self.browser.look(system, 1400)?;
            self.browser.open(page)?;
            let before = self.browser.value_of(ground)?;
            self.browser.value_of(&format!("document.getElementById('theme-{other}').click(); 0"))?;
            if self.browser.value_of(ground)? == before {
                faults.push(format!("the switch to {other} changes nothing where the system has {system}"));
            }
            faults.extend(self.axe()?.into_iter().map(|fault| format!("switched to {other}: {fault}")));
        }
        Ok(faults)
    }

    /// The first key leads to the link that skips what stands before the page's own matter, and that link there.
    fn by_keyboard(&mut self, page: &Path) -> anyhow::Result<Vec<String>> {
        self.browser.open(page)?;
        self.browser.press("Tab", 9)?;
        let first = self.browser.value_of("document.activeElement.getAttribute('href')")?;
        let mut faults = Vec::new();
        match first.as_str().and_then(|link| link.strip_prefix('#')) {
            Some(id) => {
                self.browser.press("Enter", 13)?;
                let reached = self.browser.value_of("document.activeElement.id")?;
                if reached != id {
                    faults
                        .push(format!("the keyboard does not reach #{id} by the link that skips to it, but {reached}"));
                }
            }
            None => faults.push("the keyboard does not come to a link that skips the head first".to_owned()),
        }
        // Everything that can be used shows that it has the focus.
        let unseen = "[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex=\"0\"]')]\
                      .filter((one) => one.getClientRects().length && !one.closest('[hidden]') && one.tabIndex < 0).length";
        let unseen = self.browser.value_of(unseen)?.as_u64().unwrap_or_default();
        if unseen > 0 {
            faults.push(format!("the keyboard does not reach {unseen} elements"));
        }
        Ok(faults)
    }

    /// Without a script, all is there.
    fn without_script(&mut self, page: &Path) -> anyhow::Result<Vec<String>> {
        self.browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }))?;
        self.browser.open(page)?;
        let mut faults = self.check("tables()")?;
        faults.extend(self.check("layout()")?);
        self.browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": false }))?;
        Ok(faults.into_iter().map(|fault| format!("without a script: {fault}")).collect())
    }

    /// On paper, as wide as A4 is between its margins, for a reader whose system is dark.
    fn on_paper(&mut self, page: &Path) -> anyhow::Result<Vec<String>> {
        self.browser.look("dark", 717)?;
        let features = json!([{ "name": "prefers-color-scheme", "value": "dark" }]);
        self.browser.call("Emulation.setEmulatedMedia", json!({ "media": "print", "features": features }))?;
        self.browser.open(page)?;
        // What a browser says to a page that it is about to print.
        self.browser.value_of("dispatchEvent(new Event('beforeprint')); 0")?;
        let mut faults = Vec::new();
        let ground = self.browser.value_of("getComputedStyle(document.body).backgroundColor")?;
        if ![Value::from("rgb(255, 255, 255)"), Value::from("rgba(0, 0, 0, 0)")].contains(&ground) {
            faults.push(format!("on paper: the ground is {ground}, which takes ink"));
        }
        let hidden = self.check("tables()")?.into_iter().chain(self.check("layout()")?);
        faults.extend(hidden.map(|fault| format!("on paper: {fault}")));
        if self.screenshots.is_some() {
            let picture = self.browser.picture()?;
            self.keep(page, "paper.png", &picture)?;
        }
        let pdf = self.browser.printed()?;
        if !pdf.starts_with(b"%PDF-") || pdf.len() < 2000 {
            faults.push(format!("on paper: {} bytes that are no PDF", pdf.len()));
        }
        self.keep(page, "paper.pdf", &pdf)?;
        Ok(faults)
    }
}
