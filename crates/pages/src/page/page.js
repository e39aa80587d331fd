// Everything here is a convenience: without it, the page has all figures and all tables.
(() => {
  "use strict";
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const details = all("figure details");
  const status = document.getElementById("status");
  document.getElementById("scripted").hidden = false;

  // Tables of figures are closed until asked for, unless the address names something in one.
  const showTables = document.getElementById("tables");
  const setTables = (open) => {
    details.forEach((one) => { one.open = open; });
    showTables.setAttribute("aria-pressed", String(open));
    showTables.textContent = open ? "Hide tables of figures" : "Show all tables";
  };
  setTables(false);
  showTables.addEventListener("click", () => setTables(showTables.getAttribute("aria-pressed") !== "true"));
  let wereOpen = [];
  addEventListener("beforeprint", () => {
    wereOpen = details.filter((one) => one.open);
    details.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => details.forEach((one) => { one.open = wereOpen.includes(one); }));

  // A click on a heading sorts the table by it, and another one in the other direction.
  const sortBy = (table, head, place) => {
    const descending = head.getAttribute("aria-sort") === "ascending";
    all("th[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const body = table.tBodies[0];
    const key = (row) => {
      const cell = row.cells[place];
      return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
    };
    const compare = (one, other) => {
      const [a, b] = [key(one), key(other)];
      if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
      const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
      return descending ? -order : order;
    };
    body.append(...[...body.rows].sort(compare));
  };
  all("table").forEach((table) => [...table.tHead.rows[0].cells].forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sortBy(table, head, place));
    head.replaceChildren(button);
  }));

  // A kernel is highlighted in all figures and tables.
  const kernel = document.getElementById("kernel");
  const highlight = (name) => {
    kernel.value = name;
    document.body.classList.toggle("lighting", name !== "");
    let count = 0;
    all("[data-key]").forEach((one) => {
      const lit = name !== "" && one.dataset.key === name;
      one.classList.toggle("lit", lit);
      count += lit && one.classList.contains("mark");
    });
    status.textContent = name === "" ? "" : `${name}: ${count} marks in figures`;
  };
  kernel.addEventListener("change", () => highlight(kernel.value));
  document.addEventListener("click", (event) => {
    const mark = event.target.closest(".mark[data-key]");
    if (mark) highlight(mark.dataset.key === kernel.value ? "" : mark.dataset.key);
  });

  // Rows that do not have the words are hidden.
  const filter = document.getElementById("filter");
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    let rows = 0;
    all("tbody tr").forEach((row) => {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      rows += 1;
      shown += !row.hidden;
    });
    if (words.length && showTables.getAttribute("aria-pressed") !== "true") setTables(true);
    status.textContent = words.length ? `${shown} of ${rows} rows` : "";
  });
})();
