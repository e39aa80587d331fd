//! What keys do.

use kernel_trace::Kind;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::app::App;

/// How many steps a page has.
const PAGE: isize = 20;

/// The keys, for the help.
pub(super) const KEYS: [(&str, &str); 12] = [
    ("→  j  space", "the next step"),
    ("←  k", "the step before"),
    ("PgDn  PgUp", "20 steps"),
    ("b  B", "to the next barrier, to the one before"),
    ("w  W", "to the next step of this warp, to the one before"),
    ("t  T", "to the next transfer by TMA or copy, to the one before"),
    ("f", "to the fault, or to the end if there is none"),
    ("g  G", "to the beginning, to the end"),
    ("/  n  N", "look for a line, a file, a kind of step; again; back"),
    ("[  ]", "another block of the trace"),
    ("?", "this help"),
    ("q  Esc  Ctrl-C", "leave"),
];

/// What a key does.
pub(super) fn press(app: &mut App, key: KeyEvent) {
    app.message.clear();
    let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    if is_interrupt {
        app.has_ended = true;
        return;
    }
    if let Some(mut typed) = app.typed.take() {
        match key.code {
            KeyCode::Enter => {
                app.wanted = typed;
                search(app, false);
            }
            KeyCode::Esc => {}
            KeyCode::Backspace => {
                // With nothing left to take away, the search is over.
                if typed.pop().is_some() {
                    app.typed = Some(typed);
                }
            }
            KeyCode::Char(character) => {
                typed.push(character);
                app.typed = Some(typed);
            }
            _ => app.typed = Some(typed),
        }
        return;
    }
    if app.shows_help {
        app.shows_help = false;
        return;
    }
    let is_back = matches!(key.code, KeyCode::Char(character) if character.is_ascii_uppercase());
    match key.code {
        KeyCode::Right | KeyCode::Down | KeyCode::Char('j' | ' ') => app.go_by(1),
        KeyCode::Left | KeyCode::Up | KeyCode::Char('k') => app.go_by(-1),
        KeyCode::PageDown => app.go_by(PAGE),
        KeyCode::PageUp => app.go_by(-PAGE),
        KeyCode::Home | KeyCode::Char('g') => app.go_to(0),
        KeyCode::End | KeyCode::Char('G') => app.go_to(usize::MAX),
        KeyCode::Char('b' | 'B') => app.go_to_next(is_back, "barrier", App::is_at_barrier),
        KeyCode::Char('w' | 'W') => {
            let warp = app.step().and_then(|step| step.warp);
            app.go_to_next(is_back, "step of this warp", |_, step| {
                step.warp.is_some() && (warp.is_none() || step.warp == warp)
            });
        }
        KeyCode::Char('t' | 'T') => app.go_to_next(is_back, "transfer", |_, step| {
            matches!(
                step.kind,
                Kind::TmaLoad | Kind::TmaLoaded | Kind::TmaStore | Kind::AsyncCopy | Kind::AsyncCopyWait
            )
        }),
        KeyCode::Char('f') => {
            let fault = app.block().steps.iter().position(|step| step.kind == Kind::Fault);
            if fault.is_none() {
                app.message = "nothing was wrong: this is the end".to_owned();
            }
            app.go_to(fault.map_or(usize::MAX, |fault| fault + 1));
        }
        KeyCode::Char('/') => app.typed = Some(String::new()),
        KeyCode::Char('n' | 'N') => search(app, is_back),
        KeyCode::Char('[') => app.change_block(true),
        KeyCode::Char(']') => app.change_block(false),
        KeyCode::Char('?') => app.shows_help = true,
        KeyCode::Char('q') | KeyCode::Esc => app.has_ended = true,
        _ => {}
    }
}

fn search(app: &mut App, is_back: bool) {
    if app.wanted.is_empty() {
        app.message = "nothing to look for: type / and a part of a line".to_owned();
        return;
    }
    let what = format!("`{}`", app.wanted);
    app.go_to_next(is_back, &what, App::is_wanted);
}
