"use strict";
// Every page is whole without scripts. This one, which all pages have, shows the words of a mark
// (`data-words`) by pointer, by touch and by arrow keys, and lends its helpers to the page's own
// scripts as `headscope`.
const headscope = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  document.documentElement.classList.add("scripted");

  const NONE = "\u2013", WIDE = 3;
  const fixed = (value, digits) => {
    if (value === null || value === undefined) return NONE;
    const text = value.toFixed(digits);
    return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "\u2212");
  };
  // What makes the words of a mark that has none (`data-words`), and what lights up with a mark.
  const describers = new Map(), partners = new WeakMap();

  // A head as it is written: L5.H3; addresses and data have 5.3.
  const named = ([layer, head]) => `L${layer}.H${head}`;
  const chosen = () => (location.hash.match(/^#head=(\d+\.\d+)$/) || [])[1];
  // A head that is named in the address (`#head=4.3`) is marked wherever it stands.
  let marked;
  function mark() {
    const head = chosen();
    if (head !== marked) document.dispatchEvent(new Event("chosen-head"));
    marked = head;
    all(".chosen-head").forEach((node) => node.classList.remove("chosen-head"));
    if (!head) return;
    const links = all("a.chip").filter((link) => link.hash === location.hash);
    [...all(`[data-head="${head}"]`), ...links].forEach((node) => node.classList.add("chosen-head"));
  }
  function save(name, content, type = "text/csv") {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }
  // What the address names, a part or a head, is scrolled to; what it is folded in opens.
  function go() {
    mark();
    const head = chosen(), named = location.hash.slice(1), own = head ? `[data-head="${head}"]` : `[id="${CSS.escape(named)}"]`;
    const part = named && (find(own) || find(".chosen-head"));
    if (!part) return;
    const inside = find(":scope > details", part);
    for (let fold = inside || part; fold; fold = fold.parentElement) if (fold.localName === "details") fold.open = true;
    part.scrollIntoView({ block: head ? "center" : "start" });
  }
  window.addEventListener("hashchange", go);
  document.addEventListener("click", (event) => {
    const cell = event.target.closest && event.target.closest(".cell[data-head], tr[data-head]");
    if (!cell || !getSelection().isCollapsed) return;
    const head = `#head=${cell.dataset.head}`;
    history.replaceState(null, "", location.hash === head ? location.pathname + location.search : head);
    mark();
  });
  all(".copy").forEach((button) => button.addEventListener("click", async () => {
    const words = button.textContent, listed = button.dataset.text || button.closest(".head-set").dataset.heads;
    const heads = listed.split(",").map((head) => head.split("."));
    const text = {
      CSV: ["layer,head", ...heads, ""].join("\n"),
      Python: `[${heads.map((head) => `(${head.join(", ")})`).join(", ")}]`,
    }[words] || listed;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {
      // A page from disk may not use the clipboard: show the text, selected.
      window.prompt("Copy:", text);
    }
    setTimeout(() => { button.textContent = words; }, 1200);
  }));
  // On a phone a row of a wide table is a list, and every cell has the name of its column.
  all(".scroll > table:not(:has(svg))").forEach((table) => {
    const names = all("thead th", table).map((heading) => heading.textContent);
    if (names.length <= WIDE) return;
    table.classList.add("wide");
    all("tbody td", table).forEach((cell) => { cell.dataset.of = names[cell.cellIndex]; });
  });
  // Tables of numbers sort by the buttons in their headings: first down, then up, then as they were.
  all("table.values").forEach((table) => {
    const rows = Array.from(table.tBodies[0].rows), headings = all("thead th", table);
    if (rows.length < 3) return;
    const text = (row, column) => (row.cells[column].firstChild || row.cells[column]).textContent;
    const number = (row, column) => {
      const own = text(row, column).replace(/\s/g, "").replace("\u2212", "-").replace(/^[<>\u2264\u2265]/, "");
      return /^[-+]?\d+(\.\d+)?(e-?\d+)?%?$/.test(own) ? parseFloat(own) : null;
    };
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.append(...heading.childNodes);
      if (!button.textContent) button.setAttribute("aria-label", "Name");
      heading.append(button);
      button.addEventListener("click", () => sort(heading, column));
    });
    function sort(heading, column) {
      const turn = { descending: "ascending", ascending: null }[heading.getAttribute("aria-sort")];
      const next = turn === undefined ? "descending" : turn, sign = next === "ascending" ? 1 : -1;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      if (next) heading.setAttribute("aria-sort", next);
      const sorted = next ? [...rows].sort((a, b) => {
        const [one, other] = [number(a, column), number(b, column)];
        if (one !== null && other !== null) return sign * (one - other);
        if (one !== null || other !== null) return (one === null) - (other === null);
        return sign * text(a, column).localeCompare(text(b, column));
      }) : rows;
      table.tBodies[0].replaceChildren(...sorted);
    }
  });

  // Cells of heads are named by their place; what is said of others is written once for all of them.
  all(".matrix[data-heads] .cell").forEach((cell) => {
    cell.dataset.head = `${cell.getAttribute("y")}.${cell.getAttribute("x")}`;
  });
  all(".matrix[data-values]").forEach((map) => {
    const { words, values, rows, columns } = map.dataset, said = values.split("\t");
    const names = { row: rows && rows.split("\t"), column: columns && columns.split("\t") };
    all(".cell", map).forEach((cell, at) => {
      const place = { row: cell.getAttribute("y"), column: cell.getAttribute("x") };
      const name = (of) => (names[of] ? names[of][place[of]] : place[of]);
      cell.dataset.words = words.replace(/\{(row|column|words)\}/g, (_, of) => (of === "words" ? said[at] : name(of)));
    });
  });

  const tip = find("#tip");
  let current = null;
  function show(mark) {
    const lit = (on) => [current, partners.get(current)].forEach((node) => node && node.classList.toggle("current", on));
    if (current) lit(false);
    current = mark;
    tip.hidden = !mark;
    if (!mark) return;
    lit(true);
    tip.textContent = mark.dataset.words || describers.get(mark)();
    const box = mark.getBoundingClientRect(), size = tip.getBoundingClientRect();
    const left = Math.min(box.left, document.documentElement.clientWidth - size.width - 8);
    const below = box.bottom + 8 + size.height < window.innerHeight;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${below ? box.bottom + 8 : Math.max(8, box.top - size.height - 8)}px`;
  }
  const speaks = (node) => Boolean(node && (node.dataset.words || describers.has(node)));
  const markOf = (event) => event.target.closest(".cell, .point");
  // A mark's column and row: cells have theirs, points are shares of a width in the row of a series.
  const place = (mark) => {
    if (mark.matches(".cell")) return [Number(mark.getAttribute("x")), Number(mark.getAttribute("y"))];
    const row = mark.closest(".marks, .bars > div"), style = mark.style;
    const column = style.getPropertyValue("--x") || style.getPropertyValue("--v");
    return [Number(column), Array.from(row.parentNode.children).indexOf(row)];
  };
  all(".matrix, .chart, .bars, .arcs").forEach((figure) => {
    figure.addEventListener("pointerover", (event) => { if (speaks(markOf(event))) show(markOf(event)); });
    figure.addEventListener("click", (event) => { if (speaks(markOf(event))) show(markOf(event)); });
    figure.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") show(null); });
    figure.addEventListener("blur", () => show(null));
    figure.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return show(null);
      const marks = all(".cell, .point", figure).filter(speaks);
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (!step || !marks.length) return;
      event.preventDefault();
      const go = (mark) => {
        show(mark);
        mark.scrollIntoView({ block: "nearest", inline: "nearest" });
      };
      if (!marks.includes(current)) return go(marks[0]);
      const axis = step[0] ? 0 : 1, sign = step[0] || step[1], here = place(current);
      const distance = (mark, along) => Math.abs(place(mark)[along] - here[along]);
      // The lines of a chart need not have points at the same places: the nearest will do.
      const strict = axis === 0 || figure.matches(".matrix");
      const ahead = marks.filter((mark) => (place(mark)[axis] - here[axis]) * sign > 0 &&
        (!strict || distance(mark, 1 - axis) === 0));
      ahead.sort((a, b) => distance(a, axis) - distance(b, axis) ||
        distance(a, 1 - axis) - distance(b, 1 - axis));
      if (ahead.length) go(ahead[0]);
    });
  });
  // Boxes scroll, too, and their scroll events reach the window only while they are captured.
  window.addEventListener("scroll", () => {
    if (!current) return;
    const box = current.getBoundingClientRect();
    show(box.bottom < 0 || box.top > window.innerHeight ? null : current);
  }, { passive: true, capture: true });
  go();
  return { data, find, all, fixed, NONE, describers, partners, chosen, named, mark, save };
})();
