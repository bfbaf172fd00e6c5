"use strict";
// Tables of all heads with their map and layers: coloured and filled again when another part,
// colour or order is chosen.
(() => {
  const { data, find, all, fixed, NONE } = headscope;
  const STEPS = 16, picker = find("#direction");

  all(".head-table").forEach((box) => {
    const { heads, columns, parts, ranked, threshold, significant, classes, highs, shown } = data[box.id];
    const share = (value, high = highs[columns[0][0]]) => Math.min(1, Math.max(0, value / high));
    const titles = new Map(columns.map(([key, title]) => [key, title]));
    const digits = new Map(columns.map(([key, , many]) => [key, many]));
    const first = columns[0][0], shade = find(".shade", box);
    const state = { part: Object.keys(parts)[0], key: ranked, ascending: false, all: false };
    const values = () => parts[state.part];
    const at = (key, index) => (values()[key] ? values()[key][index] : null);
    const classOf = (index) => {
      const found = classes.find(([, above]) => above === null || (at(ranked, index) || 0) > above);
      return found ? found[0] : "";
    };
    const dotted = (index) => (threshold !== null ? (at(ranked, index) || 0) > threshold :
      significant && at("low", index) !== null && at("low", index) > Math.max(at("chance", index) || 0, 0));
    const between = (index) => {
      const ends = [at("low", index), at("high", index)];
      if (ends[0] === null) return NONE;
      return ends.map((end) => fixed(end, digits.get(first))).join(Math.min(...ends) < 0 ? "\u00a0to\u00a0" : "\u2009\u2013\u2009");
    };

    const cells = all(".heatmap .cell", box), dots = all(".heatmap .dot", box);
    const bar = find(".heatmap .rampbar", box), pointer = find(".pointer", bar), most = bar.lastChild.textContent;
    function paint() {
      const key = shade ? shade.value : first, numbers = values()[key] || [], high = highs[key];
      const own = high !== highs[first];
      bar.lastChild.textContent = own ? fixed(high, digits.get(key)) : most;
      if (pointer) pointer.hidden = own;
      cells.forEach((cell, index) => {
        const value = numbers[index];
        cell.classList.remove(...Array.from(cell.classList).filter((name) => /^(s\d+|na)$/.test(name)));
        cell.classList.add(value === null || value === undefined ? "na" : `s${Math.round(share(value, high) * STEPS)}`);
        dots[index].setAttribute("class", dotted(index) ? "dot" : "dot off");
      });
    }
    const describe = (index) => {
      const lines = [`head ${heads[index].join(".")}${classes.length ? `: ${classOf(index)}` : ""}`];
      titles.forEach((title, key) => {
        if (key === "low" || key === "high") return;
        const ends = key === first && at("low", index) !== null ? ` (${between(index)})` : "";
        lines.push(`${title} ${fixed(at(key, index), digits.get(key))}${ends}`);
      });
      return lines.join("\n");
    };
    cells.forEach((cell) => headscope.describers.set(cell, describe));

    function profile() {
      all(".profile tbody tr", box).forEach((row) => {
        const own = heads.map((_, index) => index).filter((index) => heads[index][0] === Number(row.dataset.layer));
        const numbers = own.map((index) => at(first, index)).filter((value) => value !== null);
        if (!numbers.length) return;
        const mean = numbers.reduce((sum, value) => sum + value, 0) / numbers.length;
        const highest = Math.max(...numbers), told = all(".number", row), bar = find(".bar", row);
        bar.style.setProperty("--v", share(mean));
        bar.style.setProperty("--h", share(highest));
        told[0].textContent = fixed(mean, digits.get(first));
        told[1].textContent = fixed(highest, digits.get(first));
        if (told[2]) told[2].textContent = own.filter(dotted).length;
      });
    }

    const table = find(".ranking", box), more = find(".more", box), pattern = table.tBodies[0].rows[0];
    function rank() {
      const indices = heads.map((_, index) => index);
      const by = (index) => at(ranked, index) || 0;
      const order = [...indices].sort((a, b) => by(b) - by(a) || a - b);
      const place = new Map(order.map((index, position) => [index, position + 1]));
      const value = (index) => (state.key === "head" ? index : at(state.key, index));
      const sign = state.ascending ? 1 : -1;
      indices.sort((a, b) => {
        const [one, other] = [value(a), value(b)];
        if (one === null || other === null) return (one === null) - (other === null) || a - b;
        return sign * (one - other) || a - b;
      });
      const some = state.all ? indices : indices.slice(0, shown);
      table.tBodies[0].replaceChildren(...some.map((index) => fill(index, place.get(index))));
      all("thead th", table).forEach((heading) => {
        if (heading.dataset.c === state.key) {
          heading.setAttribute("aria-sort", state.ascending ? "ascending" : "descending");
        } else heading.removeAttribute("aria-sort");
      });
      headscope.mark();
    }
    function fill(index, position) {
      const row = pattern.cloneNode(true), name = heads[index].join(".");
      row.dataset.head = name;
      const texts = { rank: position, head: name, interval: between(index), class: classOf(index) };
      titles.forEach((_, key) => { texts[key] = fixed(at(key, index), digits.get(key)); });
      all("[data-c]", row).forEach((cell) => {
        if (cell.dataset.c in texts) cell.textContent = texts[cell.dataset.c];
      });
      const marks = { v: first, lo: "low", hi: "high", c: "chance" }, style = find(".range", row).style;
      for (const [mark, key] of Object.entries(marks)) {
        const value = at(key, index);
        if (value === null) style.removeProperty(`--${mark}`);
        else style.setProperty(`--${mark}`, share(value));
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
    find(".csv", box).addEventListener("click", () => {
      const keys = columns.map(([key]) => key).filter((key) => values()[key]);
      const lines = heads.map((head, index) => [...head, ...keys.map((key) => at(key, index) ?? "")].join(","));
      headscope.save(`${box.id}-${state.part}.csv`, [["layer", "head", ...keys].join(","), ...lines].join("\n"));
    });

    function draw() {
      if (picker && parts[picker.value]) state.part = picker.value;
      paint();
      profile();
      rank();
    }
    if (picker) picker.addEventListener("change", draw);
    if (shade) shade.addEventListener("change", paint);
    draw();  // a browser may have kept the choices of an earlier visit
  });
})();
