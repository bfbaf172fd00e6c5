"use strict";
// Sentences of the chosen head with an arc from each target token to the word of its peak, drawn as
// the page has them for the best head. Signs of tokens: + a hit, - a miss, . not counted.
(() => {
  const { data, find, all, describers, partners } = headscope, named = (key) => headscope.named(key.split(".")), picker = find("#direction");
  const LOOKS = { "+": ["key-base", "d0", "hit"], "-": ["key-top", "d1", "miss"], ".": ["key-off", "d2", "not counted"] };
  const isolated = (word) => `\u2068${word}\u2069`;

  function node(name, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    made.append(...children);
    return made;
  }
  all(".head-sentences").forEach((box) => {
    const { command, shown, texts, heads } = data[box.id], list = find(".arcs", box);
    const pattern = list.firstElementChild.cloneNode(true), [top, end, tokensAt, wordsAt] = [20, 84, 98, 14];

    function sentence([text, peaks, hit, hits, of], number) {
      const [, label, words, tokens, wordX, tokenX, width] = texts[text];
      const made = pattern.cloneNode(true), svg = find("svg", made);
      const above = words.map((word, at) => node("text", { x: wordX[at], y: wordsAt }, word));
      const below = tokens.map((token, at) => {
        const [colour, dashes, said] = LOOKS[hit[at]], peak = peaks[at], x = tokenX[at], middle = (top + end) / 2;
        const d = peak < 0 ? `M${x} ${end}v-14` : `M${x} ${end}C${x} ${middle} ${wordX[peak]} ${middle} ${wordX[peak]} ${top}`;
        const line = peak >= 0 || hit[at] === "-" ? [node("path", { d, class: dashes })] : [];
        const mark = node("g", { class: `cell ${colour}`, x, y: number }, ...line, node("text", { x, y: tokensAt }, token));
        describers.set(mark, () => `${isolated(token)} \u2192 ${peak < 0 ? "no source word" : isolated(words[peak])}: ${said}`);
        if (peak >= 0) partners.set(mark, above[peak]);
        return mark;
      });
      find("bdi", made).textContent = label;
      find("p", made).lastChild.textContent = ` \u00b7 ${hits} of ${of} hit`;
      svg.setAttribute("width", width);
      svg.setAttribute("viewBox", `0 0 ${width} ${svg.getAttribute("height")}`);
      svg.replaceChildren(...above, ...below);
      return made;
    }
    function draw() {
      const chosen = headscope.chosen(), head = chosen in heads ? chosen : Object.keys(heads)[0];
      const rows = heads[head], part = picker && texts.some(([own]) => own === picker.value) ? picker.value : null;
      const own = rows.filter(([text]) => part === null || texts[text][0] === part);
      list.replaceChildren(...own.slice(0, shown).map(sentence));
      const none = !own.length ? "This page holds no sentences of the head in this direction." : "";
      find("[role=status]", box).textContent =
        chosen && chosen !== head ? `This page holds no sentences of head ${named(chosen)}; these are of head ${named(head)}. ${none}` : none;
      all(".chip", box).forEach((chip) => {
        if (chip.hash === `#head=${head}`) chip.setAttribute("aria-current", "true");
        else chip.removeAttribute("aria-current");
      });
      find(".copy", box).dataset.text = find("code", box).textContent = `${command} ${chosen || head}`;
    }
    document.addEventListener("chosen-head", draw);
    if (picker) picker.addEventListener("change", draw);
    draw();
  });
})();
