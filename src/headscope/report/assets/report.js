"use strict";
// Every page is whole without scripts. This one, which all pages have, shows the words of a mark
// (`data-words`) by pointer, by touch and by arrow keys, and lends its helpers to the page's own
// scripts as `headscope`.
const headscope = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  document.documentElement.classList.add("scripted");

  const NONE = "\u2013";
  const fixed = (value, digits) => {
    if (value === null || value === undefined) return NONE;
    const text = value.toFixed(digits);
    return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "\u2212");
  };
  // `describe` makes the words of a mark that has a number (`data-i`) instead; a page may set it, or
  // set one for single marks in `describers`.
  const shared = { data, find, all, fixed, NONE, describe: () => "", describers: new Map(), mark, save };

  // A head that is named in the address (`#head=4.3`) is marked wherever it stands.
  function mark() {
    const head = (location.hash.match(/^#head=(\d+\.\d+)$/) || [])[1];
    all(".chosen-head").forEach((node) => node.classList.remove("chosen-head"));
    if (!head) return;
    const links = all("a.chip").filter((link) => link.hash === location.hash);
    [...all(`[data-head="${head}"]`), ...links].forEach((node) => node.classList.add("chosen-head"));
  }
  function save(name, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }
  window.addEventListener("hashchange", mark);
  document.addEventListener("click", (event) => {
    const cell = event.target.closest && event.target.closest(".cell[data-head]");
    if (!cell) return;
    const head = `#head=${cell.dataset.head}`;
    history.replaceState(null, "", location.hash === head ? location.pathname + location.search : head);
    mark();
  });
  all(".copy").forEach((button) => button.addEventListener("click", async () => {
    const words = button.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "copied";
    } catch {  // a page from disk may not use the clipboard: show the text, selected
      window.prompt("Copy:", button.dataset.copy);
    }
    setTimeout(() => { button.textContent = words; }, 1200);
  }));
  // Tables of numbers sort by a click on a heading: first down, then up, then as they were.
  all("table.told").forEach((table) => {
    const rows = Array.from(table.tBodies[0].rows);
    if (rows.length < 3) return;
    const number = (cell) => {
      const own = (cell.firstChild ? cell.firstChild.textContent : "").replace(/[\s\u202f]/g, "").replace("\u2212", "-");
      return own && !Number.isNaN(Number(own)) ? Number(own) : null;
    };
    all("thead th", table).forEach((heading, column) => {
      heading.addEventListener("click", () => {
        const turn = { none: "descending", descending: "ascending", ascending: "none" }[heading.getAttribute("aria-sort") || "none"];
        all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
        if (turn !== "none") heading.setAttribute("aria-sort", turn);
        const sign = turn === "ascending" ? 1 : -1;
        const sorted = turn === "none" ? rows : [...rows].sort((a, b) => {
          const [one, other] = [number(a.cells[column]), number(b.cells[column])];
          if (one === null && other === null) {
            return sign * a.cells[column].textContent.localeCompare(b.cells[column].textContent);
          }
          return one === null || other === null ? (one === null) - (other === null) : sign * (one - other);
        });
        table.tBodies[0].replaceChildren(...sorted);
      });
    });
  });

  const tip = find("#tip");
  let current = null;
  function show(mark) {
    if (current) current.classList.remove("current");
    current = mark;
    tip.hidden = !mark;
    if (!mark) return;
    mark.classList.add("current");
    const describe = shared.describers.get(mark) || shared.describe;
    tip.textContent = mark.dataset.words || describe(Number(mark.dataset.i));
    const box = mark.getBoundingClientRect(), size = tip.getBoundingClientRect();
    const left = Math.min(box.left, document.documentElement.clientWidth - size.width - 8);
    const below = box.bottom + 8 + size.height < window.innerHeight;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${below ? box.bottom + 8 : Math.max(8, box.top - size.height - 8)}px`;
  }
  const speaks = (node) => node.matches && node.matches(".cell, .point") &&
    Boolean(node.dataset.words || node.dataset.i);
  // A mark's column and row: cells have theirs from where they are drawn, points say them.
  const place = (mark) => mark.dataset.column
    ? [Number(mark.dataset.column), Number(mark.dataset.row)]
    : [Number(mark.getAttribute("x")), Number(mark.getAttribute("y"))];
  all(".matrix, .chart, .bars").forEach((figure) => {
    const marks = all(".cell, .point", figure).filter(speaks);
    figure.addEventListener("pointerover", (event) => { if (speaks(event.target)) show(event.target); });
    figure.addEventListener("click", (event) => { if (speaks(event.target)) show(event.target); });
    figure.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") show(null); });
    figure.addEventListener("blur", () => show(null));
    figure.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return show(null);
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (!step || !marks.length) return;
      event.preventDefault();
      if (!marks.includes(current)) return show(marks[0]);
      const axis = step[0] ? 0 : 1, sign = step[0] || step[1], here = place(current);
      const distance = (mark, along) => Math.abs(place(mark)[along] - here[along]);
      // The lines of a chart need not have points at the same places: the nearest will do.
      const strict = axis === 0 || figure.matches(".matrix");
      const ahead = marks.filter((mark) => (place(mark)[axis] - here[axis]) * sign > 0 &&
        (!strict || distance(mark, 1 - axis) === 0));
      ahead.sort((a, b) => distance(a, axis) - distance(b, axis) ||
        distance(a, 1 - axis) - distance(b, 1 - axis));
      if (ahead.length) show(ahead[0]);
    });
  });
  // Boxes scroll, too, and their scroll events reach the window only while they are captured.
  window.addEventListener("scroll", () => {
    if (!current) return;
    const box = current.getBoundingClientRect();
    show(box.bottom < 0 || box.top > window.innerHeight ? null : current);
  }, { passive: true, capture: true });
  mark();
  return shared;
})();
