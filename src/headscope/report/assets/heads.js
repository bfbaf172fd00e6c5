"use strict";
// Tables of all heads with their map and layers: coloured and filled again when another part,
// colour or order is chosen.
(() => {
  const { data, find, all, fixed, NONE } = headscope;
  const STEPS = 16, picker = find("#direction");

  all(".head-table").forEach((box) => {
    const { heads, columns, parts, ranked, threshold, significant, classes, highs, span, shown, signed } = data[box.id];
    const below = document.getElementById(`${box.id}-below`);
    const first = columns[0][0], shade = find(".shade", box);
    const titles = new Map(columns.map(([key, title]) => [key, title]));
    const ways = new Map(columns.map(([key, , digits, factor]) => [key, { digits, factor }]));
    const state = { part: Object.keys(parts)[0], key: ranked, ascending: false, all: false };
    const share = (value, high = highs[first]) => Math.min(1, Math.max(0, value / high));
    // An effect counts by its size; its colours have two ends.
    const size = (value) => (signed ? Math.abs(value) : value);
    const step = (value, high) => {
      if (!signed) return `s${Math.round(share(value, high) * STEPS)}`;
      const half = STEPS / 2, own = Math.round(Math.min(1, Math.abs(value) / high) * half);
      return own ? `${value < 0 ? "n" : "q"}${own}` : "m0";
    };
    const values = () => parts[state.part];
    const at = (key, index) => (values()[key] ? values()[key][index] : null);
    // What is yet to be compared with chance: a score from which it has not been taken off.
    const chanceOf = (index) => (first === "score" ? at("chance", index) : null);
    const by = (index) => at(ranked, index) || 0, rankedBy = (index) => size(by(index));
    // A number as its column writes it: with so many decimals, times a factor.
    const write = (key, value) => {
      const { digits, factor } = ways.get(key);
      return fixed(value === null ? null : value * factor, digits);
    };
    const said = (key, index) => write(key, at(key, index));
    const classOf = (index) => (classes.find(([, above]) => above === null || by(index) > above) || [""])[0];
    const dotted = (index) => (threshold !== null ? by(index) > threshold :
      significant && at("low", index) !== null && (at("low", index) > Math.max(chanceOf(index) || 0, 0) || (signed && at("high", index) < 0)));
    const between = (index) => {
      const ends = [at("low", index), at("high", index)];
      if (ends[0] === null) return NONE;
      return ends.map((end) => write(first, end)).join(ends.some((end) => write(first, end).startsWith("\u2212")) ? "\u00a0to\u00a0" : "\u2009\u2013\u2009");
    };

    const cells = all(".heatmap .cell", box), dots = find(".heatmap .dots", box);
    const bar = find(".heatmap .rampbar", box), pointer = find(".pointer", bar), most = bar.lastChild.textContent, least = bar.firstChild.textContent;
    function paint() {
      const key = shade ? shade.value : first, own = highs[key] !== highs[first];
      bar.lastChild.textContent = own ? write(key, highs[key]) : most;
      bar.firstChild.textContent = signed && own ? write(key, -highs[key]) : least;
      if (pointer) pointer.hidden = key !== ranked;
      cells.forEach((cell, index) => {
        const value = at(key, index), chosen = cell.classList.contains("chosen-head");
        const colour = value === null ? "na" : step(value, highs[key]);
        cell.setAttribute("class", `cell ${colour}${chosen ? " chosen-head" : ""}`);
      });
      dots.replaceChildren(...heads.filter((_, index) => dotted(index)).map(([layer, head]) => {
        const dot = document.createElementNS(dots.namespaceURI, "circle");
        dot.setAttribute("class", "dot");
        dot.setAttribute("cx", head);
        dot.setAttribute("cy", layer);
        return dot;
      }));
    }
    cells.forEach((cell, index) => headscope.describers.set(cell, () => {
      const lines = [`head ${headscope.named(heads[index])}${classes.length ? `: ${classOf(index)}` : ""}`];
      titles.forEach((title, key) => {
        if (key === "low" || key === "high") return;
        const ends = key === first && at("low", index) !== null ? ` (${between(index)})` : "";
        lines.push(`${title} ${said(key, index)}${ends}`);
      });
      return lines.join("\n");
    }));

    function profile() {
      all(".profile tbody tr", below).forEach((row) => {
        const [layer, , mean, highest, many] = row.cells;
        const own = heads.map((_, index) => index).filter((index) => heads[index][0] === Number(layer.textContent));
        const numbers = own.map((index) => at(first, index)).filter((value) => value !== null);
        if (!numbers.length) return;
        const ends = [numbers.reduce((sum, value) => sum + value, 0) / numbers.length, numbers.reduce((most, value) => (size(value) > size(most) ? value : most))];
        ends.forEach((end, place) => {
          find(".bar", row).style.setProperty(place ? "--h" : "--v", share(size(end)));
          (place ? highest : mean).textContent = write(first, end);
        });
        if (many) many.textContent = own.filter(dotted).length;
      });
    }

    const table = find(".ranking", below), more = find(".more", below), pattern = table.tBodies[0].rows[0];
    const keys = all("thead th", table).map((heading) => heading.dataset.c);
    keys.forEach((key, column) => { pattern.cells[column].dataset.c = key; });
    function rank() {
      const indices = heads.map((_, index) => index);
      const order = [...indices].sort((a, b) => rankedBy(b) - rankedBy(a) || a - b);
      const place = new Map(order.map((index, position) => [index, position + 1]));
      const value = (index) => (state.key === "head" ? index : state.key === ranked && at(ranked, index) !== null ? rankedBy(index) : at(state.key, index));
      const sign = state.ascending ? 1 : -1;
      indices.sort((a, b) => {
        const [one, other] = [value(a), value(b)];
        if (one === null || other === null) return (one === null) - (other === null) || a - b;
        return sign * (one - other) || a - b;
      });
      const some = state.all ? indices : indices.slice(0, shown);
      table.tBodies[0].replaceChildren(...some.map((index) => fill(index, place.get(index))));
      all("thead th", table).forEach((heading) => {
        if (heading.dataset.c !== state.key) heading.removeAttribute("aria-sort");
        else heading.setAttribute("aria-sort", state.ascending ? "ascending" : "descending");
      });
      headscope.mark();
    }
    function fill(index, position) {
      const row = pattern.cloneNode(true), name = headscope.named(heads[index]);
      const texts = { rank: position, head: name, interval: between(index), class: classOf(index) };
      row.dataset.head = heads[index].join(".");
      keys.forEach((key, column) => {
        if (key !== "range") row.cells[column].textContent = key in texts ? texts[key] : said(key, index);
      });
      const marks = { v: first, lo: "low", hi: "high", ...(first === "score" && { c: "chance" }) }, style = find(".range", row).style;
      for (const [mark, key] of Object.entries(marks)) {
        if (at(key, index) === null) style.removeProperty(`--${mark}`);
        else style.setProperty(`--${mark}`, share(at(key, index) - span[0], span[1] - span[0]));
      }
      return row;
    }
    all("thead button", table).forEach((button) => button.addEventListener("click", () => {
      const key = button.dataset.sort;
      state.ascending = state.key === key ? !state.ascending : key === "head";
      state.key = key;
      rank();
    }));
    const asked = more.textContent;
    more.addEventListener("click", () => {
      state.all = !state.all;
      more.setAttribute("aria-expanded", String(state.all));
      more.textContent = state.all ? `Show the first ${shown}` : asked;
      rank();
    });
    find(".csv", below).addEventListener("click", () => {
      const known = [...titles.keys()].filter((key) => values()[key]);
      const lines = heads.map((head, index) => [...head, ...known.map((key) => at(key, index) ?? "")]);
      headscope.save(`${box.id}-${state.part}.csv`, [["layer", "head", ...known], ...lines].join("\n"));
    });

    function draw() {
      if (picker && parts[picker.value]) state.part = picker.value;
      paint();
      profile();
      rank();
    }
    if (picker) picker.addEventListener("change", draw);
    if (shade) shade.addEventListener("change", paint);
    // A browser may have kept the choices of an earlier visit.
    draw();
  });
})();
