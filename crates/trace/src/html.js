// The arrow keys go from step to step, `b` to the next barrier, `f` to the fault, `/` to the next step whose line has some text.
(() => {
  const rows = [...document.querySelectorAll('table.steps tbody tr')];
  const marks = new Map([...document.querySelectorAll('rect[data-step]')].map((mark) => [mark.dataset.step, mark]));
  let at = -1;
  const choose = (next) => {
    if (next < 0 || next >= rows.length) return;
    if (at >= 0) { rows[at].classList.remove('chosen'); marks.get(rows[at].id)?.classList.remove('chosen'); }
    at = next;
    rows[at].classList.add('chosen');
    rows[at].scrollIntoView({ block: 'nearest' });
    const mark = marks.get(rows[at].id);
    mark?.classList.add('chosen');
    mark?.scrollIntoView({ block: 'nearest', inline: 'center' });
  };
  const find = (wanted) => { const next = rows.findIndex((row, i) => i > at && wanted(row)); if (next >= 0) choose(next); };
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      ArrowDown: () => choose(at + 1), ArrowUp: () => choose(at - 1),
      b: () => find((row) => row.classList.contains('barrier')), f: () => find((row) => row.classList.contains('fault')),
      '/': () => { const text = prompt('A line of source, or part of it'); if (text) find((row) => row.cells[3].textContent.includes(text)); },
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  rows.forEach((row, i) => row.addEventListener('click', () => choose(i)));
  marks.forEach((mark, id) => mark.addEventListener('click', () => choose(rows.findIndex((row) => row.id === id))));
})();
