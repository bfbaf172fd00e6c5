"use strict";
// Sentences ten at a time: filtered, searched and sorted; words that belong together light up under
// the pointer, at a tap and by arrow keys.
(() => {
  const { data, find, all, fixed } = headscope;
  // What stands on a card, for a table outside of the page.
  function row(card) {
    const part = (selector) => (find(selector, card) || { textContent: "" }).textContent;
    const kind = card.closest("details") ? [find("summary", card.closest("details")).textContent.split(":")[0]] : [];
    const texts = all("dd", card).map((text) => (find("em", text) ? "" : text.textContent));
    const scores = card.dataset.scores || part("b").replace(" \u2192 ", ",");
    return [...kind, part(".direction"), part(".id"), ...scores.split(","), ...texts];
  }
  all(".sentences .csv").forEach((button) => button.addEventListener("click", () => {
    const examples = data.sentences ? state.found.map(card) : all(".sentences .example");
    const names = ["direction", "id", "before", "after", ...all("dt", examples[0]).map((label) => label.textContent)];
    const lines = [data.sentences ? names : ["kind", ...names], ...examples.map(row)];
    const cell = (text) => `"${text.replaceAll('"', '""')}"`;
    headscope.save("sentences.csv", lines.map((line) => line.map(cell).join(",")).join("\n"));
  }));
  const box = find("#sentence-list");
  if (!box || !data.sentences) return;
  const { directions, languages, rows, digits } = data.sentences;
  const [PLACE, DIRECTION, ID, TEXTS, BEFORE, AFTER, WORDS] = [0, 1, 2, 3, 4, 5, 6];
  const filter = find("#of-direction"), order = find("#by-loss"), search = find("#search");
  const status = find("#sentence-count"), earlier = find("#earlier"), later = find("#later");
  const size = Number(box.dataset.shown), pattern = box.firstElementChild.cloneNode(true);
  const state = { first: 0, found: rows };
  const loss = (row) => row[BEFORE] - row[AFTER];
  const orders = {
    loss: (a, b) => loss(b) - loss(a) || a[PLACE] - b[PLACE],
    gain: (a, b) => loss(a) - loss(b) || a[PLACE] - b[PLACE],
    file: (a, b) => a[PLACE] - b[PLACE],
  };
  const plain = (text) => text.normalize("NFC").toLowerCase();
  const hay = new Map();
  const searched = (row) => {
    if (!hay.has(row)) hay.set(row, plain([row[ID], ...row[TEXTS].filter((t) => t !== null)].join("\n")));
    return hay.get(row);
  };

  function choose() {
    const direction = filter && filter.value ? directions.indexOf(filter.value) : -1;
    const sought = plain(search.value.trim());
    state.found = rows.filter((row) => (direction < 0 || row[DIRECTION] === direction) &&
      (!sought || searched(row).includes(sought))).sort(orders[order.value] || orders.loss);
    state.first = 0;
    show();
  }
  function show() {
    const page = state.found.slice(state.first, state.first + size);
    box.replaceChildren(...page.map(card));
    const last = state.first + page.length, total = state.found.length;
    status.textContent = total ? `${state.first + 1}\u2013${last} of ${total}` : "No sentence like that";
    earlier.disabled = state.first === 0;
    later.disabled = last >= total;
  }
  function turn(step) {
    state.first = Math.max(0, state.first + step * size);
    show();
    box.scrollIntoView();
  }

  // ---- one sentence ---------------------------------------------------------------------------
  function card(row) {
    const made = pattern.cloneNode(true), speech = languages[row[DIRECTION]];
    made.dataset.scores = [row[BEFORE], row[AFTER]];
    find(".direction", made).textContent = arrows[row[DIRECTION]];
    find(".id", made).textContent = row[ID];
    find("b", made).textContent = `${fixed(row[BEFORE], digits)} \u2192 ${fixed(row[AFTER], digits)}`;
    all("dd", made).forEach((text, index) => {
      fill(text, row[TEXTS][index], row[WORDS] ? row[WORDS][index] : 0, index);
      if (index < 2 && speech[index]) text.lang = speech[index];
    });
    return made;
  }
  // The names as the page writes them, taken from where it has written them.
  const arrows = directions.map((name) => {
    const option = filter && Array.from(filter.options).find((one) => one.value === name);
    return option ? option.textContent : find(".direction", pattern).textContent;
  });
  function fill(text, written, words, index) {
    if (written === null || !written.trim()) {
      const nothing = document.createElement("em");
      nothing.textContent = written === null ? "\u2013" : "(nothing)";
      return text.replaceChildren(nothing);
    }
    const spans = index === 0 ? words : words && words[0];
    if (!spans || !spans.length) return text.replaceChildren(written);
    const links = new Map(), parts = [];
    if (index > 0) {
      for (let at = 0; at < words[1].length; at += 2) {
        const [source, other] = [words[1][at], words[1][at + 1]];
        links.set(other, [...(links.get(other) || []), source]);
      }
    }
    let position = 0;
    for (let at = 0; at < spans.length; at += 2) {
      const start = position + spans[at], end = start + spans[at + 1];
      const word = document.createElement("span");
      word.className = "word";
      // One stop of the Tab key a text; arrows go on from there.
      word.tabIndex = at ? -1 : 0;
      word.textContent = written.slice(start, end);
      if (index === 0) word.dataset.at = at / 2;
      else word.dataset.of = (links.get(at / 2) || []).join(" ");
      parts.push(written.slice(position, start), word);
      position = end;
    }
    text.replaceChildren(...parts, written.slice(position));
  }

  // ---- words that belong together ---------------------------------------------------------------
  const isWord = (node) => node && node.classList && node.classList.contains("word");
  const sources = (word) => (word.dataset.of || "").split(" ").filter(Boolean);
  function light(word) {
    all(".lit, .held", box).forEach((one) => one.classList.remove("lit", "held"));
    if (!isWord(word)) return;
    word.classList.add("held");
    const around = all(".word", word.closest(".example"));
    const lit = word.dataset.at !== undefined
      ? around.filter((one) => sources(one).includes(word.dataset.at))
      : around.filter((one) => sources(word).includes(one.dataset.at));
    lit.forEach((one) => one.classList.add("lit"));
  }
  const held = () => (isWord(document.activeElement) ? document.activeElement : null);
  box.addEventListener("pointerover", (event) => light(isWord(event.target) ? event.target : held()));
  box.addEventListener("pointerleave", () => light(held()));
  box.addEventListener("click", (event) => { if (isWord(event.target)) event.target.focus(); });
  box.addEventListener("focusin", (event) => light(event.target));
  box.addEventListener("focusout", () => light(null));
  box.addEventListener("keydown", (event) => {
    if (!isWord(event.target)) return;
    if (event.key === "Escape") return event.target.blur();
    const text = event.target.parentElement, words = all(".word", text);
    const forward = getComputedStyle(text).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
    const back = forward === "ArrowLeft" ? "ArrowRight" : "ArrowLeft";
    const step = event.key === forward ? 1 : event.key === back ? -1 : 0;
    const next = words[words.indexOf(event.target) + step];
    if (!step || !next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });

  // ---- controls -------------------------------------------------------------------------------
  // The direction of the whole page, where it has such a choice.
  const whole = find("#direction");
  function follow() {
    if (!whole || !filter) return;
    filter.value = directions.includes(whole.value) ? whole.value : "";
  }
  if (whole) whole.addEventListener("change", () => { follow(); choose(); });
  if (filter) filter.addEventListener("change", choose);
  order.addEventListener("change", choose);
  search.addEventListener("input", choose);
  earlier.addEventListener("click", () => turn(-1));
  later.addEventListener("click", () => turn(1));
  follow();
  choose();
})();
