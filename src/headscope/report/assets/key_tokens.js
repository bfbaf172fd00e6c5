"use strict";
// Key-token attention: the page shows means over all steps; here the key words take the shade of
// one step, chosen by pointer, by touch or by keyboard, and of one head or the mean of all.
(() => {
  const { find, all, fixed } = headscope;

  all(".key-reading").forEach((box) => {
    const data = headscope.data[box.id];
    const picker = find(".key-head", box), said = find(".key-said", box), answer = find(".key-answer", box);
    const marks = all(".key-word", box), tokens = all(".key-token", box);
    const state = { held: null, near: null };

    function shade(node, value) {
      const step = Math.min(data.ramp, Math.max(0, Math.round(value / data.scale * data.ramp)));
      const kept = Array.from(node.classList).filter((name) => !/^s\d+$/.test(name) && name !== "deep");
      node.setAttribute("class", [...kept, `s${step}`, ...(step >= data.deep ? ["deep"] : [])].join(" "));
    }
    const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;

    function paint() {
      const head = Number(picker.value);
      const attention = data.attention[head], mass = data.mass[head], even = data.even[head];
      const step = state.near === null ? state.held : state.near;
      const values = step === null
        ? data.words.map((_, word) => mean(attention.map((one) => one[word])))
        : attention[step];
      marks.forEach((mark) => {
        shade(mark, Math.max(...mark.dataset.of.split(" ").map((word) => values[Number(word)])));
      });
      tokens.forEach((token, index) => {
        shade(token, mass[index]);
        token.classList.toggle("now", index === step);
        token.classList.toggle("held", index === state.held);
        token.setAttribute("aria-selected", String(index === state.held));
      });
      tell(step, values, step === null ? mean(mass) : mass[step], step === null ? mean(even) : even[step]);
    }
    function tell(step, values, whole, even) {
      const parts = [];
      const add = (text, isolated) => {
        const node = document.createElement(isolated ? "bdi" : "span");
        node.textContent = text;
        parts.push(node);
      };
      if (step === null || !tokens.length) add("mean over all steps: ");
      else {
        add(`step ${step + 1} of ${tokens.length}, which predicts `);
        add(data.tokens[step], true);
        add(": ");
      }
      data.words.forEach((word, index) => {
        if (index) add(", ");
        add(word, true);
        add(` ${fixed(values[index], 3)}`);
      });
      add(`; all key words ${fixed(whole, 3)}, spread evenly ${fixed(even, 3)}`);
      said.replaceChildren(...parts);
    }

    picker.addEventListener("change", paint);
    const stepOf = (node) => {
      const token = node.closest && node.closest(".key-token");
      return token ? Number(token.dataset.step) : null;
    };
    const near = (step) => { state.near = step; paint(); };
    const hold = (step) => { state.held = state.held === step ? null : step; };
    const turn = (by) => {
      const from = state.held === null ? (by > 0 ? -1 : tokens.length) : state.held;
      state.held = Math.min(tokens.length - 1, Math.max(0, from + by));
      near(null);
    };
    const on = (kind, react) => answer.addEventListener(kind, (event) => react(event, stepOf(event.target)));
    if (answer && tokens.length) {
      answer.setAttribute("role", "listbox");
      tokens.forEach((token, index) => {
        token.setAttribute("role", "option");
        // One stop for the tabulator; the arrow keys walk from there.
        token.tabIndex = index ? -1 : 0;
      });
      find(".key-before", box).addEventListener("click", () => turn(-1));
      find(".key-after", box).addEventListener("click", () => turn(1));
      on("pointerover", (event, step) => { if (event.pointerType === "mouse") near(step); });
      on("pointerleave", (event) => { if (event.pointerType === "mouse") near(null); });
      on("click", (event, step) => {
        if (step === null) return;
        hold(step);
        near(null);
      });
      // A click focuses, too, and is a choice of its own.
      on("focusin", (event, step) => { if (event.target.matches(":focus-visible")) near(step); });
      on("focusout", () => near(null));
      on("keydown", (event, step) => {
        if (step === null) return;
        if (event.key === "Escape") {
          state.held = null;
          return near(null);
        }
        const last = tokens.length - 1, places = {
          ArrowLeft: step - 1, ArrowUp: step - 1, ArrowRight: step + 1, ArrowDown: step + 1, Home: 0, End: last,
        };
        if (!(event.key in places) && event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        if (!(event.key in places)) {
          hold(step);
          return paint();
        }
        const next = Math.min(last, Math.max(0, places[event.key]));
        tokens.forEach((token, index) => { token.tabIndex = index === next ? 0 : -1; });
        tokens[next].focus();
      });
    }
    paint();
  });
})();
