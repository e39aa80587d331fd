//! How the viewer looks, from 80 columns and 24 lines on.
//!
//! ```text
//!  ┌ warps ──────────────┐┌ barriers ─────────┐
//!  │                     ││                   │
//!  └─────────────────────┘└───────────────────┘
//!  ┌ steps ──────────────┐┌ stages ───────────┐
//!  │                     ││                   │
//!  │                     │└───────────────────┘
//!  │                     │┌ shared memory ────┐
//!  └─────────────────────┘└───────────────────┘
//!  ┌ source ──────────────────────────────────┐
//!  └──────────────────────────────────────────┘
//!  keys
//! ```

use kernel_trace::replay::{self, Held, Touch};
use kernel_trace::{Barrier, Kind, Memory, Step};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::app::App;
use super::keys::KEYS;

/// The least that everything fits into.
const LEAST: (u16, u16) = (60, 16);

/// Styles, or none.
#[derive(Clone, Copy)]
struct Palette(bool);

impl Palette {
    fn color(self, color: Color) -> Style {
        if self.0 { Style::new().fg(color) } else { Style::new() }
    }

    fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn of_kind(self, kind: Kind) -> Style {
        match kind {
            Kind::Fault => self.color(Color::Red).add_modifier(Modifier::BOLD),
            Kind::Arrive | Kind::Wait | Kind::Complete | Kind::Passed => self.color(Color::Yellow),
            Kind::TmaLoad | Kind::TmaLoaded | Kind::TmaStore | Kind::AsyncCopy => self.color(Color::Cyan),
            Kind::Wgmma | Kind::Mma => self.color(Color::Magenta),
            Kind::SharedStore | Kind::GlobalStore => self.color(Color::Green),
            _ => Style::new(),
        }
    }
}

/// A barrier, in few letters.
fn short(barrier: Barrier) -> String {
    match barrier {
        Barrier::Block => "block".to_owned(),
        Barrier::Named(number) => format!("named {number}"),
        Barrier::Mbarrier(byte) => format!("mbar {byte}"),
        Barrier::Cluster => "cluster".to_owned(),
        Barrier::Registers => "registers".to_owned(),
    }
}

/// What a step does it to, in few letters: the pane of the source has all of it.
fn brief(app: &App, step: &Step) -> String {
    let mut words = Vec::new();
    if let Some(barrier) = step.barrier {
        let phase = step.phase.map(|phase| format!(" phase {phase}")).unwrap_or_default();
        words.push(format!("{}{phase}", short(barrier)));
    }
    if step.bytes > 0 {
        let view = match step.memory {
            Some(memory @ Memory::View(_)) => format!(" {}", app.block().memory(memory)),
            _ => String::new(),
        };
        let first = step.ranges.first().map(|[start, _]| format!(" at {start}")).unwrap_or_default();
        words.push(format!("{} B{view}{first}", step.bytes));
    }
    if step.times > 1 {
        words.push(format!("{} times", step.times));
    }
    if words.is_empty() {
        words.push(step.text.lines().next().unwrap_or_default().to_owned());
    }
    words.join(", ")
}

pub(super) fn draw(frame: &mut Frame<'_>, app: &App, is_colored: bool) {
    let (area, palette) = (frame.area(), Palette(is_colored));
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("at least {} columns and {} lines are needed; q leaves", LEAST.0, LEAST.1);
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let [title, body, source, status] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(8), Constraint::Length(6), Constraint::Length(1)])
            .areas(area);
    let [left, right] = Layout::horizontal([Constraint::Percentage(60), Constraint::Min(24)]).areas(body);
    let warps_height = (app.state.warps.len() as u16 + 2).min(body.height / 2);
    let [warps, steps] = Layout::vertical([Constraint::Length(warps_height), Constraint::Min(4)]).areas(left);
    let [barriers, stages, memory] =
        Layout::vertical([Constraint::Fill(3), Constraint::Fill(3), Constraint::Fill(2)]).areas(right);
    draw_title(frame, app, palette, title);
    draw_warps(frame, app, palette, warps);
    draw_steps(frame, app, palette, steps);
    draw_barriers(frame, app, palette, barriers);
    draw_stages(frame, app, palette, stages);
    draw_memory(frame, app, palette, memory);
    draw_source(frame, app, palette, source);
    draw_status(frame, app, palette, status);
    if app.shows_help {
        draw_help(frame, area);
    }
}

fn draw_title(frame: &mut Frame<'_>, app: &App, palette: Palette, area: Rect) {
    let block = app.block();
    let [x, y, z] = block.block;
    let more = if block.more > 0 { format!(", {} not kept", block.more) } else { String::new() };
    let text =
        format!(" {}  block ({x}, {y}, {z})  step {} of {}{more}", app.trace.kernel, app.at(), block.steps.len());
    frame.render_widget(Line::styled(text, palette.strong()), area);
}

/// A pane with lines, of which the one with this number is seen.
fn pane(frame: &mut Frame<'_>, title: &'static str, lines: Vec<Line<'_>>, seen: usize, area: Rect) {
    let rows = usize::from(area.height.saturating_sub(2));
    let first = (seen + 1).saturating_sub(rows.div_ceil(2) + 1).min(lines.len().saturating_sub(rows));
    let shown: Vec<_> = lines.into_iter().skip(first).take(rows).collect();
    frame.render_widget(Paragraph::new(shown).block(Block::bordered().title(title)), area);
}

fn draw_warps(frame: &mut Frame<'_>, app: &App, palette: Palette, area: Rect) {
    let current = app.step().and_then(|step| step.warp);
    let lines = app.state.warps.iter().enumerate().map(|(warp, state)| {
        let role = app.summary.role(warp).map_or("", |role| role.name.as_str());
        let step = state.last.map(|last| &app.block().steps[last]);
        let (what, style) = match (&state.waits, step) {
            (_, Some(step)) if step.kind == Kind::Fault => ("has failed".to_owned(), palette.of_kind(Kind::Fault)),
            (Some((barrier, _)), _) => (format!("waits: {}", short(*barrier)), palette.color(Color::Yellow)),
            _ if state.has_ended => ("has returned".to_owned(), palette.color(Color::DarkGray)),
            (None, Some(step)) => (step.kind.name(), palette.of_kind(step.kind)),
            (None, None) => ("has not begun".to_owned(), palette.color(Color::DarkGray)),
        };
        let line = step.map_or("", |step| app.trace.place(step.place));
        let line = line.rsplit('/').next().unwrap_or_default();
        let mark = if current == Some(warp) { '>' } else { ' ' };
        let head = format!("{mark}{warp:>2} {role:<9.9} ");
        let style_of_head = if current == Some(warp) { palette.strong() } else { Style::new() };
        Line::from(vec![
            Span::styled(head, style_of_head),
            Span::styled(format!("{what:<17.17} "), style),
            Span::raw(line),
        ])
    });
    pane(frame, " warps ", lines.collect(), current.unwrap_or(0), area);
}

fn draw_steps(frame: &mut Frame<'_>, app: &App, palette: Palette, area: Rect) {
    let (block, at) = (app.block(), app.at());
    let rows = usize::from(area.height);
    // No more than can be seen: a trace may have a hundred thousand.
    let first = at.saturating_sub(rows);
    let lines = block.steps.iter().enumerate().skip(first).take(2 * rows).map(|(number, step): (usize, &Step)| {
        let is_last = number + 1 == at;
        let mark = if is_last { '>' } else { ' ' };
        let style = if is_last { palette.strong() } else { Style::new() };
        let who = step.warp.map_or_else(|| step.by.clone(), |warp| format!("w{warp}"));
        let head = Span::styled(format!("{mark}{:>5} {who:<5.5} ", step.step), style);
        let kind = Span::styled(format!("{:<14.14} ", step.kind.name()), palette.of_kind(step.kind).patch(style));
        Line::from(vec![head, kind, Span::raw(brief(app, step))])
    });
    pane(frame, " steps ", lines.collect(), at.saturating_sub(first).saturating_sub(1), area);
}

fn draw_barriers(frame: &mut Frame<'_>, app: &App, palette: Palette, area: Rect) {
    let current = app.step().and_then(|step| step.barrier);
    let seen = app.state.barriers.keys().position(|barrier| Some(*barrier) == current);
    let lines = app.state.barriers.iter().map(|(barrier, state)| {
        let mut text = format!("{} phase {}", short(*barrier), state.phase);
        if state.arrived > 0 {
            text.push_str(&format!(", {} come", state.arrived));
        }
        if state.bytes != 0 {
            text.push_str(&format!(", lacks {} B", state.bytes));
        }
        let style = if Some(*barrier) == current { palette.strong() } else { Style::new() };
        let mut spans = vec![Span::styled(text, style)];
        if !state.waiting.is_empty() {
            let warps = state.waiting.iter().map(|warp| format!("w{warp}")).collect::<Vec<_>>().join(" ");
            spans.push(Span::styled(format!(", wait: {warps}"), palette.color(Color::Yellow)));
        }
        Line::from(spans)
    });
    pane(frame, " barriers ", lines.collect(), seen.unwrap_or(0), area);
}

fn draw_stages(frame: &mut Frame<'_>, app: &App, palette: Palette, area: Rect) {
    let stages = app.summary.stages.iter().zip(&app.state.stages).enumerate();
    let mut lines: Vec<_> = stages
        .map(|(number, (stage, held))| {
            let (what, style) = match held {
                Held::Nothing => ("empty", Style::new()),
                Held::Filling => ("filling", palette.color(Color::Cyan)),
                Held::Full => ("full", palette.color(Color::Green)),
                Held::Used => ("used", palette.color(Color::DarkGray)),
            };
            let barrier = stage.barrier.map(|barrier| format!(", {}", short(barrier))).unwrap_or_default();
            let bytes = Span::raw(format!("{number} {} B{barrier}: ", stage.bytes()));
            Line::from(vec![bytes, Span::styled(what, style)])
        })
        .collect();
    let in_flight: u64 = app.state.in_flight.iter().map(|load| load.bytes).sum();
    if in_flight > 0 {
        let text = format!("{in_flight} B in flight, {} loads", app.state.in_flight.len());
        lines.insert(0, Line::styled(text, palette.color(Color::Cyan)));
    }
    if lines.is_empty() {
        lines.push(Line::raw("no transfers"));
    }
    pane(frame, " stages ", lines, 0, area);
}

fn draw_memory(frame: &mut Frame<'_>, app: &App, palette: Palette, area: Rect) {
    let arrays = app.block().arrays.len();
    let (width, rows) = (usize::from(area.width.saturating_sub(2)), usize::from(area.height.saturating_sub(2)));
    let each = (rows / arrays.max(1)).max(1);
    let mut lines = Vec::new();
    for array in 0..arrays {
        let cells = replay::map(app.block(), array, width * each, app.at());
        for row in cells.chunks(width.max(1)) {
            let spans = row.chunk_by(|a, b| a == b).map(|cells| {
                let (letter, style) = match cells[0] {
                    Touch::Nothing => ('·', Style::new()),
                    Touch::Read => ('r', palette.color(Color::Blue)),
                    Touch::Written => ('W', palette.color(Color::Green)),
                    Touch::InFlight => ('~', palette.color(Color::Cyan)),
                };
                Span::styled(String::from(letter).repeat(cells.len()), style)
            });
            lines.push(Line::from(spans.collect::<Vec<_>>()));
        }
    }
    pane(frame, " r read, W written, ~ coming ", lines, 0, area);
}

fn draw_source(frame: &mut Frame<'_>, app: &App, palette: Palette, area: Rect) {
    let rows = usize::from(area.height.saturating_sub(2));
    let (mut lines, mut title) = (Vec::new(), " source ".to_owned());
    if let Some(step) = app.step() {
        let place = app.trace.place(step.place);
        if !place.is_empty() {
            title = format!(" {place} ");
        }
        if step.caller.is_some() && step.caller != step.place {
            title = format!(" {place}, from {} ", app.trace.place(step.caller));
        }
        if step.kind == Kind::Fault {
            lines = step.text.lines().map(|line| Line::styled(line.to_owned(), palette.of_kind(Kind::Fault))).collect();
        } else {
            let wanted = place.rsplit(':').next().and_then(|line| line.parse().ok());
            let detail = format!("{} {}: {}", step.who(), step.kind, app.block().detail(step));
            lines.push(Line::styled(detail, palette.of_kind(step.kind)));
            let rows = rows.saturating_sub(1);
            for (number, text) in app.sources.around(place, rows.saturating_sub(1) / 2, rows / 2) {
                let style = if Some(number) == wanted { palette.strong() } else { palette.color(Color::DarkGray) };
                let mark = if Some(number) == wanted { '>' } else { ' ' };
                lines.push(Line::styled(format!("{mark}{number:>4} {text}"), style));
            }
        }
    }
    let paragraph = Paragraph::new(lines).block(Block::bordered().title(title));
    let is_fault = app.step().is_some_and(|step| step.kind == Kind::Fault);
    frame.render_widget(if is_fault { paragraph.wrap(Wrap { trim: false }) } else { paragraph }, area);
}

fn draw_status(frame: &mut Frame<'_>, app: &App, palette: Palette, area: Rect) {
    let line = match (&app.typed, app.message.is_empty()) {
        (Some(typed), _) => Line::raw(format!("/{typed}▏")),
        (None, false) => Line::styled(app.message.clone(), palette.color(Color::Yellow)),
        (None, true) => Line::raw(" → step  ← back  b barrier  w warp  t transfer  f fault  / find  ? help  q quit"),
    };
    frame.render_widget(line, area);
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = (72.min(area.width), (KEYS.len() as u16 + 2).min(area.height));
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    let lines: Vec<_> = KEYS.iter().map(|(keys, what)| Line::raw(format!(" {keys:<16} {what}"))).collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), place);
}
