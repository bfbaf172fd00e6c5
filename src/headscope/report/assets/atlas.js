"use strict";
// Heads, layers and scores: re-coloured and refilled when another direction, shade or order is
// chosen. A page that shows one direction alone lacks some of what is looked for.
(() => {
  const { data, find, all, fixed, NONE } = headscope;
  const STEPS = 16;
  const share = (value) => Math.min(1, Math.max(0, value / data.scale));
  const classOf = (score) =>
    score > data.threshold ? "token alignment" : score > data.inactive ? "low activity" : "inactive";

  const picker = find("#direction"), shade = find("#shade");
  const state = { direction: Object.keys(data.values)[0], key: data.rank, ascending: false, all: false };
  const values = () => data.values[state.direction];
  const at = (name, index) => (values()[name] ? values()[name][index] : null);
  const by = (index) => at(values()[data.rank] ? data.rank : "score", index);

  // ---- heat map -------------------------------------------------------------------------------
  const cells = all("#heatmap .cell"), dots = all("#heatmap .dot");
  function paint() {
    const shown = values()[shade.value] || [];
    cells.forEach((cell, index) => {
      const value = shown[index];
      const step = value === null || value === undefined
        ? "na" : "s" + Math.round(share(value) * STEPS);
      cell.setAttribute("class", "cell " + step);
      dots[index].setAttribute("class", (by(index) || 0) > data.threshold ? "dot" : "dot off");
    });
  }
  headscope.describe = (index) => {
    const [layer, head] = data.heads[index];
    const interval = at("low", index) === null ? "" :
      ` (${fixed(at("low", index), 3)} \u2013 ${fixed(at("high", index), 3)})`;
    const lines = [
      `Head ${layer}.${head}: ${classOf(by(index))}`,
      `TS ${fixed(at("score", index), 3)}${interval}`,
    ];
    if (at("chance", index) !== null) {
      lines.push(`chance ${fixed(at("chance", index), 3)}, TS \u2212 chance ${fixed(at("above", index), 3)}`);
    }
    if (values().identical || values().different) {
      lines.push(`same form ${fixed(at("identical", index), 3)}, other form ${fixed(at("different", index), 3)}`);
    }
    return lines.join("\n");
  };

  // ---- layer profile --------------------------------------------------------------------------
  function profile() {
    all("#profile-table tbody tr").forEach((row) => {
      const layer = Number(row.dataset.layer);
      const scores = values().score.filter((_, index) => data.heads[index][0] === layer);
      if (!scores.length) return;
      const mean = scores.reduce((sum, score) => sum + score, 0) / scores.length;
      const highest = Math.max(...scores);
      const bar = find(".bar", row);
      bar.style.setProperty("--v", share(mean));
      bar.style.setProperty("--h", share(highest));
      const numbers = all(".number", row);
      numbers[0].textContent = fixed(mean, 2);
      numbers[1].textContent = fixed(highest, 2);
      numbers[2].textContent = data.aligned[state.direction][layer];
    });
  }

  // ---- score table ----------------------------------------------------------------------------
  const ranking = find("#ranking-table"), more = find("#more");
  const pattern = ranking.tBodies[0].rows[0];
  function rank() {
    const indices = data.heads.map((_, index) => index);
    const ranked = [...indices].sort((a, b) => by(b) - by(a) || a - b);
    const place = new Map(ranked.map((index, position) => [index, position + 1]));
    const value = (index) => (state.key === "head" ? index : at(state.key, index));
    const sign = state.ascending ? 1 : -1;
    indices.sort((a, b) => {
      const [one, other] = [value(a), value(b)];
      if (one === null || other === null) return (one === null) - (other === null) || a - b;
      return sign * (one - other) || a - b;
    });
    const shown = state.all ? indices : indices.slice(0, Number(ranking.dataset.shown));
    ranking.tBodies[0].replaceChildren(...shown.map((index) => fill(index, place.get(index))));
    all("thead th", ranking).forEach((heading) => {
      if (heading.dataset.c === state.key) {
        heading.setAttribute("aria-sort", state.ascending ? "ascending" : "descending");
      } else heading.removeAttribute("aria-sort");
    });
  }
  function fill(index, position) {
    const row = pattern.cloneNode(true);
    const text = {
      rank: position,
      head: data.heads[index].join("."),
      score: fixed(at("score", index), 3),
      interval: at("low", index) === null ? NONE :
        `${fixed(at("low", index), 3)}\u2009\u2013\u2009${fixed(at("high", index), 3)}`,
      chance: fixed(at("chance", index), 3),
      above: fixed(at("above", index), 3),
      identical: fixed(at("identical", index), 3),
      different: fixed(at("different", index), 3),
      class: classOf(by(index)),
    };
    for (const [name, words] of Object.entries(text)) find(`[data-c=${name}]`, row).textContent = words;
    const marks = { v: "score", lo: "low", hi: "high", c: "chance" };
    for (const [mark, name] of Object.entries(marks)) {
      const style = find(".range", row).style, value = at(name, index);
      if (value === null) style.removeProperty(`--${mark}`);
      else style.setProperty(`--${mark}`, share(value));
    }
    return row;
  }
  all("thead button", ranking).forEach((button) => button.addEventListener("click", () => {
    const key = button.dataset.sort;
    state.ascending = state.key === key ? !state.ascending : key === "head";
    state.key = key;
    rank();
  }));
  const asked = more.textContent;
  more.addEventListener("click", () => {
    state.all = !state.all;
    more.setAttribute("aria-expanded", String(state.all));
    more.textContent = state.all ? `Show the first ${ranking.dataset.shown}` : asked;
    rank();
  });

  // ---- choices --------------------------------------------------------------------------------
  function direct() {
    if (picker) state.direction = picker.value;
    paint();
    profile();
    rank();
  }
  if (picker) picker.addEventListener("change", direct);
  shade.addEventListener("change", paint);
  direct();  // a browser may have kept the choices of an earlier visit
})();
