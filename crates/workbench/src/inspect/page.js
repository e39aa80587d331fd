// What belongs to one line of Rust is marked together, wherever it stands: under the pointer, or where the keyboard is.
const byLine = new Map();
for (const part of document.querySelectorAll("[data-l]")) {
  if (!byLine.has(part.dataset.l)) byLine.set(part.dataset.l, []);
  byLine.get(part.dataset.l).push(part);
}
let marked = null;
const mark = (line) => {
  if (line === marked) return;
  for (const part of byLine.get(marked) ?? []) part.classList.remove("on");
  for (const part of byLine.get(line) ?? []) part.classList.add("on");
  marked = line;
};
const lineOf = (event) => event.target.closest?.("[data-l]")?.dataset.l;
document.addEventListener("mouseover", (event) => { const line = lineOf(event); if (line) mark(line); });
document.addEventListener("focusin", (event) => { const line = lineOf(event); if (line) mark(line); });
// Up and down go from line to line.
document.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const row = event.target.closest?.("tr[tabindex]");
  if (!row) return;
  const rows = [...row.closest("table").querySelectorAll("tr[tabindex]")];
  const next = rows[rows.indexOf(row) + (event.key === "ArrowDown" ? 1 : -1)];
  if (next) { next.focus(); event.preventDefault(); }
});
