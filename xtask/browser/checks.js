// What pages are asked, each in the page itself: functions that give a list of what is wrong.
({
  // Whether the page is wider than its window, and whether pictures have their size.
  layout() {
    const faults = [];
    const width = document.documentElement.scrollWidth;
    if (width > innerWidth + 1) faults.push(`the page is ${width} pixels wide in a window of ${innerWidth}`);
    for (const svg of document.querySelectorAll("svg.chart")) {
      const box = svg.getBoundingClientRect();
      if (box.width < 1 || box.height < 1) faults.push(`a picture has ${box.width}×${box.height} pixels`);
    }
    return faults;
  },
  // Text in pictures that covers other text, or leaves the picture.
  pictures() {
    const faults = [];
    for (const svg of document.querySelectorAll("svg.chart")) {
      const name = svg.getAttribute("aria-labelledby") ? svg.querySelector("title").textContent : "a picture";
      const view = svg.viewBox.baseVal;
      const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent.trim() !== "");
      const boxes = texts.map((text) => text.getBBox());
      texts.forEach((text, number) => {
        const box = boxes[number];
        if (box.x < view.x || box.y < view.y || box.x + box.width > view.x + view.width || box.y + box.height > view.y + view.height) {
          faults.push(`${name}: “${text.textContent}” leaves the picture`);
        }
        for (let other = 0; other < number; other += 1) {
          const [a, b] = [box, boxes[other]];
          // Boxes of text have room above and below the letters.
          const across = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
          const down = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
          if (across > 1 && down > 0.35 * Math.min(a.height, b.height)) {
            faults.push(`${name}: “${text.textContent}” covers “${texts[other].textContent}”`);
          }
        }
      });
    }
    return faults;
  },
  // Without a script, all tables are to be seen.
  tables() {
    const hidden = [...document.querySelectorAll("table")].filter((table) => table.getClientRects().length === 0);
    return hidden.map((table) => `a table is not shown: ${table.textContent.trim().slice(0, 60)}`);
  },
  // Headings, captions, scopes, names that are there once, links that lead somewhere.
  structure() {
    const faults = [];
    let level = 0;
    for (const heading of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
      const own = Number(heading.tagName[1]);
      if (own > level + 1) faults.push(`“${heading.textContent}” is a heading of level ${own} below one of level ${level}`);
      level = own;
    }
    for (const table of document.querySelectorAll("table")) {
      const name = table.caption ? table.caption.textContent : "a table";
      if (!table.caption) faults.push(`a table has no caption: ${table.textContent.trim().slice(0, 60)}`);
      const bare = [...table.querySelectorAll("th:not([scope])")].length;
      if (bare) faults.push(`${name}: ${bare} headings without a scope`);
    }
    const ids = new Set();
    for (const one of document.querySelectorAll("[id]")) {
      if (ids.has(one.id)) faults.push(`the id ${one.id} is there twice`);
      ids.add(one.id);
    }
    for (const link of document.querySelectorAll("a[href^='#']")) {
      const target = decodeURIComponent(link.hash.slice(1));
      if (target && !ids.has(target)) faults.push(`the link “${link.textContent}” leads nowhere: ${link.hash}`);
    }
    return faults;
  },
  // What axe finds, in the page as it is now.
  async axe() {
    const found = await axe.run(document, { resultTypes: ["violations"] });
    return found.violations.map(({ id, help, nodes }) =>
      `${id}: ${help} (${nodes.length}): ${nodes.slice(0, 2).map((node) => `${node.html.slice(0, 120)} ${(node.failureSummary ?? "").split("\n")[1] ?? ""}`).join("; ")}`);
  },
  // The report's script: tables, sorting, the filter, highlighting.
  script() {
    const faults = [];
    const details = [...document.querySelectorAll("figure details")];
    const tables = document.getElementById("tables");
    if (!tables) return faults;
    if (details.some((one) => one.open)) faults.push("tables of figures are open at first");
    tables.click();
    if (details.some((one) => !one.open)) faults.push("the button does not show all tables");
    for (const table of document.querySelectorAll("table")) {
      if (!table.tHead) continue;
      const place = [...table.tHead.rows[0].cells].findIndex((cell) => cell.classList.contains("number"));
      if (place < 0) continue;
      const head = table.tHead.rows[0].cells[place];
      for (const [order, sign] of [["ascending", 1], ["descending", -1]]) {
        head.querySelector("button").click();
        const values = [...table.tBodies[0].rows].map((row) => row.cells[place].dataset.value).filter((value) => value !== undefined).map(Number);
        const sorted = values.every((value, row) => row === 0 || sign * (value - values[row - 1]) >= 0);
        if (head.getAttribute("aria-sort") !== order || !sorted) faults.push(`${table.caption.textContent} is not sorted, ${order}`);
      }
    }
    const shown = () => [...document.querySelectorAll("tbody tr")].filter((row) => !row.hidden).length;
    const filter = document.getElementById("filter");
    const before = shown();
    filter.value = "no row has these words";
    filter.dispatchEvent(new Event("input"));
    if (shown() !== 0) faults.push("the filter hides nothing");
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
    if (shown() !== before) faults.push("the filter does not give rows back");
    const kernel = document.getElementById("kernel");
    const lit = () => document.querySelectorAll(".mark.lit").length;
    const marks = document.querySelectorAll(".mark[data-key]");
    if (marks.length) {
      marks[0].dispatchEvent(new MouseEvent("click", { bubbles: true }));
      if (lit() === 0 || kernel.value !== marks[0].dataset.key) faults.push("a click on a mark highlights nothing");
      kernel.value = "";
      kernel.dispatchEvent(new Event("change"));
      if (lit() !== 0) faults.push("marks stay highlighted");
    }
    return faults;
  },
})
