// The explorer: gates on a map of heads, and what the model writes under them, beside the original
// and random heads. Text of models and users goes in as text alone. `transport.ask(kind, body,
// onEvent)` asks the engine and gives `{ cancel, finished }`; its last event is always `end`.

const NAMES = { original: "Original", gated: "Selected", random: "Random" };
const LANES = Object.keys(NAMES), MARKS = { gated: "top", random: "random" };
const NONE = "\u2013", STEPS = 16, CELL = 0.93, KEPT = 100, NUMBERED = 20, PAUSE = 500;
// Ends of the scale of changes, in nats: few, so that colours seldom change their meaning.
const ENDS = [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64];

// ---- numbers and elements -------------------------------------------------------------------------
const known = (value) => value !== null && value !== undefined;
function fixed(value, digits = 3) {
  if (!known(value)) return NONE;
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "\u2212");
}
const signed = (value, digits = 2) => (known(value) && Number(value.toFixed(digits)) > 0 ? "+" : "") + fixed(value, digits);
const count = (number, name) => `${number} ${name}${number === 1 ? "" : "s"}`;
const gateText = (gate) => String(Number(gate.toFixed(2))).replace("-", "\u2212");
const clamp = (value, [low, high]) => Math.min(high, Math.max(low, value));
const quoted = (text) => `\u201c${text.trim() || text.replaceAll("\n", "\u21b5")}\u201d`;

function element(name, properties = {}, ...children) {
  const { attributes = {}, ...rest } = properties;
  const made = Object.assign(document.createElement(name), rest);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  made.append(...children);
  return made;
}
function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  return made;
}
function download(name, kind, text) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: kind })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}
// A text cut at spans of characters (not UTF-16 units): [piece, its span or -1].
function pieces(text, spans) {
  const characters = Array.from(text), parts = [];
  const cut = (start, end) => characters.slice(start, end).join("");
  let reached = 0;
  spans.forEach(([start, end], at) => {
    if (start > reached) parts.push([cut(reached, start), -1]);
    parts.push([cut(Math.max(start, reached), end), at]);
    reached = Math.max(reached, end);
  });
  if (reached < characters.length) parts.push([cut(reached), -1]);
  return parts;
}
// Spans are used again: a run changes their texts and classes, not the elements.
function fillTokens(list, texts) {
  while (list.children.length > texts.length) list.lastChild.remove();
  texts.forEach((text, at) => setToken(list, at, text));
}
function setToken(list, at, text, mark = "", words = "") {
  const token = list.children[at] || list.appendChild(element("span", { tabIndex: at ? -1 : 0, attributes: { role: "option" } }));
  const shown = text.replaceAll("\n", "\u21b5\n");
  if (token.textContent !== shown) token.textContent = shown;
  token.className = mark ? `tok ${mark}` : "tok";
  token.setAttribute("aria-label", `${text.trim() || quoted(text)}${words ? `, ${words}` : ""}`);
}

// ---- transports -----------------------------------------------------------------------------------
export function pageTransport() {
  async function stream(kind, body, onEvent, signal) {
    const answer = await fetch(`/ask/${kind}`, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal,
    });
    if (!answer.ok) {
      const { error } = await answer.json();
      onEvent({ event: "error", error });
      return onEvent({ event: "end" });
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let waiting = "";
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const messages = (waiting + part.value).split("\n\n");
      waiting = messages.pop();
      messages.filter((message) => message.startsWith("data: ")).forEach((message) => onEvent(JSON.parse(message.slice(6))));
    }
  }
  function ask(kind, body, onEvent) {
    const controller = new AbortController();
    const finished = stream(kind, body, onEvent, controller.signal).catch((failure) => {
      if (controller.signal.aborted) return;
      onEvent({ event: "error", error: `The engine does not answer (${failure.message}). Is headscope explore still running?` });
      onEvent({ event: "end" });
    });
    return { cancel: () => controller.abort(), finished };
  }
  return { ask, address: true };
}
function widgetTransport(model) {
  // Every view of a widget hears all messages, so the names of its questions are its own.
  const own = Math.random().toString(36).slice(2), open = new Map();
  let asked = 0;
  function receive(message) {
    const question = open.get(message.id);
    if (!question) return;
    question.onEvent(message);
    if (message.event === "end") settle(message.id, question);
  }
  function settle(id, question) {
    open.delete(id);
    question.resolve();
  }
  function ask(kind, body, onEvent) {
    const id = `${own}-${asked += 1}`;
    const finished = new Promise((resolve) => { open.set(id, { onEvent, resolve }); });
    model.send({ id, kind, body });
    const cancel = () => {
      if (!open.has(id)) return;
      model.send({ id, kind: "cancel" });
      settle(id, open.get(id));
    };
    return { cancel, finished };
  }
  model.on("msg:custom", receive);
  return { ask, address: false, close: () => model.off("msg:custom", receive) };
}
export default {
  render({ model, el }) {
    const shadow = el.attachShadow({ mode: "open" }), style = new CSSStyleSheet();
    style.replaceSync(model.get("css"));
    shadow.adoptedStyleSheets = [style];
    const root = element("div", { className: "explorer" });
    root.append(...new DOMParser().parseFromString(model.get("html"), "text/html").body.childNodes);
    shadow.append(root);
    const transport = widgetTransport(model), page = mount(root, transport, model.get("about"));
    return () => {
      page.close();
      transport.close();
    };
  },
};

// ---- gates as text --------------------------------------------------------------------------------
// `5:0,4.3:0.5`: a layer whose heads all have one gate is written once.
function writeGates(gates, counts) {
  const parts = [];
  let first = 0;
  counts.forEach((size, layer) => {
    const own = gates.slice(first, first + size);
    first += size;
    if (size > 1 && own[0] !== 1 && own.every((gate) => gate === own[0])) parts.push(`${layer}:${own[0]}`);
    else own.forEach((gate, head) => { if (gate !== 1) parts.push(`${layer}.${head}:${gate}`); });
  });
  return parts.join(",");
}
function readGates(text, heads, bounds) {
  const given = new Map(text.split(",").filter(Boolean).map((part) => part.split(":")));
  return heads.map(([layer, head]) => {
    const gate = Number(given.get(`${layer}.${head}`) ?? given.get(String(layer)) ?? 1);
    return Number.isFinite(gate) ? clamp(gate, bounds) : 1;
  });
}

// ---- the page -------------------------------------------------------------------------------------
export function mount(root, transport, about) {
  const closing = new AbortController();
  const find = (selector, within = root) => within.querySelector(selector);
  const all = (selector, within = root) => Array.from(within.querySelectorAll(selector));
  const on = (target, kinds, react) => kinds.split(" ").forEach((kind) => target && target.addEventListener(kind, react, { signal: closing.signal }));
  const press = (name, react) => on(find(`.${name}`), "click", react);

  const heads = about.counts.flatMap((size, layer) => Array.from({ length: size }, (_, head) => [layer, head]));
  const names = heads.map((head) => head.join(".")), places = new Map(names.map((name, at) => [name, at]));
  const open = () => names.map(() => 1);
  const state = { input: null, gates: open(), current: 0, pinned: null, draw: 0, matched: false, seen: 1 };
  // What the engine has said of this input and these gates.
  const view = { prompt: null, tokens: [], lanes: {}, shift: {}, attention: {}, alone: null, control: [] };
  let runs = 0, asked = null, frame = 0, fresh = true, told = 0;
  all("[data-style]").forEach((node) => { node.style.cssText = node.dataset.style; });
  root.dataset.run = 0;

  const changed = () => names.filter((_, at) => state.gates[at] !== 1);
  const announce = (words) => { find(".announcer").textContent = words; };
  function fail(words) {
    find(".failure").textContent = words;
    find(".failure").hidden = !words;
  }
  function tip(mark, words) {
    const box = find(".tip");
    box.hidden = !mark;
    if (!mark) return;
    box.textContent = words;
    const at = mark.getBoundingClientRect(), size = box.getBoundingClientRect();
    const below = at.bottom + 8 + size.height < window.innerHeight;
    box.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - size.width - 8))}px`;
    box.style.top = `${below ? at.bottom + 8 : Math.max(8, at.top - size.height - 8)}px`;
  }
  on(window, "scroll", () => tip(null));

  // ---- the map of heads ---------------------------------------------------------------------------
  const map = find(".map svg"), cells = all(".cell", map), field = cells[0].parentNode;
  const shade = find(".shade"), pitch = Number(map.dataset.pitch);
  const overlay = field.parentNode.insertBefore(drawn("g", { class: "marks", transform: field.getAttribute("transform") }), field.nextSibling);
  const marks = Object.fromEntries(["drawn", "zero", "other"].map((kind) => [kind, ["halo", "line"].map((part) => (
    overlay.appendChild(drawn("path", { class: `${kind} ${part}` }))))]));
  const [left, top] = field.getAttribute("transform").match(/[\d.]+/g).map(Number);
  const middle = `translate(${left + CELL * pitch / 2} ${top + CELL * pitch / 2})`;
  const numbers = map.appendChild(drawn("g", { class: "signs letters", transform: middle }));
  // A grid of rows for those who do not see it; one stop of the Tab key, arrows go on from there.
  Object.entries({ role: "grid", "aria-rowcount": about.layers }).forEach(([key, value]) => map.setAttribute(key, value));
  map.removeAttribute("tabindex");
  all(".ticks", map).forEach((node) => node.setAttribute("aria-hidden", "true"));
  about.counts.forEach((size, layer) => {
    if (!size) return;
    const row = field.appendChild(drawn("g", { role: "row", "aria-label": `layer ${layer}` }));
    row.append(...cells.filter((_, at) => heads[at][0] === layer));
  });
  cells.forEach((cell, at) => {
    cell.setAttribute("role", "gridcell");
    cell.dataset.head = names[at];
  });

  const chosen = () => {
    if (!shade) return {};
    const [at, key] = shade.value.split(" "), scores = about.scores[at];
    return { scores, column: scores.columns.find((column) => column.key === key) };
  };
  const valueOf = (scores, key, at) => scores.columns.find((column) => column.key === key)?.values[at];
  const shown = (scores) => scores.columns.filter(({ key }) => key !== "low" && key !== "high");
  // An interval is of the score itself, not of what is corrected for chance.
  function withInterval(scores, column, at) {
    const [low, high] = ["low", "high"].map((key) => valueOf(scores, key, at));
    const own = column.key === (valueOf(scores, "score", at) === undefined ? scores.columns[0].key : "score");
    const between = own && known(low) && known(high) ? ` (95\u00a0% CI ${fixed(low)} to ${fixed(high)})` : "";
    return fixed(column.values[at]) + between;
  }
  function describe(at) {
    const { scores } = chosen(), lines = [`head ${names[at]}: gate ${gateText(state.gates[at])}`];
    if (scores) {
      lines[0] += scores.classes ? ` \u00b7 ${scores.classes[at]}` : "";
      shown(scores).forEach((column) => lines.push(`${column.title} ${withInterval(scores, column, at)}`));
      lines.push(`rank ${scores.rank[at]} of ${heads.length}`);
    }
    if (view.control.includes(names[at])) lines.push("in the random control");
    return lines.join("\n");
  }
  function paint() {
    const { column } = chosen();
    if (column) {
      const high = Math.max(0, ...column.values.filter(known)) || 1;
      cells.forEach((cell, at) => {
        const value = column.values[at], step = known(value) ? `s${Math.round(clamp(value / high, [0, 1]) * STEPS)}` : "na";
        cell.setAttribute("class", `cell ${step}`);
      });
      const bar = find(".heads .rampbar");
      bar.firstChild.textContent = `${column.title}: 0${column.values.some((value) => value < 0) ? " or less" : ""}`;
      bar.lastChild.textContent = fixed(high);
    }
    mark();
  }
  function mark() {
    const { column } = chosen(), drawnHeads = new Set(view.control), where = { drawn: [], zero: [], other: [] };
    const texts = [];
    cells.forEach((cell, at) => {
      const [y, x] = heads[at], gate = state.gates[at];
      if (drawnHeads.has(names[at])) where.drawn.push(`M${x} ${y}h${CELL}v${CELL}h-${CELL}z`);
      if (gate === 0) where.zero.push(`M${x + 0.2} ${y + 0.2}l.53 .53m0 -.53l-.53 .53`);
      else if (gate !== 1 && pitch >= NUMBERED) texts.push(Object.assign(drawn("text", { x: pitch * x, y: pitch * y }), { textContent: gateText(gate) }));
      else if (gate !== 1) where.other.push(`M${x + 0.215} ${y + 0.465}a.25 .25 0 1 0 .5 0a.25 .25 0 1 0 -.5 0`);
      const name = [`head ${names[at]}, gate ${gateText(gate)}`, column && `${column.title} ${fixed(column.values[at])}`,
        at === state.pinned && "pinned", drawnHeads.has(names[at]) && "in the random control"].filter(Boolean).join(", ");
      if (cell.getAttribute("aria-label") !== name) cell.setAttribute("aria-label", name);
      cell.classList.toggle("chosen-head", at === state.pinned);
    });
    Object.entries(where).forEach(([kind, parts]) => marks[kind].forEach((path) => path.setAttribute("d", parts.join(""))));
    numbers.replaceChildren(...texts);
    showCurrent();
    const number = changed().length;
    find(".selected-count").textContent = number ? `${count(number, "head")} selected` : "No head selected";
    find(".gated .heads-of, [data-lane=gated] .heads-of").textContent = number ? few(changed()) : "";
    find(".undo").disabled = !past.length;
    find(".redo").disabled = !future.length;
  }
  const few = (list) => (list.length > 4 ? count(list.length, "head") : list.join(", "));
  function showCurrent() {
    const at = state.current, name = names[at];
    cells.forEach((cell, place) => {
      cell.classList.toggle("current", place === at);
      cell.setAttribute("tabindex", place === at ? 0 : -1);
    });
    find(".head-words").textContent = describe(at).replaceAll("\n", " \u00b7 ");
    find(".current-head").textContent = `Gate of ${name}`;
    find(".slider").value = state.gates[at];
    find(".gate-value").value = Number(state.gates[at].toFixed(3));
    find(".gate-value").setAttribute("aria-label", `Gate of head ${name}, a number`);
    find(".pin").textContent = state.pinned === at ? "Unpin" : "Pin";
    find(".pin").setAttribute("aria-pressed", String(state.pinned === at));
  }
  function goTo(at, focus = false) {
    if (at !== state.current) {
      state.current = at;
      showCurrent();
    }
    if (focus) cells[at].focus();
  }
  const cellAt = (event) => (event.target.closest(".cell") ? places.get(event.target.closest(".cell").dataset.head) : undefined);
  on(map, "pointerover", (event) => {
    const at = cellAt(event);
    tip(at === undefined ? null : cells[at], at === undefined ? "" : describe(at));
  });
  on(map, "pointerleave", () => tip(null));
  on(map, "focusin", (event) => {
    if (cellAt(event) === undefined) return;
    goTo(cellAt(event));
    if (event.target.matches(":focus-visible")) tip(event.target, describe(state.current));
  });
  on(map, "focusout", () => tip(null));
  on(map, "click", (event) => {
    const at = cellAt(event);
    if (at === undefined) return;
    goTo(at, !event.shiftKey);
    if (event.shiftKey) return find(".gate-value").select();
    toggle(at);
    tip(cells[at], describe(at));
  });
  on(map, "keydown", (event) => {
    const at = cellAt(event), [layer, head] = heads[at] || [];
    if (at === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const beside = (step) => {
      let to = layer + step;
      while (to >= 0 && to < about.layers && !about.counts[to]) to += step;
      return places.get(`${to}.${Math.min(head, (about.counts[to] || 0) - 1)}`);
    };
    const steps = {
      ArrowLeft: () => at - (head > 0), ArrowRight: () => at + (head < about.counts[layer] - 1),
      ArrowUp: () => beside(-1), ArrowDown: () => beside(1),
      Home: () => at - head, End: () => at - head + about.counts[layer] - 1,
    };
    const acts = {
      Enter: () => toggle(at), " ": () => toggle(at), p: () => pin(at),
      "+": () => setGate(at, state.gates[at] + 0.25), "=": () => setGate(at, state.gates[at] + 0.25),
      "-": () => setGate(at, state.gates[at] - 0.25), "\u2212": () => setGate(at, state.gates[at] - 0.25),
      Escape: () => tip(null),
    };
    if (event.key in steps) goTo(steps[event.key]() ?? at, true);
    else if (event.key in acts) acts[event.key]();
    else return;
    event.preventDefault();
  });
  on(shade, "change", () => {
    paint();
    showPinned();
  });

  // ---- gates --------------------------------------------------------------------------------------
  const past = [], future = [];
  let dragging = false;
  function setGates(gates, remember = true) {
    if (remember) {
      past.push(state.gates);
      if (past.length > KEPT) past.shift();
      future.length = 0;
    }
    state.gates = gates;
    mark();
    ask();
  }
  function setGate(at, gate, remember = true) {
    const value = Number(clamp(gate, about.gate).toFixed(3));
    if (!Number.isFinite(value) || value === state.gates[at]) return;
    setGates(state.gates.with(at, value), remember);
    announce(`head ${names[at]}: gate ${gateText(value)}`);
  }
  const toggle = (at) => setGate(at, state.gates[at] === 0 ? 1 : 0);
  function back(from, to) {
    if (!from.length) return;
    to.push(state.gates);
    setGates(from.pop(), false);
  }
  const remove = (some) => {
    const removed = new Set(some);
    setGates(names.map((_, at) => (removed.has(at) ? 0 : 1)));
  };
  const wanted = () => clamp(Math.round(Number(find(".k").value)) || 1, [1, heads.length]);
  const topOf = (scores, k) => scores.rank.flatMap((rank, at) => (rank <= k ? [at] : []));
  function sample(list, size) {
    const left = [...list];
    return Array.from({ length: Math.min(size, left.length) }, () => left.splice(Math.floor(Math.random() * left.length), 1)[0]);
  }
  // As many heads of each layer as are selected, or as the highest k have.
  function sampleLayers() {
    const scores = about.scores[find(".of-run")?.value ?? 0];
    const some = changed().length ? changed().map((name) => places.get(name)) : scores ? topOf(scores, wanted()) : [];
    const all = names.map((_, at) => at);
    if (!some.length) return sample(all, wanted());
    return about.counts.flatMap((_, layer) => sample(all.filter((at) => heads[at][0] === layer), some.filter((at) => heads[at][0] === layer).length));
  }
  press("undo", () => back(past, future));
  press("redo", () => back(future, past));
  press("top", () => remove(topOf(about.scores[find(".of-run").value], wanted())));
  press("random", () => { seeAnother(0); remove(sample(names.map((_, at) => at), wanted())); });
  press("random-layers", () => { seeAnother(0); remove(sampleLayers()); });
  press("everything", () => remove(names.map((_, at) => at)));
  press("nothing", () => remove([]));
  press("pin", () => pin(state.current));
  on(find(".of-run"), "change", () => { find(".k").value = about.scores[find(".of-run").value].k; });
  // A drag is one step of undo, and at most one question a frame.
  on(find(".slider"), "input", () => {
    const remember = !dragging;
    dragging = true;
    setGate(state.current, find(".slider").valueAsNumber, remember);
  });
  on(find(".slider"), "change", () => { dragging = false; });
  on(find(".gate-value"), "change", () => {
    setGate(state.current, find(".gate-value").valueAsNumber);
    showCurrent();
  });
  function pin(at) {
    state.pinned = state.pinned === at ? null : at;
    mark();
    showPinned();
    ask();
  }
  function seeAnother(step) {
    state.draw += step;
    state.seen += 1;
    showDraws();
  }
  function showDraws() {
    find(".matched").value = state.matched ? "1" : "";
    find(".drawn-count").textContent = `draw ${state.draw + 1} \u00b7 ${count(state.seen, "draw")} seen`;
  }
  press("draw", () => {
    seeAnother(1);
    ask();
  });
  on(find(".matched"), "change", () => {
    state.matched = find(".matched").value === "1";
    seeAnother(0);
    ask();
  });

  // ---- input --------------------------------------------------------------------------------------
  function fromForm() {
    const text = find(".own-text").value, kind = find(".kind").value, reference = find(".own-reference").value.trim() || null;
    if (kind !== "prompt" && kind !== "chat") return { sentence: text, pair: kind, reference };
    return { prompt: text, reference, language: state.input?.language ?? null, chat: kind === "chat" };
  }
  function setInput(input, andAsk = true) {
    state.input = input;
    find(".own-text").value = input.sentence ?? input.prompt;
    find(".own-reference").value = input.reference ?? "";
    find(".kind").value = input.pair ?? (input.chat ? "chat" : "prompt");
    if (andAsk) ask();
  }
  function askOwn() {
    const input = fromForm();
    if (!(input.sentence ?? input.prompt).trim()) return fail("There is no text. Type a sentence or a prompt.");
    setInput(input);
  }
  press("go", askOwn);
  on(find(".own-text"), "keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    askOwn();
  });
  on(find(".own-reference"), "keydown", (event) => { if (event.key === "Enter") askOwn(); });
  on(find(".length"), "change", () => ask());
  all(".example-input").forEach((button) => on(button, "click", () => setInput(about.examples[button.dataset.at].input)));
  let sentence = -1, sentences = Infinity;
  function takeSentence(at) {
    const pair = find(".of-data").value;
    transport.ask("sentence", { pair, at }, (event) => {
      if (event.event === "error") return fail(event.error);
      if (event.event !== "sentence") return;
      [sentence, sentences] = [event.at, event.of];
      find(".data-place").textContent = `${sentence + 1} of ${sentences}`;
      find(".earlier").disabled = sentence <= 0;
      find(".later").disabled = sentence >= sentences - 1;
      setInput(event.input);
    });
  }
  press("earlier", () => takeSentence(Math.max(0, sentence - 1)));
  press("later", () => takeSentence(Math.min(sentences - 1, sentence + 1)));
  on(find(".of-data"), "change", () => takeSentence(0));
  if (about.data) find(".earlier").disabled = true;

  // ---- a run --------------------------------------------------------------------------------------
  const pinnedName = () => (state.pinned === null ? null : names[state.pinned]);
  const body = () => ({
    input: state.input,
    gates: Object.fromEntries(changed().map((name) => [name, state.gates[places.get(name)]])),
    draw: state.draw, matched: state.matched, pinned: pinnedName(), scores: chosen().scores?.name ?? null,
    new_tokens: clamp(Math.round(Number(find(".length").value)) || about.new_tokens, [1, 512]),
  });
  // All that happens in a frame is one question.
  function ask(write = true) {
    fresh = fresh && write;
    if (!frame) frame = requestAnimationFrame(run);
  }
  function run() {
    frame = 0;
    if (fresh) writeAddress();
    fresh = true;
    if (!state.input) return;
    if (asked) asked.cancel();
    runs += 1;
    const own = runs;
    root.dataset.run = own;
    root.dataset.state = "waiting";
    fail("");
    Object.assign(view, { shift: {}, attention: {}, alone: null });
    look(null);
    all(".tokens, .place, .lane .facts").forEach((node) => node.classList.toggle("stale", true));
    asked = transport.ask("run", body(), (event) => { if (own === runs && event.event in events) events[event.event](event); });
  }
  const events = {
    prompt: showPrompt,
    token: ({ lane, at, text, diverges }) => {
      const list = written(lane);
      if (at === 0) {
        list.replaceChildren();
        list.classList.remove("stale");
        endingOf(lane).textContent = "";
      }
      setToken(list, at, text, diverges ? "fork" : "", diverges ? "the first token that differs" : "");
    },
    lane: showLane,
    shift: showShift,
    same: () => ["gated", "random"].forEach((lane) => empty(lane, "No gate is changed, so the output is the original.")),
    place: showPlace,
    head: (event) => {
      view.alone = event.alone;
      showPinned();
    },
    attention: (event) => {
      view.attention[event.lane] = event;
      if (looked) look(looked);
    },
    done: () => { root.dataset.state = "done"; },
    error: ({ error }) => stop(error),
    displaced: () => stop("Another window of this explorer took over. Change a gate or press Run to go on here."),
  };
  function stop(words) {
    fail(words);
    root.dataset.state = "failed";
  }

  // ---- lanes --------------------------------------------------------------------------------------
  const laneOf = (lane) => find(`[data-lane=${lane}]`);
  const written = (lane) => find(".written .tokens", laneOf(lane)), shifted = (lane) => find(".shifted .tokens", laneOf(lane));
  const endingOf = (lane) => find(".ending", laneOf(lane));
  function showPrompt(prompt) {
    const { text, source, control } = prompt, box = find(".prompt");
    if (!view.prompt || view.prompt.text !== text) {
      view.tokens = [];
      box.replaceChildren(...pieces(text, prompt.tokens).map(([piece, at]) => {
        if (at < 0) return document.createTextNode(piece);
        const [start, end] = prompt.tokens[at];
        const inside = source && start < source[1] && end > source[0];
        view.tokens[at] = element("span", { className: inside ? "asked" : "", textContent: piece });
        return view.tokens[at];
      }));
      const first = box.querySelector(".asked");
      if (first) box.scrollTop = first.offsetTop - box.offsetTop - 8;
    }
    view.prompt = prompt;
    view.control = control || [];
    mark();
    find(".heads-of", laneOf("random")).textContent = control ? few(control) : "";
    if (!control && changed().length) empty("random", prompt.control_note || "");
  }
  function empty(lane, words) {
    [written(lane), shifted(lane)].forEach((list) => {
      list.replaceChildren();
      list.classList.remove("stale");
    });
    find(".total", laneOf(lane)).textContent = "";
    delete view.lanes[lane];
    endingOf(lane).textContent = words;
    all("[data-fact]", laneOf(lane)).forEach((cell) => { cell.textContent = NONE; });
    find(".facts", laneOf(lane)).classList.remove("stale");
    find(".place").hidden = true;
  }
  function showLane(said) {
    const { lane, tokens, diverges } = said;
    view.lanes[lane] = said;
    written(lane).classList.remove("stale");
    fillTokens(written(lane), tokens);
    if (known(diverges) && diverges < tokens.length) setToken(written(lane), diverges, tokens[diverges], "fork", "the first token that differs");
    if (lane === "original") ["gated", "random"].forEach((other) => { if (!view.shift[other]) fillTokens(shifted(other), tokens); });
    const compared = known(diverges) ? `First differs at token ${diverges + 1} of ${tokens.length}.` : "Same text as the original.";
    const cut = said.ended === "limit" ? `Cut after ${count(tokens.length, "token")}.` : "";
    const nothing = tokens.length ? "" : "No text.";
    endingOf(lane).textContent = [nothing, lane === "original" ? "" : compared, cut].filter(Boolean).join(" ");
    showFacts(lane);
    announce(`${NAMES[lane]}: ${said.text.trim() || "no text"}. ${lane === "original" ? "" : compared}`);
    if (lane === "gated") root.dataset.state = "written";
  }
  function showFacts(lane) {
    const said = view.lanes[lane], change = view.shift[lane]?.reference;
    if (!said) return;
    const lacking = (why) => [NONE, element("small", { textContent: ` ${why}` })];
    const without = known(view.prompt?.reference) ? "not measured" : "no reference";
    const asked = { true: ", as asked", false: ", not as asked" }[said.wanted] ?? "";
    const rows = {
      language: said.language ? [said.language.name + asked] : lacking("not identified"),
      copied: known(said.copied) ? [`${fixed(100 * said.copied, 0)}\u00a0%`] : lacking(view.prompt?.source ? "not measured" : "no source text"),
      chrf: known(said.chrf) ? [fixed(said.chrf, 1)] : lacking(without),
      reference: known(said.reference_logprob) ? [fixed(said.reference_logprob, 2), known(change) ? ` (${signed(change)})` : ""] : lacking(without),
    };
    Object.entries(rows).forEach(([name, parts]) => find(`[data-fact=${name}]`, laneOf(lane)).replaceChildren(...parts));
    find(".facts", laneOf(lane)).classList.remove("stale");
  }
  function showShift(event) {
    view.shift[event.lane] = event;
    const known = Object.values(view.shift), most = Math.max(0, ...known.flatMap(({ change }) => change.map((value) => Math.abs(value ?? 0))));
    const end = ENDS.find((limit) => limit >= most) ?? most;
    known.forEach((each) => colour(each, end));
    const bar = find(".scale .rampbar");
    bar.firstChild.textContent = signed(-end, end < 1 ? 2 : 0);
    bar.lastChild.textContent = signed(end, end < 1 ? 2 : 0);
    showFacts(event.lane);
    if (event.lane === "gated") root.dataset.state = "shifted";
  }
  function colour({ lane, change, total }, end) {
    const tokens = view.lanes.original?.tokens ?? [], list = shifted(lane);
    list.classList.remove("stale");
    tokens.forEach((text, at) => {
      const step = known(change[at]) ? Math.round(clamp(change[at] / end, [-1, 1]) * STEPS / 2) : null;
      const ramp = step === null ? "na" : step < 0 ? `n${-step} less` : step > 0 ? `q${step} more` : "m0";
      setToken(list, at, text, ramp, known(change[at]) ? `${signed(change[at])} nats` : "no value");
    });
    find(".total", laneOf(lane)).textContent = `(sum ${signed(total)})`;
  }
  function showPlace({ of, selected, random, place, among, matched }) {
    const box = find(".place"), every = [0, selected, ...random].filter(known);
    const low = Math.min(...every), span = (Math.max(...every) - low) || 1, share = (value) => (value - low) / span;
    const row = (words, mark, value, draws) => {
      const bar = element("span", { className: "bar" }, element("b"), element("em"), ...draws.map((draw) => {
        const ring = element("u");
        ring.style.setProperty("--v", share(draw));
        return ring;
      }));
      const [from, to] = [share(Math.min(0, value)), share(Math.max(0, value))];
      Object.entries({ "--f": from, "--v": to - from }).forEach(([name, each]) => bar.firstChild.style.setProperty(name, each));
      bar.children[1].style.setProperty("--z", share(0));
      return element("div", {}, element("dt", { textContent: words }),
        element("dd", { className: mark }, bar, element("span", { textContent: signed(value) })));
    };
    const mean = random.reduce((sum, value) => sum + value, 0) / (random.length || 1);
    const kind = matched ? "random, same layers" : "random";
    find("h3", box).textContent = `Change of the log-probability of the ${of}, in nats`;
    find("dl", box).replaceChildren(row("Selected", "key-top", selected, []), row(`${kind}, mean of ${count(random.length, "draw")}`, "key-random", mean, random));
    find(".note", box).textContent = `The selected change is ${place === 1 ? "the lowest" : `at place ${place}, counted from the lowest,`} of ${among}: ` +
      `itself and ${count(random.length, "draw")}. Rings are single draws.`;
    box.hidden = false;
    box.classList.remove("stale");
  }

  // ---- where the pinned head looks ----------------------------------------------------------------
  const arcs = find(".arcs"), reading = find(".reading");
  const idle = () => (state.pinned === null ? "Pin a head to see where it looks." : `Point at an output token to see where head ${pinnedName()} looks.`);
  let looked = null;
  // `token` is a span of a lane: what predicted it looked there.
  function look(token) {
    looked = token && token.isConnected ? token : null;
    all(".prompt .lit, .tokens .lit").forEach((node) => node.classList.remove("lit"));
    const lane = looked && (looked.closest(".shifted") ? "original" : looked.closest("[data-lane]").dataset.lane);
    const at = looked && Array.from(looked.parentNode.children).indexOf(looked);
    const attention = looked && view.attention[lane], rows = attention?.weights[at] || [];
    if (!attention || !view.prompt || attention.head !== pinnedName()) {
      arcs.replaceChildren();
      reading.replaceChildren(idle());
      return;
    }
    const { tokens, words, source, text } = view.prompt, peak = attention.peaks[at];
    const target = peak < 0 ? null : peak < tokens.length ? view.tokens[peak] : written(lane).children[peak - tokens.length];
    const letters = Array.from(text), wordOf = (word) => letters.slice(...words[word]).join("");
    const firstOf = (word) => view.tokens[tokens.findIndex(([, end]) => end > words[word][0])];
    const said = view.lanes[lane]?.tokens[at] ?? looked.textContent;
    const name = target ? `its peak at ${target.textContent ? quoted(target.textContent) : "the start of the prompt"}` : "no peak in the text";
    reading.replaceChildren(
      element("span", { textContent: `${NAMES[lane]}, token ${at + 1} ${quoted(said)}: head ${attention.head} has ${name}. ` +
        (rows.length ? `Weights on ${source ? "source words" : "words of the prompt"}:` : "") }),
      element("ol", {}, ...rows.map(([word, weight]) => {
        const bar = element("b");
        bar.style.width = `${Math.max(1, 100 * weight)}%`;
        return element("li", {}, element("bdi", { textContent: wordOf(word) }), ` ${fixed(weight)}`, element("span", { className: "bar" }, bar));
      })));
    const lines = rows.map(([word, weight]) => [firstOf(word), `weight`, 1 + 5 * weight]);
    drawArcs(target ? [...lines, [target, "peak", 2]] : lines, looked, lane);
    if (target) target.classList.add("lit");
  }
  function drawArcs(lines, from, lane) {
    const stage = arcs.getBoundingClientRect();
    const box = (node) => node.getClientRects()[0] || node.getBoundingClientRect();
    const start = box(from), paths = lines.filter(([target]) => target).map(([target, kind, width]) => {
      const end = box(target), level = Math.abs(end.top - start.top) < start.height;
      const [x, y] = [start.left + start.width / 2 - stage.left, start.top - stage.top];
      const [toX, toY] = [end.left + end.width / 2 - stage.left, (level ? end.top : end.bottom) - stage.top];
      const [bend, other] = level ? [y - 28, toY - 28] : [(y + toY) / 2, (y + toY) / 2];
      return drawn("path", { class: kind, "stroke-width": width, d: `M${x} ${y}C${x} ${bend} ${toX} ${other} ${toX} ${toY}` });
    });
    arcs.setAttribute("class", `arcs key-${MARKS[lane] || "base"}`);
    arcs.replaceChildren(...paths);
  }
  const tokenAt = (event) => event.target.closest(".tokens .tok");
  function pointTo(token) {
    look(token);
    const change = token && token.closest(".shifted");
    tip(change ? token : null, change ? token.getAttribute("aria-label") : "");
  }
  on(find(".lanes"), "pointerover focusin", (event) => {
    const token = tokenAt(event);
    if (token !== looked) pointTo(token);
  });
  on(find(".lanes"), "pointerleave focusout", () => pointTo(null));
  on(find(".lanes"), "click", (event) => { if (tokenAt(event)) tokenAt(event).focus(); });
  on(find(".lanes"), "keydown", (event) => {
    const token = tokenAt(event);
    if (!token) return;
    if (event.key === "Escape") return pointTo(null);
    const rightward = getComputedStyle(token.parentNode).direction === "rtl" ? -1 : 1;
    const step = { ArrowRight: rightward, ArrowLeft: -rightward, ArrowDown: 1, ArrowUp: -1 }[event.key];
    const tokens = Array.from(token.parentNode.children), next = tokens[tokens.indexOf(token) + step];
    if (!step) return;
    event.preventDefault();
    if (!next) return;
    token.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });

  // ---- the pinned head ----------------------------------------------------------------------------
  let best = null, bestOf = "";
  function showPinned() {
    const box = find(".about-head"), at = state.pinned, { scores } = chosen();
    box.hidden = at === null;
    find(".pinned > .note").hidden = at !== null;
    find(".pinned h2").textContent = at === null ? "Pinned head" : `Pinned head ${names[at]}`;
    if (!looked) reading.replaceChildren(idle());
    if (at === null) return;
    const rows = scores ? shown(scores).map((column) => [column.title, withInterval(scores, column, at)]) : [];
    if (scores) rows.push(["Class", scores.classes ? scores.classes[at] : NONE], ["Rank", `${scores.rank[at]} of ${heads.length}`]);
    rows.push(["Gate", gateText(state.gates[at])]);
    const { alone } = view, nats = (value) => `${signed(value)} nats`;
    rows.push(["Removed alone", alone ? `log-probability of the original output ${nats(alone.total)}${known(alone.reference) ? `, of the reference ${nats(alone.reference)}` : ""}` : NONE]);
    find("dl", box).replaceChildren(...rows.map(([name, value]) => element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value }))));
    askBest(scores, names[at]);
  }
  function askBest(scores, head) {
    const box = find(".about-head"), wanted = `${scores?.name} ${head}`;
    if (wanted === bestOf) return;
    if (best) best.cancel();
    bestOf = wanted;
    find("h3", box).textContent = "Its best sentences";
    find(".best", box).replaceChildren();
    find(".note", box).textContent = scores?.sentences ? "Underlined: the peak is on a linked word (hit). Dotted: it is not (miss). Point at a word to see its peak." : "The run keeps no peaks of single sentences.";
    best = scores?.sentences ? transport.ask("best", { scores: scores.name, head }, (event) => {
      if (wanted !== bestOf) return;
      if (event.event === "error") find(".note", box).textContent = event.error;
      if (event.event === "best") showBest(event.sentences);
    }) : null;
  }
  function showBest(sentences) {
    const kinds = { true: ["word hit", "hit"], false: ["word miss", "miss"] };
    find(".best").replaceChildren(...sentences.map(({ part, id, source, target, hits, of, words, tokens, peaks, hit }) => {
      const spans = (text, cuts, make) => element("p", { dir: "auto" }, ...pieces(text, cuts).map(([piece, at]) => (at < 0 ? piece : make(piece, at))));
      const sources = spans(source, words, (piece, at) => element("span", { className: "word", textContent: piece, attributes: { "data-at": at } }));
      const targets = spans(target, tokens, (piece, at) => {
        const [className, kind] = kinds[hit[at]] || ["word", ""], peak = peaks[at] ?? -1;
        const where = peak >= 0 && words[peak] ? `, peak at ${Array.from(source).slice(...words[peak]).join("")}` : "";
        return element("span", { className, textContent: piece, tabIndex: kind ? 0 : -1, attributes: { "data-of": peak, role: "note", "aria-label": `${piece.trim()}${kind && `, ${kind}`}${where}` } });
      });
      const title = element("header", {}, element("span", { textContent: part }), element("span", { className: "id", textContent: id }), element("span", { textContent: `${hits} of ${of} hits` }));
      return element("article", { className: "example" }, title, sources, targets);
    }));
  }
  on(find(".best"), "pointerover focusin pointerleave focusout", (event) => {
    all(".best :is(.lit, .held)").forEach((node) => node.classList.remove("lit", "held"));
    const word = event.type.endsWith("leave") || event.type.endsWith("out") ? null : event.target.closest(".word[data-of]");
    if (!word) return;
    word.classList.add("held");
    const source = find(`[data-at="${word.dataset.of}"]`, word.closest(".example"));
    if (source) source.classList.add("lit");
  });

  // ---- the address --------------------------------------------------------------------------------
  function fragment() {
    const { input, gates, draw, matched, seen } = state;
    const parts = { gates: writeGates(gates, about.counts), pin: pinnedName() ?? "", draw: draw || "", matched: matched ? 1 : "", seen: seen > 1 ? seen : "" };
    const kept = Object.entries(parts).filter(([name, value]) => value !== "" || name === "pin");
    return `#${new URLSearchParams([...(input ? [["input", JSON.stringify(input)]] : []), ...kept])}`;
  }
  function writeAddress() {
    const text = fragment(), now = Date.now(), rapid = dragging || now - told < PAUSE || !told;
    if (!transport.address || text === location.hash) return;
    // Steps in quick succession are one step of the browser's history.
    history[rapid ? "replaceState" : "pushState"](null, "", location.pathname + text);
    told = now;
  }
  function restore() {
    const given = new URLSearchParams(transport.address ? location.hash.slice(1) : "");
    const ranked = about.scores[0] ? about.scores[0].rank.indexOf(1) : -1;
    const number = (name, least) => Math.max(least, Math.round(Number(given.get(name))) || 0);
    state.gates = readGates(given.get("gates") || "", heads, about.gate);
    state.pinned = (given.has("pin") ? places.get(given.get("pin")) : places.get(names[ranked])) ?? null;
    Object.assign(state, { draw: number("draw", 0), seen: number("seen", 1), matched: given.get("matched") === "1" });
    if (state.pinned !== null) state.current = state.pinned;
    const input = readInput(given.get("input")) ?? state.input ?? about.examples[0]?.input;
    if (input) setInput(input, false);
    paint();
    showDraws();
    showPinned();
    if (input) ask(false);
    else if (about.data) takeSentence(0);
  }
  function readInput(text) {
    if (!text) return null;
    try {
      const input = JSON.parse(text), { sentence: own, prompt, pair, reference = null, language = null, chat = false } = input;
      if (typeof prompt === "string") return { prompt, reference, language, chat };
      if (typeof own === "string" && about.pairs.some((each) => each.pair === pair)) return { sentence: own, pair, reference };
    } catch (failure) {
      if (!(failure instanceof SyntaxError)) throw failure;
    }
    fail("The address has an input that this model cannot take, so another one is shown.");
    return null;
  }
  if (transport.address) on(window, "popstate", restore);

  // ---- what is kept -------------------------------------------------------------------------------
  async function keep(title, text, copied = true) {
    const box = find(".kept");
    find("pre", box).textContent = text;
    box.hidden = false;
    let done = "";
    if (copied) done = await navigator.clipboard.writeText(text).then(() => ", copied", () => "; the browser does not allow copying, so select it");
    find(".note", box).textContent = `${title}${done}:`;
  }
  function askFor(kind, react) {
    if (!state.input) return fail("There is no input yet. Type a sentence or a prompt.");
    transport.ask(kind, body(), (event) => (event.event === "error" ? fail(event.error) : event.event !== "end" && react(event)));
  }
  function mapAsSvg() {
    const copy = map.cloneNode(true), copies = [copy, ...copy.querySelectorAll("*")];
    const kept = ["fill", "stroke", "stroke-width", "stroke-dasharray", "vector-effect", "paint-order", "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline"];
    [map, ...map.querySelectorAll("*")].forEach((node, at) => {
      const style = getComputedStyle(node), sized = node.matches("rect") ? ["width", "height", "rx"] : [];
      [...kept, ...sized].forEach((name) => copies[at].setAttribute(name, style.getPropertyValue(name)));
    });
    copy.style.background = getComputedStyle(root).getPropertyValue("--paper");
    return new XMLSerializer().serializeToString(copy);
  }
  function tokensAsCsv() {
    const cell = (value) => `"${String(value ?? "").replaceAll('"', '""')}"`;
    const rows = LANES.flatMap((lane) => (view.lanes[lane]?.tokens ?? []).map((text, at) => [
      NAMES[lane].toLowerCase(), at, text,
      ...["gated", "random"].map((other) => (lane === "original" ? view.shift[other]?.change[at] : "")),
      lane === "original" ? "" : view.lanes[lane].diverges === at,
    ]));
    return [["output", "token", "text", "change_selected", "change_random", "first_difference"], ...rows].map((row) => row.map(cell).join(",")).join("\n");
  }
  press("copy-link", () => keep("Link", location.origin + location.pathname + fragment()));
  press("copy-command", () => askFor("copy", ({ command }) => keep("Command", command)));
  press("copy-python", () => askFor("copy", ({ python }) => keep("Python", python)));
  press("save-run", () => askFor("save", (event) => keep("Saved as run", event.run, false)));
  press("save-svg", () => download("heads.svg", "image/svg+xml", mapAsSvg()));
  press("save-csv", () => download("tokens.csv", "text/csv", tokensAsCsv()));
  find(".copy-link").hidden = !transport.address;

  restore();
  return {
    close() {
      closing.abort();
      cancelAnimationFrame(frame);
      [asked, best].forEach((each) => each && each.cancel());
    },
  };
}
