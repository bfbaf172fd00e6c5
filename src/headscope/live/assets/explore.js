// The explorer: gates on a map of heads, and what the model writes under them, beside the original
// and random heads. Text of models and users goes in as text alone. `transport.ask(kind, body,
// onEvent)` asks the engine and gives `{ cancel }`; its last event is always `end`.

const NAMES = { original: "Original", gated: "Selected", random: "Random" }, OTHERS = ["gated", "random"];
const COLOURS = { original: "base", gated: "top", random: "random" };
const NONE = "\u2013", RAMP = 16, CELL = 0.93, KEPT = 100, LONGEST = 512;
// A gate is written in cells of so many pixels; steps within so many ms are one of the browser's history;
// a word of the source arrives every so many ms.
const NUMBERED = 20, PAUSE = 500, ARRIVAL = 700;

// ---- numbers and elements ---------------------------------------------------------------------
const known = (value) => value !== null && value !== undefined;
function fixed(value, digits = 3) {
  if (!known(value)) return NONE;
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "\u2212");
}
const signed = (value, digits = 2) => (value > 0 && Number(value.toFixed(digits)) ? "+" : "") + fixed(value, digits);
const count = (number, name) => `${number} ${name}${number === 1 ? "" : "s"}`;
const gateText = (gate) => String(Number(gate.toFixed(2))).replace("-", "\u2212");
const clamp = (value, [low, high]) => Math.min(high, Math.max(low, value));
// The colour of a value on the ramp of two sides, from -end to end.
function twoSided(value, end) {
  const step = Math.round(clamp(value / end, [-1, 1]) * RAMP / 2);
  return !known(value) ? "na" : step < 0 ? `n${-step}` : step > 0 ? `q${step}` : "m0";
}
const quoted = (text) => `\u201c${text.trim() || text.replaceAll("\n", "\u21b5")}\u201d`;
// A head as it is written, L5.H3; messages and addresses have its key, 5.3.
const headName = (key) => `L${key.replace(".", ".H")}`;
const few = (list) => (list.length > 4 ? count(list.length, "head") : list.map(headName).join(", "));

function make(name, attributes = {}, ...children) {
  const space = ["g", "path", "text"].includes(name) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const node = document.createElementNS(space, name);
  Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
  node.append(...children);
  return node;
}
function vary(node, values) {
  Object.entries(values).forEach(([name, value]) => node.style.setProperty(name, value));
  return node;
}
function download(name, type, text) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}
// Spans count characters, not UTF-16 units: where each character of a text begins, of a few texts.
const measured = new Map();
function unitsOf(text) {
  if (measured.has(text)) return measured.get(text);
  const starts = [0];
  for (const sign of text) starts.push(starts.at(-1) + sign.length);
  if (measured.size > 7) measured.clear();
  measured.set(text, starts);
  return starts;
}
const slice = (text, [start, end]) => text.slice(unitsOf(text)[start], unitsOf(text)[end]);
// A text as nodes: what `span` makes of the pieces in spans, without the space before them, and the rest.
function pieces(text, spans, span) {
  const nodes = [];
  let reached = 0;
  spans.forEach(([start, end], at) => {
    const piece = slice(text, [Math.max(start, reached), end]), space = piece.match(/^\s*/)[0];
    nodes.push(slice(text, [reached, start]), space, span(piece.slice(space.length), at));
    reached = Math.max(reached, end);
  });
  return [...nodes, slice(text, [reached])];
}
// Tokens are used again: a run changes their texts and classes, not the elements.
function setToken(list, at, text, mark = "", words = "") {
  const token = list.children[at] || list.appendChild(make("span", { role: "option", tabindex: at ? -1 : 0 }));
  const shown = text.replaceAll("\n", "\u21b5\n");
  if (token.textContent !== shown) token.textContent = shown;
  token.className = `tok ${mark}`;
  token.setAttribute("aria-label", `${text.trim() || quoted(text)}${words && `, ${words}`}`);
}
function setTokens(list, texts) {
  while (list.children.length > texts.length) list.lastChild.remove();
  texts.forEach((text, at) => setToken(list, at, text));
}

// ---- transports -------------------------------------------------------------------------------
export function pageTransport() {
  async function stream(kind, body, onEvent, signal) {
    const answer = await fetch(`/ask/${kind}`, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal,
    });
    if (!answer.ok) throw new Error((await answer.json()).error);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let waiting = "", last = {};
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const messages = (waiting + part.value).split("\n\n");
      waiting = messages.pop();
      messages.filter((text) => text.startsWith("data: ")).forEach((text) => {
        last = JSON.parse(text.slice(6));
        onEvent(last);
      });
    }
    if (last.event !== "end") throw new Error("The answer broke off. Is headscope explore still running?");
  }
  function ask(kind, body, onEvent) {
    const controller = new AbortController();
    stream(kind, body, onEvent, controller.signal).catch((failure) => {
      const lost = failure instanceof TypeError ? "No answer: is headscope explore still running? " : "";
      if (!controller.signal.aborted) onEvent({ event: "error", error: lost + failure.message });
    });
    return { cancel: () => controller.abort() };
  }
  return { ask, address: true };
}
function widgetTransport(model) {
  // Every view of a widget hears all messages, so the names of its questions are its own.
  const own = Math.random().toString(36).slice(2), questions = new Map();
  let asked = 0;
  function hear(message) {
    questions.get(message.id)?.(message);
    if (message.event === "end") questions.delete(message.id);
  }
  function ask(kind, body, onEvent) {
    const id = `${own}-${asked += 1}`;
    questions.set(id, onEvent);
    model.send({ id, kind, body });
    return { cancel: () => questions.delete(id) && model.send({ id, kind: "cancel" }) };
  }
  model.on("msg:custom", hear);
  return { ask, close: () => model.off("msg:custom", hear) };
}
export default {
  render({ model, el }) {
    const shadow = el.attachShadow({ mode: "open" }), style = new CSSStyleSheet();
    style.replaceSync(model.get("css"));
    shadow.adoptedStyleSheets = [style];
    const root = shadow.appendChild(make("div", { class: "explorer" }));
    root.append(...new DOMParser().parseFromString(model.get("html"), "text/html").body.childNodes);
    const transport = widgetTransport(model), page = mount(root, transport, model.get("about"));
    return () => [page, transport].forEach((each) => each.close());
  },
};

// ---- gates as text: `5:0,4.3:0.5`; a layer whose heads all have one gate is written once ----------
function writeGates(gates, counts) {
  let end = 0;
  return counts.flatMap((size, layer) => {
    const own = gates.slice(end, end += size);
    if (size > 1 && own.every((gate) => gate === own[0])) return own[0] === 1 ? [] : [`${layer}:${own[0]}`];
    return own.flatMap((gate, head) => (gate === 1 ? [] : [`${layer}.${head}:${gate}`]));
  }).join(",");
}
function readGates(text, heads, bounds) {
  const given = new Map(text.split(",").map((part) => part.split(":")));
  return heads.map(([layer, head]) => {
    const gate = Number(given.get(`${layer}.${head}`) ?? given.get(String(layer)) ?? 1);
    return Number.isFinite(gate) ? clamp(gate, bounds) : 1;
  });
}

// ---- the page ---------------------------------------------------------------------------------
export function mount(root, transport, about) {
  const closing = new AbortController(), { signal } = closing;
  const find = (selector, within = root) => within.querySelector(selector);
  const all = (selector, within = root) => Array.from(within.querySelectorAll(selector));
  function on(target, kinds, react) {
    if (target) kinds.split(" ").forEach((kind) => target.addEventListener(kind, react, { signal }));
  }
  const press = (buttons) => Object.entries(buttons).forEach(([name, react]) => on(find(`.${name}`), "click", react));

  const heads = about.counts.flatMap((size, layer) => Array.from({ length: size }, (_, head) => [layer, head]));
  const names = heads.map((head) => head.join(".")), places = new Map(names.map((name, at) => [name, at]));
  const state = { input: null, gates: [], current: 0, pinned: null, draw: 0, control: "random", seen: 1, arrives: false, step: null };
  // What the engine has said of this input and these gates.
  const view = {
    prompt: null, lanes: {}, shift: {}, attention: {}, alone: null, control: [], source: null, steps: [], lag: null, drafted: [],
    effects: null,
  };
  let past = [], future = [];
  let runs = 0, asked = null, frame = 0, unwritten = false, written = 0, dragging = false;
  all("[data-style]").forEach((node) => { node.style.cssText = node.dataset.style; });
  root.dataset.run = 0;

  const changed = () => names.filter((_, at) => state.gates[at] !== 1);
  const pinnedName = () => names[state.pinned] ?? null;
  const fail = (words) => Object.assign(find(".failure"), { textContent: words, hidden: !words });
  // Words at a mark, in the first place where they cover neither the numbers in words nor a key.
  function tip(mark, words) {
    const box = find(".tip");
    box.hidden = !mark;
    if (!mark) return;
    box.textContent = words;
    const at = mark.getBoundingClientRect(), { width, height } = box.getBoundingClientRect(), gap = 8;
    const around = (mark.closest("svg") || mark).getBoundingClientRect();
    const [wide, high] = [document.documentElement.clientWidth, window.innerHeight];
    const left = clamp(at.left, [gap, Math.max(gap, wide - width - gap)]), top = clamp(at.top, [gap, Math.max(gap, high - height - gap)]);
    const kept = all(".head-words, .reading, .legend, .rampbar").map((each) => each.getBoundingClientRect());
    const place = [
      [left, at.bottom + gap], [left, at.top - height - gap], [around.right + gap, top], [around.left - width - gap, top],
    ].find(([x, y]) => x >= 0 && y >= 0 && x + width <= wide && y + height <= high && kept.every((other) => (
      x + width <= other.left || x >= other.right || y + height <= other.top || y >= other.bottom)));
    box.hidden = !place;
    if (place) [box.style.left, box.style.top] = place.map((end) => `${end}px`);
  }
  on(window, "scroll", () => tip(null));

  // ---- scores -----------------------------------------------------------------------------------
  const shade = find(".shade"), EFFECT = "effect";
  function chosen() {
    if (!shade.value) return {};
    if (shade.value === EFFECT) return { scores: view.effects, column: view.effects.columns[0] };
    const [at, key] = shade.value.split(" "), scores = about.scores[at];
    return { scores, column: scores.columns.find((column) => column.key === key) };
  }
  const ofRun = () => (shade.value === EFFECT ? about.scores[0] : chosen().scores);
  // What each head does when it is removed by itself, as the scores of a run: for this text alone.
  function effects({ of = "reference", values = heads.map(() => null), high = 1, signed = true } = {}) {
    const size = (at) => Math.abs(values[at]), rank = heads.map(() => Infinity), title = "effect when removed";
    const sorted = names.map((_, at) => at).filter((at) => known(values[at])).sort((a, b) => size(b) - size(a));
    sorted.forEach((at, place) => { rank[at] = place + 1; });
    return { name: null, of, rank, by_size: true, k: about.scores[0]?.k ?? 5, columns: [{ key: EFFECT, title, values, high, signed }] };
  }
  // [title, value] of all columns; an interval is of the score itself, not of what is corrected for chance.
  function numbersOf(scores, at) {
    const valueOf = (key) => scores.columns.find((column) => column.key === key)?.values[at];
    const [low, high] = [valueOf("low"), valueOf("high")];
    const shown = scores.columns.filter(({ key }) => key !== "low" && key !== "high");
    const first = (shown.find(({ key }) => key === "score") ?? shown[0]).key;
    const interval = known(low) && known(high) ? ` (95\u00a0% CI ${fixed(low)} to ${fixed(high)})` : "";
    return shown.map(({ key, title, values }) => [title, fixed(values[at]) + (key === first ? interval : "")]);
  }
  const rankOf = (scores, at) => `rank ${Number.isFinite(scores.rank[at]) ? scores.rank[at] : NONE} of ${heads.length}${scores.by_size ? " by size" : ""}`;
  view.effects = effects();
  function describe(at) {
    const { scores } = chosen(), lines = [`head ${headName(names[at])}: gate ${gateText(state.gates[at])}`];
    if (scores?.classes) lines[0] += ` \u00b7 ${scores.classes[at]}`;
    if (!scores) return lines[0];
    lines.push(...numbersOf(scores, at).map((pair) => pair.join(" ")), rankOf(scores, at));
    return lines.join("\n");
  }

  // ---- the map of heads -------------------------------------------------------------------------
  const map = find(".map svg"), cells = all(".cell", map), field = cells[0].parentNode;
  const pitch = Number(map.dataset.pitch), shift = field.getAttribute("transform");
  const [left, top] = shift.match(/[\d.]+/g).map((number) => Number(number) + CELL * pitch / 2);
  const overlay = map.appendChild(make("g", { class: "marks", transform: shift, "aria-hidden": true }));
  const numbers = map.appendChild(make("g", { class: "signs letters", "aria-hidden": true }));
  numbers.setAttribute("transform", `translate(${left} ${top})`);
  const lines = Object.fromEntries(["drawn", "zero", "other"].map((kind) => [kind, ["halo", "line"].map((part) => (
    overlay.appendChild(make("path", { class: `${kind} ${part}` }))))]));
  // A grid of rows for those who do not see it; one stop of the Tab key, arrows go on from there.
  map.setAttribute("role", "grid");
  map.removeAttribute("tabindex");
  find(".ticks", map).setAttribute("aria-hidden", true);
  about.counts.forEach((size, layer) => {
    const row = make("g", { role: "row", "aria-label": `layer ${layer}` });
    row.append(...cells.filter((_, at) => heads[at][0] === layer));
    if (size) field.append(row);
  });
  cells.forEach((cell, at) => {
    cell.setAttribute("role", "gridcell");
    cell.setAttribute("tabindex", -1);
    cell.dataset.head = names[at];
  });

  function paint() {
    const { scores, column } = chosen();
    find(".top").disabled = !column?.values.some(known);
    all(".heads .rampbar").forEach((bar) => { bar.hidden = true; });
    if (!column) {
      cells.forEach((cell) => cell.setAttribute("class", "cell plain"));
      find(".shown").textContent = "A cell is a head. Colours show no scores: none were given.";
      return mark();
    }
    const { high, signed: both } = column, [single, double] = all(".heads .rampbar"), bar = both ? double : single;
    cells.forEach((cell, at) => {
      const value = column.values[at], step = Math.round(clamp(value / high, [0, 1]) * RAMP);
      cell.setAttribute("class", `cell ${both ? twoSided(value, high) : known(value) ? `s${step}` : "na"}`);
    });
    [single.hidden, double.hidden] = [both, !both];
    const low = both ? fixed(-high) : column.values.some((value) => value < 0) ? "0 or less" : "0";
    bar.firstChild.textContent = `${column.title}: ${low}`;
    bar.lastChild.textContent = both ? signed(high, 3) : fixed(high);
    const darker = "Darker (in a dark scheme, lighter)";
    find(".shown").textContent = column.key === EFFECT
      ? `Blue: without this head alone log p(${scores.of}) falls; orange: it rises. Nats, this text.`
      : `A cell is a head. ${both ? `Blue: below 0, orange: above. ${darker}: larger` : `${darker}: higher ${column.title}`}.`;
    find(".top").textContent = scores.by_size ? "largest" : "highest";
    mark();
  }
  // Gates, the control and the pinned head, each by its own mark, and in the names of the cells.
  function mark() {
    const { column } = chosen(), control = new Set(view.control), texts = [];
    const paths = { drawn: "", zero: "", other: "" };
    cells.forEach((cell, at) => {
      const [y, x] = heads[at], gate = state.gates[at], drawn = control.has(names[at]);
      if (drawn) paths.drawn += `M${x} ${y}h${CELL}v${CELL}h-${CELL}z`;
      if (gate === 0) paths.zero += `M${x + 0.2} ${y + 0.2}l.53 .53m0 -.53l-.53 .53`;
      else if (gate !== 1 && pitch >= NUMBERED) texts.push(make("text", { x: pitch * x, y: pitch * y }, gateText(gate)));
      else if (gate !== 1) paths.other += `M${x + 0.215} ${y + 0.465}a.25 .25 0 1 0 .5 0a.25 .25 0 1 0 -.5 0`;
      const said = [`head ${headName(names[at])}`, `gate ${gateText(gate)}`, column && `${column.title} ${fixed(column.values[at])}`,
        at === state.pinned && "pinned", drawn && "random control"].filter(Boolean).join(", ");
      if (cell.getAttribute("aria-label") !== said) cell.setAttribute("aria-label", said);
      cell.classList.toggle("chosen-head", at === state.pinned);
    });
    Object.entries(paths).forEach(([kind, path]) => lines[kind].forEach((line) => line.setAttribute("d", path)));
    numbers.replaceChildren(...texts);
    showCurrent(state.current);
    find("[data-lane=gated] .heads-of").textContent = few(changed());
    find(".selected-count").textContent = `${count(changed().length, "head")} selected`;
    find(".undo").disabled = !past.length;
    find(".redo").disabled = !future.length;
    find(".drawn-from").value = state.control;
    find(".drawn-count").textContent = `draw ${state.draw + 1} \u00b7 ${count(state.seen, "draw")} seen`;
    showPinned();
  }
  function showCurrent(at) {
    cells[state.current].classList.remove("current");
    cells[state.current].setAttribute("tabindex", -1);
    state.current = at;
    cells[at].classList.add("current");
    cells[at].setAttribute("tabindex", 0);
    find(".head-words").textContent = describe(at).replaceAll("\n", " \u00b7 ");
    find(".current-head").textContent = `Gate of ${headName(names[at])}`;
    find(".slider").value = find(".gate-value").value = Number(state.gates[at].toFixed(3));
    find(".pin").textContent = state.pinned === at ? "Unpin" : "Pin";
    find(".pin").setAttribute("aria-pressed", state.pinned === at);
  }
  const cellAt = (event) => places.get(event.target.closest(".cell")?.dataset.head);
  const beside = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  function neighbour(at, [down, across]) {
    let layer = heads[at][0] + down;
    while (about.counts[layer] === 0) layer += down;
    return places.get(`${layer}.${Math.min(heads[at][1] + across, about.counts[layer] - 1)}`) ?? at;
  }
  on(map, "pointerover", (event) => {
    const at = cellAt(event);
    tip(cells[at], known(at) ? describe(at) : "");
  });
  on(map, "pointerleave focusout", () => tip(null));
  on(map, "focusin", (event) => {
    showCurrent(cellAt(event));
    if (event.target.matches(":focus-visible")) tip(event.target, describe(state.current));
  });
  on(map, "click", (event) => {
    const at = cellAt(event);
    if (!known(at)) return;
    cells[at].focus({ preventScroll: true });
    if (event.shiftKey) return find(".gate-value").select();
    toggle(at);
    tip(cells[at], describe(at));
  });
  on(map, "keydown", (event) => {
    const at = cellAt(event), step = { "+": 0.25, "=": 0.25, "-": -0.25, "\u2212": -0.25 }[event.key];
    if (!known(at) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in beside) cells[neighbour(at, beside[event.key])].focus();
    else if (event.key === "Enter" || event.key === " ") toggle(at);
    else if (event.key === "p") pin(at);
    else if (event.key === "Escape") tip(null);
    else if (step) setGate(at, state.gates[at] + step);
    else return;
    event.preventDefault();
  });
  on(shade, "change", () => {
    find(".k").value = chosen().scores?.k ?? find(".k").value;
    paint();
    if (shade.value === EFFECT) ask();
    else writeAddress();
  });

  // ---- gates ------------------------------------------------------------------------------------
  function setGates(gates, remember = true) {
    if (remember) [past, future] = [[...past, state.gates].slice(-KEPT), []];
    state.gates = gates;
    mark();
    ask();
  }
  function setGate(at, gate, remember = true) {
    const value = Number(clamp(gate, about.gate).toFixed(3));
    if (!Number.isFinite(value) || value === state.gates[at]) return false;
    setGates(state.gates.with(at, value), remember);
    find(".announcer").textContent = `head ${headName(names[at])}: gate ${gateText(value)}`;
    return true;
  }
  const toggle = (at) => setGate(at, state.gates[at] === 0 ? 1 : 0);
  function restep(from, to) {
    to.push(state.gates);
    setGates(from.pop(), false);
  }
  const every = names.map((_, at) => at);
  function remove(some, draws = 0) {
    state.seen += draws;
    setGates(every.map((at) => (some.includes(at) ? 0 : 1)));
  }
  const wanted = () => clamp(Math.round(find(".k").valueAsNumber) || 1, [1, heads.length]);
  const best = (scores = chosen().scores) => every.filter((at) => scores?.rank[at] <= wanted());
  function sample(list, size) {
    const rest = [...list];
    return Array.from({ length: size }, () => rest.splice(Math.floor(Math.random() * rest.length), 1)[0]);
  }
  // As many heads of each layer as are selected or, where none is, as the highest k (or any k) have.
  function sampleLayers() {
    const highest = find(".top").disabled ? sample(every, wanted()) : best();
    const model = changed().length ? every.filter((at) => state.gates[at] !== 1) : highest;
    const of = (list, layer) => list.filter((at) => heads[at][0] === layer);
    return about.counts.flatMap((_, layer) => sample(of(every, layer), of(model, layer).length));
  }
  function pin(at) {
    state.pinned = state.pinned === at ? null : at;
    mark();
    ask();
  }
  function see(another) {
    Object.assign(state, another, { seen: state.seen + 1 });
    mark();
    ask();
  }
  press({
    undo: () => restep(past, future), redo: () => restep(future, past),
    top: () => remove(best()), everything: () => remove(every), nothing: () => remove([]),
    random: () => remove(sample(every, wanted()), 1), "random-layers": () => remove(sampleLayers(), 1),
    pin: () => pin(state.current), draw: () => see({ draw: state.draw + 1 }),
  });
  all(".given-set").forEach((button, at) => on(button, "click", () => {
    setGates(names.map((name) => about.sets[at].gates[name] ?? 1));
  }));
  on(find(".drawn-from"), "change", () => see({ control: find(".drawn-from").value }));
  // A drag is one step of undo.
  on(find(".slider"), "input", () => {
    dragging = setGate(state.current, find(".slider").valueAsNumber, !dragging) || dragging;
  });
  on(find(".slider"), "change", () => { dragging = false; });
  on(find(".gate-value"), "change", () => {
    setGate(state.current, find(".gate-value").valueAsNumber);
    showCurrent(state.current);
  });

  // ---- input ------------------------------------------------------------------------------------
  // A reference and a language are of one text, used in one way. When another is typed they go with
  // it, unless the reference was typed too; when it comes back, so do they.
  const form = () => [".own-text", ".kind", ".own-reference"].map((name) => find(name).value);
  const pairOf = (kind) => (kind === "prompt" || kind === "chat" ? null : kind);
  let filled = form();
  function sameText() {
    const [text, kind] = form();
    return text === filled[0] && pairOf(kind) === pairOf(filled[1]);
  }
  function fitReference() {
    const field = find(".own-reference"), own = filled[2];
    if (sameText()) field.value ||= own;
    else if (field.value === own) field.value = "";
  }
  on(find(".own-text"), "input", fitReference);
  on(find(".kind"), "change", fitReference);
  function fromForm() {
    const [text, kind, reference] = form(), given = { reference: reference.trim() || null };
    if (pairOf(kind)) return { sentence: text, pair: kind, ...given };
    const language = sameText() ? state.input?.language ?? null : null;
    return { prompt: text, ...given, language, chat: kind === "chat" };
  }
  function setInput(input, write = true) {
    state.input = input;
    find(".own-text").value = input.sentence ?? input.prompt ?? "";
    find(".own-reference").value = input.reference ?? "";
    find(".kind").value = input.pair ?? (input.chat ? "chat" : "prompt");
    filled = form();
    view.effects = effects();
    if (shade.value === EFFECT) paint();
    endArrival();
    ask(write);
  }
  function askOwn() {
    if (find(".own-text").value.trim()) setInput(fromForm());
    else fail("There is no text. Type a sentence or a prompt.");
  }
  press({ go: askOwn, earlier: () => takeSentence(sentence - 1), later: () => takeSentence(sentence + 1) });
  on(find(".input"), "keydown", ({ key, target, ctrlKey, metaKey }) => {
    if (key === "Enter" && (target.matches("input") || ctrlKey || metaKey)) askOwn();
  });
  all(".example-input").forEach((button, at) => on(button, "click", () => setInput(about.examples[at].input)));
  let sentence = -1;
  function takeSentence(at) {
    transport.ask("sentence", { pair: find(".of-data").value, at }, (event) => {
      if (event.event === "error") fail(event.error);
      if (event.event !== "sentence") return;
      sentence = event.at;
      find(".data-place").textContent = `${sentence + 1} of ${event.of}`;
      find(".earlier").disabled = sentence <= 0;
      find(".later").disabled = sentence >= event.of - 1;
      setInput(event.input);
    });
  }
  on(find(".of-data"), "change", () => takeSentence(0));

  // ---- a run ------------------------------------------------------------------------------------
  const body = () => ({
    input: state.input, draw: state.draw, control: state.control, pinned: pinnedName(),
    gates: Object.fromEntries(changed().map((name) => [name, state.gates[places.get(name)]])),
    scores: chosen().scores?.name ?? null, effects: shade.value === EFFECT,
    new_tokens: clamp(Math.round(find(".length").valueAsNumber) || about.new_tokens, [1, LONGEST]),
  });
  // All that happens in a frame is one question.
  function ask(write = true) {
    unwritten = unwritten || write;
    if (write) fail("");
    frame = frame || requestAnimationFrame(run);
  }
  function run() {
    showMode();
    if (unwritten) writeAddress();
    frame = 0;
    unwritten = false;
    if (!state.input) return;
    if (asked) asked.cancel();
    const own = runs += 1;
    Object.assign(root.dataset, { run: own, state: "waiting" });
    // Nothing of the last input may stand beside what is said of this one.
    Object.assign(view, { lanes: {}, shift: {}, attention: {}, alone: null });
    look(null);
    all(".tokens, .place, .lane .facts, .attended").forEach((node) => node.classList.add("stale"));
    const question = arrives() ? ["interpret", arrival()] : ["run", body()];
    asked = transport.ask(...question, (event) => { if (own === runs) events[event.event]?.(event); });
  }
  const events = {
    prompt: showPrompt, token: showToken, lane: showLane, shift: showShift, place: showPlace,
    same: () => {
      OTHERS.forEach((lane) => empty(lane, "No gate is changed: the output is the original."));
      showPlace(null);
    },
    effects: (event) => {
      view.effects = effects(event);
      if (shade.value === EFFECT) paint();
    },
    head: ({ alone }) => {
      view.alone = alone;
      showPinned();
    },
    attention: (event) => {
      view.attention[event.lane] = event;
      look(looked);
      if (event.lane === "original") showAttended();
    },
    source: (event) => {
      Object.assign(view, { source: event, steps: [] });
      setPlace(place);
    },
    read: (event) => setPlace(view.steps.push(event) && place),
    interpreted: ({ lag }) => {
      view.lag = lag;
      setPlace(place);
    },
    done: () => {
      if (find(".place").classList.contains("stale")) showPlace(null, "There is no text whose probability could change.");
      root.dataset.state = "done";
    },
    error: ({ error }) => {
      fail(error);
      endArrival();
      root.dataset.state = "failed";
    },
    displaced: () => events.error({ error: "Another window took over. Change a gate or press Run to go on here." }),
  };

  // ---- lanes ------------------------------------------------------------------------------------
  const within = (lane, selector) => find(`[data-lane=${lane}] ${selector}`);
  function tokensOf(lane, kind = "written") {
    const list = within(lane, `.${kind} .tokens`);
    list.classList.remove("stale");
    return list;
  }
  function showPrompt(prompt) {
    const { text, source, control } = prompt, box = find(".prompt");
    if (view.prompt?.text !== text) {
      // No elements of tokens, which a long prompt has tens of thousands of.
      box.replaceChildren(...(source ? pieces(text, [source], (piece) => make("span", { class: "asked" }, piece)) : [text]));
      box.scrollTop = (find(".asked", box)?.offsetTop ?? box.offsetTop) - box.offsetTop - 8;
    }
    view.prompt = prompt;
    view.control = control || [];
    mark();
    within("random", ".heads-of").textContent = few(view.control);
    if (!control && changed().length) {
      empty("random", prompt.control_note ?? "");
      showPlace(null, prompt.control_note);
    }
  }
  // A token or word of the prompt, without the space before it.
  function stretch(span) {
    const box = find(".prompt"), nodes = Array.from(box.childNodes, (node) => node.firstChild ?? node);
    const units = unitsOf(view.prompt.text), lead = slice(view.prompt.text, span).match(/^\s*/)[0].length;
    const range = document.createRange(), [start, end] = [units[span[0]] + lead, units[span[1]]];
    let reached = 0;
    nodes.forEach((node) => {
      if (start >= reached && start <= reached + node.length) range.setStart(node, start - reached);
      if (end > reached && end <= reached + node.length) range.setEnd(node, end - reached);
      reached += node.length;
    });
    return range;
  }
  function empty(lane, words) {
    delete view.lanes[lane];
    [tokensOf(lane), tokensOf(lane, "shifted")].forEach((list) => list.replaceChildren());
    within(lane, ".total").textContent = "";
    within(lane, ".facts").classList.remove("stale");
    within(lane, ".ending").textContent = words;
    all("dd", within(lane, ".facts")).forEach((cell) => { cell.textContent = NONE; });
  }
  function showToken({ lane, at, text, diverges }) {
    const list = tokensOf(lane);
    if (at === 0) setTokens(list, []);
    within(lane, ".ending").textContent = "";
    setToken(list, at, text, ...(diverges ? FORK : []));
  }
  const FORK = ["fork", "the first token that differs"];
  function showLane(said) {
    const { lane, tokens, diverges, text } = said, forked = known(diverges) && diverges < tokens.length;
    view.lanes[lane] = said;
    setTokens(tokensOf(lane), tokens);
    if (forked) setToken(tokensOf(lane), diverges, tokens[diverges], ...FORK);
    if (lane === "original") OTHERS.forEach((each) => setTokens(within(each, ".shifted .tokens"), tokens));
    const compared = forked ? `First differs at token ${diverges + 1} of ${tokens.length}.`
      : known(diverges) ? `Ends after token ${diverges}, before the original.` : "Same text as the original.";
    const cut = said.ended === "limit" ? `Cut after ${count(tokens.length, "token")}.` : "";
    const ending = [tokens.length ? "" : "No text.", lane === "original" ? "" : compared, cut];
    within(lane, ".ending").textContent = ending.filter(Boolean).join(" ");
    showFacts(lane);
    find(".announcer").textContent = `${NAMES[lane]}: ${text.trim()} ${within(lane, ".ending").textContent}`;
    if (lane === "gated") root.dataset.state = "written";
  }
  // What is missing has a reason beside it.
  function showFacts(lane) {
    const said = view.lanes[lane], change = view.shift[lane]?.reference, of = view.prompt;
    if (!said) return;
    const unmeasured = known(of.reference) ? "not measured" : "no reference";
    const asked = { true: ", as asked", false: ", not as asked" };
    const logprob = known(said.reference_logprob) && fixed(said.reference_logprob, 2);
    const rows = {
      language: [said.language && said.language.name + (asked[said.wanted] ?? ""), "not identified"],
      copied: [known(said.copied) && `${fixed(100 * said.copied, 0)}\u00a0%`, of.source ? "not measured" : "no source text"],
      chrf: [known(said.chrf) && fixed(said.chrf, 1), unmeasured],
      reference: [logprob && logprob + (known(change) ? ` (${signed(change)})` : ""), unmeasured],
    };
    Object.entries(rows).forEach(([name, [words, why]]) => (
      within(lane, `[data-fact=${name}]`).replaceChildren(words || NONE, words ? "" : make("small", {}, ` ${why}`))));
    within(lane, ".facts").classList.remove("stale");
  }
  // Both lanes share a scale, whose end is a power of two, so that colours seldom change their meaning.
  function showShift(event) {
    view.shift[event.lane] = event;
    const shifts = Object.values(view.shift), bar = find(".scale .rampbar");
    const most = Math.max(0, ...shifts.flatMap(({ change }) => change.map(Math.abs)));
    const end = 2 ** Math.max(-2, Math.ceil(Math.log2(most)));
    shifts.forEach((each) => colour(each, end));
    bar.firstChild.textContent = fixed(-end, end < 1 ? 2 : 0);
    bar.lastChild.textContent = signed(end, end < 1 ? 2 : 0);
    showFacts(event.lane);
    if (event.lane === "gated") root.dataset.state = "shifted";
  }
  function colour({ lane, change, total }, end) {
    const list = tokensOf(lane, "shifted");
    view.lanes.original.tokens.forEach((text, at) => {
      const ramp = twoSided(change[at], end), sign = ramp.replace(/^n\d/, "$& less").replace(/^q\d/, "$& more");
      setToken(list, at, text, sign, known(change[at]) ? `${signed(change[at])} nats` : "no value");
    });
    within(lane, ".total").textContent = `(sum ${signed(total)})`;
  }
  // What the selected gates do, among random draws; null: there is nothing to compare, and why.
  function showPlace(found, why) {
    const box = find(".place");
    box.classList.remove("stale");
    find(".bars", box).hidden = !found;
    if (found && ![found.selected, ...found.random].every(known)) return showPlace(null, "A probability is not a number.");
    if (!found) {
      find("h2", box).textContent = why ? "There is no comparison" : "No head is changed";
      find(".note", box).textContent = why ?? `Remove heads on the map: the change stands here, beside ${about.draws} random sets.`;
      return;
    }
    const { of, selected, random, as_much: many, control } = found, range = [0, selected, ...random], low = Math.min(...range);
    const share = (value) => (value - low) / (Math.max(...range) - low || 1);
    const mean = random.reduce((sum, value) => sum + value, 0) / random.length;
    [[selected, []], [mean, random]].forEach(([value, draws], at) => {
      const bar = all(".bar", box)[at], rings = draws.map((draw) => vary(make("u"), { "--v": share(draw) }));
      vary(bar.children[0], { "--f": share(Math.min(0, value)), "--v": Math.abs(share(value) - share(0)) });
      vary(bar.children[1], { "--z": share(0) });
      bar.replaceChildren(...Array.from(bar.children).slice(0, 2), ...rings);
      bar.nextSibling.textContent = signed(value);
    });
    const sets = `${many} of ${count(random.length, "random set")} ${many === 1 ? "does" : "do"} as much`;
    find("h2", box).textContent = `log p(${of}) changes by ${signed(selected)} nats; ${sets}`;
    find(".note", box).textContent = `One text. Rings: sets of as many ${control}, from ` +
      `${signed(Math.min(...random))} to ${signed(Math.max(...random))}; their bar: the mean.`;
  }

  // ---- a source as it arrives ---------------------------------------------------------------------
  let place = 0, player = 0;
  const arrives = () => state.arrives && Boolean(state.input?.pair);
  const deciding = () => (changed().length ? changed() : best(ofRun()).map((at) => names[at]));
  const arrival = () => ({
    input: state.input, heads: deciding().join(","), policy: find(".policy").value, number: find(".number").valueAsNumber,
  });
  function showMode() {
    const button = find(".arrives"), align = find(".policy").value === "alignatt";
    root.dataset.view = arrives() ? "arriving" : "whole";
    find(".number").min = align ? 0 : 1;
    const { number } = arrival();
    find(".number-of").textContent = align ? `Frontier: ${count(number, "last word")}` : `k: ${count(number, "word")}`;
    if (!button) return;
    button.disabled = !state.input?.pair;
    button.setAttribute("aria-pressed", arrives());
    const whose = changed().length ? "selected on the map" : "highest of the run that colours the map";
    find(".of-arrival").textContent = button.disabled ? "Only a sentence with a direction can arrive word by word; this is a prompt."
      : arrives() ? `Heads looked at: ${few(deciding()) || NONE} (${whose}); the model is as it is, without gates.`
        : "The source word by word, and what the model may write of its translation by then.";
  }
  // Show what is known when so many words are read.
  function setPlace(words) {
    const { source, steps, lag } = view, total = source?.words.length ?? 0, { policy, number } = arrival();
    place = clamp(words, [0, total]);
    if (place === total) play(false);
    const read = Math.min(place, steps.length), word = (at) => `${quoted(slice(source.text, source.words[at]))} (word ${at + 1})`;
    view.drafted = steps.slice(0, read).flatMap(({ tokens, looks, written }, step) => tokens.map((text, at) => (
      { text, look: looks[at], read: at < written && step + 1, kind: at < written ? "written" : at > written ? "ahead" : "waits" }
    )).filter((token) => token.read || step === read - 1));
    const list = find(".drafted .tokens"), waits = view.drafted.find(({ kind }) => kind === "waits");
    list.classList.remove("stale");
    setTokens(list, view.drafted.map(({ text }) => text));
    view.drafted.forEach((token, at) => {
      const when = { written: `written at word ${token.read}`, waits: "waits", ahead: "draft" }[token.kind];
      setToken(list, at, token.text, token.kind, `${when}; most attention on ${word(token.look)}`);
      list.children[at].dataset.read = token.read && token.read !== view.drafted[at + 1]?.read ? token.read : "";
    });
    find(".arrivals").replaceChildren(...(source?.words ?? []).map((span, at) => {
      const last = policy === "alignatt" && read < total && at >= read - number ? "last" : "";
      // What is written later has its room from the beginning, so that no word moves.
      const own = steps[at]?.tokens.slice(0, steps[at].written).join("").trim() ?? "";
      return make("li", { class: at < read ? last : "coming" }, make("small", {}, at + 1),
        make("span", { class: "word" }, slice(source.text, span)), make("span", { class: "own", dir: "auto" }, own));
    }));
    lookBack(waits);
    const why = !total ? "" : !place ? "Nothing is read yet: press Play or Next word."
      : read < place ? "The model is drafting."
      : read === total ? `All is read, so the rest is written.${known(lag) ? ` Average lag: ${fixed(lag, 1)} words (AL).` : ""}`
      : policy !== "alignatt" ? `${count(read, "word")} read: k = ${number} allows ${count(Math.max(0, read - number + 1), "word")}.`
      : !waits ? "Waits: the draft ends here, and the source may not."
      : `Waits: at ${quoted(waits.text)} the heads look most at ${word(waits.look)}, one of the last ${number} read.`;
    if (find(".why").textContent !== why) find(".why").textContent = why;
    find(".play").disabled = !total;
    find(".word-on").disabled = place === total;
    find(".word-back").disabled = find(".rewind").disabled = !place;
  }
  function endArrival() {
    Object.assign(view, { source: null, steps: [], lag: null });
    setPlace(0);
  }
  function lookBack(drafted) {
    all(".arrivals .word").forEach((node, at) => node.classList.toggle("lit", at === drafted?.look));
  }
  function play(on) {
    clearInterval(player);
    player = on ? setInterval(() => view.steps.length >= place && setPlace(place + 1), ARRIVAL) : 0;
    find(".play").textContent = on ? "Pause" : "Play";
  }
  press({
    arrives: () => {
      state.arrives = !state.arrives;
      endArrival();
      ask();
    },
    play: () => {
      if (!player) setPlace(place < view.source.words.length ? place + 1 : 1);
      play(!player);
    },
    "word-on": () => setPlace(place + 1), "word-back": () => setPlace(place - 1), rewind: () => setPlace(0),
  });
  on(find(".arriving"), "change", () => ask());
  on(find(".number"), "input", showMode);
  on(find(".drafted"), "pointerover focusin", (event) => {
    const token = tokenAt(event);
    if (token) lookBack(view.drafted[Array.from(token.parentNode.children).indexOf(token)]);
    tip(token, token?.getAttribute("aria-label"));
  });
  on(find(".drafted"), "pointerleave focusout", () => {
    lookBack(view.drafted.find(({ kind }) => kind === "waits"));
    tip(null);
  });

  // ---- where the pinned head looks --------------------------------------------------------------
  const arcs = find(".arcs"), reading = find(".reading");
  let looked = null;
  // `token` is an element of a lane, and what predicted it looked there.
  function look(token) {
    looked = token?.isConnected ? token : null;
    all(".stage .lit").forEach((node) => node.classList.remove("lit"));
    CSS.highlights?.delete("lit");
    const lane = looked?.closest(".shifted") ? "original" : looked?.closest("[data-lane]").dataset.lane;
    const attention = view.attention[lane], at = looked && Array.from(looked.parentNode.children).indexOf(looked);
    const likeliest = candidates(lane, at);
    if (!attention || attention.head !== pinnedName()) {
      const head = pinnedName(), where = head ? ` and where head ${headName(head)} looks` : "; pin a head to see where it looks";
      arcs.replaceChildren();
      return reading.replaceChildren(...likeliest || [`Point at an output token to see what else was likely${where}.`]);
    }
    const { tokens, words, source, text } = view.prompt, peak = attention.peaks[at], weights = attention.weights[at];
    const inside = tokens[peak] && stretch(tokens[peak]);
    const target = inside ?? within(lane, ".written .tokens").children[peak - tokens.length];
    const place = target && (target.textContent ?? String(target));
    const seen = target ? `peak at ${place ? quoted(place) : "the start"}` : "no peak";
    const said = `${NAMES[lane]}, token ${at + 1} ${quoted(looked.textContent)}: head ${headName(attention.head)}, ${seen}.`;
    const bars = weights.map(([word, weight]) => listed(slice(text, words[word]), weight));
    reading.replaceChildren(`${said} Weights on ${source ? "source words" : "words"}:`, make("ol", {}, ...bars), ...likeliest ?? []);
    const frame = find(".prompt").getBoundingClientRect(), { top, bottom } = inside?.getBoundingClientRect() ?? frame;
    if (top < frame.top || bottom > frame.bottom) find(".prompt").scrollTop += (top + bottom - frame.top - frame.bottom) / 2;
    const ends = weights.map(([word, weight]) => [stretch(words[word]), "weight", 1 + 5 * weight]);
    drawArcs([...ends, [target, "peak", 2]], lane, frame);
    if (inside) CSS.highlights?.set("lit", new Highlight(inside));
    else target?.classList.add("lit");
  }
  const listed = (text, share) => make("li", {}, make("bdi", {}, text), ` ${fixed(share)}`,
    make("span", { class: "bar" }, vary(make("b"), { "--v": share })));
  // What else was likely where a token of an output stands.
  function candidates(lane, at) {
    const here = view.lanes[lane]?.candidates?.[at];
    return here && [`${NAMES[lane]}, candidates for token ${at + 1}, by probability:`,
      make("ol", { class: "candidates" }, ...here.map(([text, share]) => listed(quoted(text), share)))];
  }
  // Arcs to what the frame of the prompt hides are left out.
  function drawArcs(ends, lane, frame) {
    const box = (node) => node.getClientRects()[0] ?? node.getBoundingClientRect(), stage = box(arcs);
    const start = box(looked), x = start.left + start.width / 2 - stage.left, y = start.top - stage.top;
    const shown = (target) => !(target instanceof Range) || (box(target).bottom > frame.top && box(target).top < frame.bottom);
    const paths = ends.filter(([target]) => target && shown(target)).map(([target, kind, width]) => {
      const end = box(target), level = Math.abs(end.top - start.top) < start.height;
      const toX = end.left + end.width / 2 - stage.left, toY = (level ? end.top : end.bottom) - stage.top;
      const bend = level ? y - 28 : (y + toY) / 2;
      const d = `M${x} ${y}C${x} ${bend} ${toX} ${bend} ${toX} ${toY}`;
      return make("path", { class: kind, "stroke-width": width, d });
    });
    arcs.setAttribute("class", `arcs key-${COLOURS[lane]}`);
    arcs.replaceChildren(...paths);
  }
  const tokenAt = (event) => event.target.closest(".tokens .tok");
  function pointTo(token) {
    look(token);
    const change = token?.closest(".shifted") ? token : null;
    tip(change, change?.getAttribute("aria-label"));
  }
  on(find(".lanes"), "pointerover focusin", (event) => pointTo(tokenAt(event)));
  on(find(".lanes"), "pointerleave focusout", () => pointTo(null));
  on(find(".lanes"), "click", (event) => tokenAt(event)?.focus());
  on(find(".outputs"), "keydown", (event) => {
    const token = tokenAt(event), forward = token && getComputedStyle(token.parentNode).direction === "rtl" ? -1 : 1;
    const step = { ArrowRight: forward, ArrowLeft: -forward, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") pointTo(null);
    if (!token || !step) return;
    event.preventDefault();
    const next = step > 0 ? token.nextSibling : token.previousSibling;
    if (!next) return;
    token.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });

  let attended = null;
  // The weights of a whole sentence: a row for each token of the original output.
  function showAttended() {
    const { every = null, head } = view.attention.original ?? {}, box = find(".attended"), note = find(".whole .note");
    attended = pinnedName();
    box.classList.remove("stale");
    box.replaceChildren();
    note.textContent = head !== pinnedName() ? NONE : every ? "A row: what predicts a token of the original output. A column: a word " +
      `of the ${view.prompt.source ? "source" : "prompt"}. Darker (in a dark scheme, lighter): more of the weight; elsewhere: all other tokens.`
      : "Too long to be shown whole. Point at single tokens.";
    if (head !== pinnedName() || !every) return;
    const { words, text } = view.prompt, { tokens } = view.lanes.original;
    const titles = [...words.map((span) => slice(text, span)), "elsewhere"];
    const rows = every.map((weights, at) => {
      const rest = Math.max(0, 1 - weights.reduce((sum, weight) => sum + weight, 0));
      const own = [...weights, rest].map((weight) => make("td", { class: `s${Math.round(clamp(weight, [0, 1]) * RAMP)}` },
        make("span", { class: "unseen" }, fixed(weight, 2))));
      return make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, tokens[at].trim() || quoted(tokens[at]))), ...own);
    });
    const first = make("tr", {}, make("td"), ...titles.map((title) => make("th", { scope: "col" }, make("bdi", {}, title))));
    box.append(make("table", { "aria-label": `Weights of head ${headName(head)}` }, make("thead", {}, first), make("tbody", {}, ...rows)));
  }

  on(find(".attended"), "pointerover", ({ target }) => {
    const cell = target.closest("td"), row = cell?.parentNode, column = cell && find(`th:nth-child(${cell.cellIndex + 1})`, find(".attended thead"));
    if (column) tip(cell, `${row.firstChild.textContent} \u2192 ${column.textContent}: ${cell.textContent}`);
  });
  on(find(".attended"), "pointerleave", () => tip(null));

  // ---- the pinned head --------------------------------------------------------------------------
  let sentencesOf = "", askedBest = null;
  function showPinned() {
    const box = find(".about-head"), at = state.pinned, scores = ofRun(), { alone } = view;
    box.hidden = at === null;
    find(".pinned > .note").hidden = at !== null;
    find(".pinned h2").textContent = at === null ? "Pinned head" : `Pinned head ${headName(names[at])}`;
    if (!looked) look(null);
    if (at === null) return;
    if (attended !== names[at]) showAttended();
    const removed = alone && `original output ${signed(alone.total)}, reference ${signed(alone.reference)} nats`;
    const rows = [["Removed alone", alone ? `change of log-probability: ${removed}` : NONE]];
    const rank = scores && ["Rank", rankOf(scores, at).slice(5)];
    if (scores) rows.unshift(...numbersOf(scores, at), ["Class", scores.classes?.[at] ?? NONE], rank);
    find("dl", box).replaceChildren(...rows.map((row) => make("div", {}, make("dt", {}, row[0]), make("dd", {}, row[1]))));
    if (sentencesOf === `${scores?.name} ${names[at]}`) return;
    sentencesOf = `${scores?.name} ${names[at]}`;
    askedBest?.cancel();
    find(".best", box).replaceChildren();
    find(".sentences .note", box).textContent = !scores?.sentences ? "The run keeps no peaks of single sentences."
      : "Underlined: the peak is on a linked word (hit). Dotted: it is not (miss). Point at a word to see its peak.";
    if (scores?.sentences) askedBest = transport.ask("best", { scores: scores.name, head: names[at] }, (event) => {
      if (event.event === "error") find(".sentences .note", box).textContent = event.error;
      if (event.event === "best") find(".best").replaceChildren(...event.sentences.map(example));
    });
  }
  function example({ part, id, source, target, hits, of, words, tokens, peaks, hit }) {
    const sources = pieces(source, words, (piece, at) => make("span", { class: "word", "data-at": at }, piece));
    const targets = pieces(target, tokens, (piece, at) => {
      const kind = { true: "hit", false: "miss" }[hit[at]] ?? "no link", peak = words[peaks[at]];
      const said = `${piece}: ${kind}${peak ? `, peak at ${slice(source, peak)}` : ""}`;
      const focusable = kind === "no link" ? {} : { tabindex: 0, role: "note", "aria-label": said };
      return make("span", { class: `word ${kind}`, "data-of": peaks[at], ...focusable }, piece);
    });
    const title = about.pairs.find(({ pair }) => pair === part)?.title ?? part;
    return make("article", { class: "example" },
      make("header", {}, make("bdi", {}, title), make("bdi", {}, id), make("span", {}, `${hits} of ${of} hits`)),
      make("p", { dir: "auto" }, ...sources), make("p", { dir: "auto" }, ...targets));
  }
  on(find(".best"), "pointerover focusin pointerleave focusout", (event) => {
    all(".best :is(.lit, .held)").forEach((node) => node.classList.remove("lit", "held"));
    const word = /over|in$/.test(event.type) && event.target.closest("[data-of]");
    if (!word) return;
    word.classList.add("held");
    find(`[data-at="${word.dataset.of}"]`, word.closest(".example"))?.classList.add("lit");
  });

  // ---- the address ------------------------------------------------------------------------------
  function fragment() {
    const { input, gates, draw, control, seen } = state, parts = new URLSearchParams();
    if (input) parts.set("input", JSON.stringify(input));
    parts.set("gates", writeGates(gates, about.counts));
    parts.set("pin", pinnedName() ?? "");
    const draws = seen > 1 ? { draw, control, seen } : {};
    Object.entries(draws).forEach(([name, value]) => parts.set(name, value));
    if (state.arrives) parts.set("arrives", `${find(".policy").value} ${find(".number").value}`);
    if (shade.selectedIndex > 0) parts.set("shade", shade.value);
    if (state.step !== null) parts.set("step", state.step + 1);
    return `#${parts}`;
  }
  function writeAddress() {
    const text = fragment(), now = Date.now(), rapid = dragging || now - written < PAUSE;
    if (!transport.address || text === location.hash) return;
    history[rapid ? "replaceState" : "pushState"](null, "", location.pathname + text);
    written = now;
  }
  const steps = all(".step");
  // The state that is written in the address, else the first step of the lesson.
  const restore = () => open((transport.address && location.hash.slice(1)) || about.lesson[0]?.scene || "", false);
  function open(text, write) {
    const given = new URLSearchParams(text);
    const first = about.pinned ?? names[about.scores[0]?.rank.indexOf(1)];
    const number = (name) => Math.max(0, Math.round(Number(given.get(name))) || 0);
    fail("");
    state.arrives = given.has("arrives");
    if (state.arrives) [find(".policy").value, find(".number").value] = given.get("arrives").split(" ");
    state.gates = readGates(given.get("gates") ?? "", heads, about.gate);
    shade.value = given.get("shade") ?? shade.options[0].value;
    if (shade.selectedIndex < 0) shade.selectedIndex = 0;
    state.step = given.has("step") && steps.length ? clamp(number("step") - 1, [0, steps.length - 1]) : null;
    showStep();
    state.pinned = places.get(given.has("pin") ? given.get("pin") : first) ?? null;
    Object.assign(state, { draw: number("draw"), control: given.get("control") || "random", seen: number("seen") || 1 });
    paint();
    showCurrent(state.pinned ?? 0);
    const input = readInput(given.get("input")) ?? about.examples[0]?.input ?? state.input;
    if (input) setInput(input, write);
    else if (about.data) takeSentence(0);
  }
  function showStep() {
    steps.forEach((button, at) => button.setAttribute("aria-pressed", at === state.step));
    if (steps.length) find(".step-text").textContent = about.lesson[state.step]?.text ?? "Five steps with this model; press one.";
  }
  steps.forEach((button, at) => on(button, "click", () => open(about.lesson[at].scene, true)));
  function readInput(text) {
    try {
      return JSON.parse(text);
    } catch {
      fail("The input in the address cannot be read, so another one is shown.");
      return null;
    }
  }
  if (transport.address) on(window, "popstate", restore);

  // ---- what is kept -----------------------------------------------------------------------------
  async function keep(title, text, copied = true) {
    find(".kept").hidden = false;
    find(".kept pre").textContent = text;
    const copying = copied && navigator.clipboard.writeText(text).then(() => ", copied", () => ", to be copied by hand");
    find(".kept .note").textContent = `${title}${await copying || ""}:`;
  }
  function askFor(kind, react) {
    if (!state.input) return fail("There is no input yet. Type a sentence or a prompt.");
    transport.ask(kind, body(), (event) => {
      if (event.event === "error") fail(event.error);
      else if (event.event !== "end") react(event);
    });
  }
  // The map with the colours that the style sheets give it.
  function mapAsSvg() {
    const copy = map.cloneNode(true), nodes = (tree) => [tree, ...all("*", tree)], copies = nodes(copy);
    const looks = ["fill", "stroke", "stroke-width", "stroke-dasharray", "vector-effect", "paint-order", "font-family",
      "font-size", "font-weight", "text-anchor", "dominant-baseline"];
    nodes(map).forEach((node, at) => {
      const style = getComputedStyle(node), sizes = node.matches("rect") ? ["width", "height", "rx"] : [];
      [...looks, ...sizes].forEach((name) => copies[at].setAttribute(name, style.getPropertyValue(name)));
    });
    copy.style.background = getComputedStyle(root).getPropertyValue("--paper");
    return new XMLSerializer().serializeToString(copy);
  }
  function tokensAsCsv() {
    const header = ["output", "token", "text", "change_selected", "change_random", "first_difference"];
    const rows = Object.keys(NAMES).flatMap((lane) => (view.lanes[lane]?.tokens ?? []).map((text, at) => {
      const changes = OTHERS.map((other) => (lane === "original" ? view.shift[other]?.change[at] : null));
      return [NAMES[lane].toLowerCase(), at, text, ...changes, view.lanes[lane].diverges === at];
    }));
    const quote = (cell) => `"${String(cell ?? "").replaceAll('"', '""')}"`;
    return [header, ...rows].map((row) => row.map(quote).join(",")).join("\n");
  }
  press({
    "copy-link": () => keep("Link", location.origin + location.pathname + fragment()),
    "copy-command": () => askFor("copy", ({ command }) => keep("Command", command)),
    "copy-python": () => askFor("copy", ({ python }) => keep("Python", python)),
    "save-run": () => askFor("save", (event) => keep("Saved as run", event.run, false)),
    "save-svg": () => download("heads.svg", "image/svg+xml", mapAsSvg()),
    "save-csv": () => download("tokens.csv", "text/csv", tokensAsCsv()),
  });
  find(".copy-link").hidden = !transport.address;
  if (about.data) find(".earlier").disabled = true;

  restore();
  return {
    close() {
      closing.abort();
      cancelAnimationFrame(frame);
      clearInterval(player);
      [asked, askedBest].forEach((each) => each?.cancel());
    },
  };
}
