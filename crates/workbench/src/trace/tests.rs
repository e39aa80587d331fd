//! The viewer, drawn into a buffer and compared with files. `TILEWRIGHT_BLESS=1` writes them anew.

use std::path::{Path, PathBuf};

use kernel_trace::Trace;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::app::App;
use super::source::Sources;
use super::{Arguments, keys, view};

/// A block of three warps: a producer with TMA, a consumer, and one that waits forever.
const EXAMPLE: &str = include_str!("testdata/example.json");

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/trace/testdata")
}

fn app() -> App {
    App::new(Trace::from_json(EXAMPLE).unwrap(), Sources::new(testdata()))
}

/// What is typed: letters, and names in angle brackets.
fn type_keys(app: &mut App, keys: &str) {
    let mut rest = keys;
    while let Some(first) = rest.chars().next() {
        let named = [
            ("<enter>", KeyCode::Enter),
            ("<back>", KeyCode::Backspace),
            ("<esc>", KeyCode::Esc),
            ("<right>", KeyCode::Right),
        ];
        let (length, code) = named
            .into_iter()
            .find(|(name, _)| rest.starts_with(name))
            .map_or((first.len_utf8(), KeyCode::Char(first)), |(name, code)| (name.len(), code));
        keys::press(app, KeyEvent::new(code, KeyModifiers::NONE));
        rest = &rest[length..];
    }
}

/// What is to be seen in a terminal of this size.
fn drawn(app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, app, true)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y: u16| {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        format!("{}\n", line.trim_end())
    };
    (0..height).map(line).collect()
}

fn compare(name: &str, found: &str) {
    let path = testdata().join(name);
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{} differs: TILEWRIGHT_BLESS=1 writes it anew", path.display());
}

#[test]
fn what_is_shown_is_what_the_files_have() {
    let mut app = app();
    compare("begin.txt", &drawn(&app, 80, 24));
    type_keys(&mut app, "jjj");
    compare("in-flight.txt", &drawn(&app, 80, 24));
    type_keys(&mut app, "f");
    compare("fault.txt", &drawn(&app, 80, 24));
    type_keys(&mut app, "?");
    compare("help.txt", &drawn(&app, 80, 24));
    type_keys(&mut app, "?g/wgmma<enter>");
    compare("wide.txt", &drawn(&app, 120, 40));
}

#[test]
fn keys_go_to_where_they_say() {
    let mut app = app();
    let mut at = |keys: &str| {
        type_keys(&mut app, keys);
        (app.at(), app.step().map(|step| step.kind.name()))
    };
    let is = |number, kind: &str| (number, Some(kind.to_owned()));
    assert_eq!(at("k"), (0, None), "there is nothing before the first");
    assert_eq!(at(" <right>"), is(2, "tma-load"));
    assert_eq!(at("b"), is(3, "wait"));
    assert_eq!(at("b"), is(5, "complete"));
    assert_eq!(at("B"), is(3, "wait"));
    assert_eq!(at("w"), is(6, "passed"));
    assert_eq!(at("W"), is(3, "wait"));
    assert_eq!(at("t"), is(4, "tma-loaded"));
    assert_eq!(at("/wgmmx<back>a<enter>"), is(7, "wgmma"));
    assert_eq!(at("n"), is(18, "wgmma"));
    assert_eq!(at("N"), is(7, "wgmma"));
    // By the text of a line of source.
    assert_eq!(at("g/let loaded<enter>"), is(1, "arrive"));
    assert_eq!(at("f"), is(23, "fault"));
    assert_eq!(at("G"), is(23, "fault"));
    assert_eq!(at("/nowhere<enter>"), is(23, "fault"));
    assert_eq!(app.message, "no `nowhere` behind here");
    type_keys(&mut app, "/<esc>");
    assert!(app.typed.is_none() && !app.has_ended);
    type_keys(&mut app, "/<back>");
    assert!(app.typed.is_none());
    type_keys(&mut app, "]g");
    assert_eq!(app.at(), 0);
    type_keys(&mut app, "q");
    assert!(app.has_ended);
}

#[test]
fn control_c_leaves_from_everywhere() {
    for before in ["", "/x", "?"] {
        let mut app = app();
        type_keys(&mut app, before);
        keys::press(&mut app, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(app.has_ended, "{before}");
    }
}

#[test]
fn nothing_breaks_in_a_window_of_any_size() {
    let mut app = app();
    type_keys(&mut app, "jjjj?");
    for (width, height) in [(1, 1), (10, 3), (59, 24), (80, 15), (60, 16), (80, 24), (300, 100)] {
        let shown = drawn(&app, width, height);
        assert_eq!(shown.lines().count(), usize::from(height));
    }
    assert!(drawn(&app, 59, 24).contains("at least 60 columns"));
}

#[test]
fn the_program_is_asked_for_what_was_asked_for() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }
    let parse = |line: &str| <Line as clap::Parser>::try_parse_from(line.split(' ')).map(|line| line.arguments);
    let arguments = parse("trace axpy --sizes n=3 --block 1,0,0 --schedule-seed 4 -- --limit 9")
        .unwrap_or_else(|error| panic!("{error}"));
    let words = "trace --kernel axpy --sizes n=3 --block 1,0,0 --schedule-seed 4 --limit 9";
    assert_eq!(arguments.words().join(" "), words);
    assert!(!arguments.is_written());
    for line in ["trace --format html", "trace --output t.json", "trace -- --format=text"] {
        assert!(parse(line).is_ok_and(|arguments| arguments.is_written()), "{line}");
    }
    assert!(parse("trace axpy --from t.json").is_err() && parse("trace --format pdf").is_err());
}

#[test]
fn a_trace_from_a_file_is_written_in_every_form() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }
    let directory = tempfile::tempdir().unwrap();
    let from = testdata().join("example.json");
    for (form, part) in
        [("html", "<!doctype html>"), ("chrome", "traceEvents"), ("json", "tilewright-trace"), ("text", "Hand-offs")]
    {
        let path = directory.path().join(form);
        let line = ["trace", "--from", from.to_str().unwrap(), "--format", form, "--output", path.to_str().unwrap()];
        let Line { arguments } = <Line as clap::Parser>::parse_from(line);
        super::run(&crate::Place::default(), &arguments).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains(part), "{form}");
    }
    let other = directory.path().join("other.json");
    std::fs::write(&other, EXAMPLE.replacen("\"version\":1", "\"version\":9", 1)).unwrap();
    let Line { arguments } = <Line as clap::Parser>::parse_from(["trace", "--from", other.to_str().unwrap()]);
    let error = format!("{:#}", super::run(&crate::Place::default(), &arguments).unwrap_err());
    assert!(error.contains("version 9") && error.contains("reads version 1"), "{error}");
}
