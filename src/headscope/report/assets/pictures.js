"use strict";
// Every figure saves itself as a drawing of plain shapes and texts, which any program reads, and as
// an image of that drawing at twice its size.
(() => {
  const { all, find, save } = headscope, EDGE = 12, TIMES = 2, NUMBER = /-?(?:\d*\.)?\d+(?:e-?\d+)?/g;
  const pen = document.createElement("canvas").getContext("2d");
  const clear = (colour) => /^none|, 0\)$/.test(colour), short = (number) => Math.round(number * 100) / 100;
  const numbers = (text) => (text.match(NUMBER) || []).map(Number);

  function node(name, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value.toFixed ? short(value) : value);
    made.append(...children);
    return made;
  }
  function drawing(figure) {
    const shapes = [], hatches = [], ends = [Infinity, Infinity, -Infinity, -Infinity];
    function put(box, name, attributes, ...children) {
      box.forEach((end, at) => { ends[at] = (at < 2 ? Math.min : Math.max)(ends[at], end); });
      shapes.push(node(name, attributes, ...children));
    }
    const rect = (x, y, width, height, look) => width && height && put([x, y, x + width, y + height], "rect", { x, y, width, height, ...look });
    // Stripes of two colours, as a pattern that is turned.
    function hatch(image) {
      const [front, back] = image.match(/rgba?\(.*?\)/g).filter((_, at) => at % 2 === 0), sizes = numbers(image.match(/[\d.]+px/g).join());
      const height = sizes.at(-1), id = `hatch${hatches.length}`, stripes = [[back, height], [front, sizes[1] || sizes[0]]];
      const look = { id, width: height, height, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
      hatches.push(node("pattern", look, ...stripes.map(([fill, width]) => node("rect", { width, height, fill: clear(fill) ? "none" : fill }))));
      return `url(#${id})`;
    }
    // A box of HTML: its ground, its border, turned as it is.
    function box(style, x, y, width, height) {
      const [up, right, down, left] = ["Top", "Right", "Bottom", "Left"].map((side) => parseFloat(style[`border${side}Width`]));
      const even = up && up === right && up === down, turn = numbers(style.transform).slice(0, 4).join(" ");
      const fill = style.backgroundImage.startsWith("repeating") ? hatch(style.backgroundImage) : style.backgroundColor;
      const middle = [x + width / 2, y + height / 2].map(short), look = style.opacity < 1 ? { opacity: style.opacity } : {};
      if (turn && turn !== "1 0 0 1") look.transform = `translate(${middle}) matrix(${turn} 0 0) translate(${middle.map((end) => -end)})`;
      if (style.clipPath.startsWith("polygon")) {
        const points = numbers(style.clipPath).map((share, at) => short(at % 2 ? y + share * height / 100 : x + share * width / 100));
        return put([x, y, x + width, y + height], "polygon", { points, fill: style.borderTopColor, ...look });
      }
      if (even) Object.assign(look, { stroke: style.borderTopColor, "stroke-width": up });
      const inset = even ? up / 2 : 0, round = style.borderTopLeftRadius, rx = parseFloat(round) * (round.endsWith("%") ? width / 100 : 1);
      if (even || !clear(fill)) rect(x + inset, y + inset, width - 2 * inset, height - 2 * inset, { rx, fill: clear(fill) ? "none" : fill, ...look });
      if (even) return;
      rect(x, y, width, up, { fill: style.borderTopColor });
      rect(x, y + height - down, width, down, { fill: style.borderBottomColor });
      rect(x, y, left, height, { fill: style.borderLeftColor });
      rect(x + width - right, y, right, height, { fill: style.borderRightColor });
    }
    function pseudo(owner, which) {
      const style = getComputedStyle(owner, which), { left, top } = owner.getBoundingClientRect();
      if (/^no/.test(style.content) || style.visibility === "hidden") return;
      const [x, y, ...size] = [style.left, style.top, style.width, style.height].map((each) => parseFloat(each) || 0);
      box(style, left + x, top + y, ...size);
    }
    const face = ({ fontFamily, fontSize, fontWeight }) => ({ "font-family": fontFamily, "font-size": fontSize, "font-weight": fontWeight });
    function write(said, style, { left, top, right, bottom }) {
      pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
      const { fontBoundingBoxAscent: rise, fontBoundingBoxDescent: fall } = pen.measureText(said);
      put([left, top, right, bottom], "text", { x: left, y: (top + bottom + rise - fall) / 2, fill: style.color, ...face(style) }, said);
    }
    // Words as the lines that they stand in.
    function words(text) {
      const range = document.createRange(), lines = [];
      for (const { 0: word, index } of text.data.matchAll(/[^ \n\t]+/g)) {
        range.setStart(text, index);
        range.setEnd(text, index + word.length);
        const { left, top, right, bottom } = range.getBoundingClientRect(), last = lines.at(-1);
        if (last && Math.abs(last.top - top) < 2) Object.assign(last, { said: `${last.said} ${word}`, right });
        else if (right > left) lines.push({ said: word, left, top, right, bottom });
      }
      lines.forEach((line) => write(line.said, getComputedStyle(text.parentElement), line));
    }
    // A shape of SVG where it is seen; its numbers become those of the drawing.
    function shape(own) {
      const style = getComputedStyle(own), { a, b, c, d, e, f } = own.getScreenCTM(), look = { fill: style.fill };
      const across = (x) => short(a * x + e), down = (y) => short(d * y + f), given = (key) => own.getAttribute(key);
      const wide = style.vectorEffect === "non-scaling-stroke" ? 1 : Math.abs(d);
      if (style.stroke !== "none") Object.assign(look, { stroke: style.stroke, "stroke-width": parseFloat(style.strokeWidth) * wide });
      if (look.stroke && style.strokeDasharray !== "none") look["stroke-dasharray"] = numbers(style.strokeDasharray).map((part) => short(part * wide));
      ["fill-opacity", "stroke-opacity", "opacity"].forEach((key) => { if (style[key] < 1) look[key] = style[key]; });
      if (own.localName === "text") {
        const { left, top, right, bottom } = own.getBoundingClientRect(), lower = style.dominantBaseline === "central" ? 0.35 : 0;
        const place = { x: given("x") || 0, y: Number(given("y")) + lower * parseFloat(style.fontSize), transform: `matrix(${[a, b, c, d, e, f].map(short)})` };
        return put([left, top, right, bottom], "text", { ...place, ...look, ...face(style), "text-anchor": style.textAnchor, "paint-order": style.paintOrder }, own.textContent);
      }
      const { x, y, width, height } = own.getBBox(), end = [across(x), down(y), across(x + width), down(y + height)];
      const made = {
        rect: () => ({ x: end[0], y: end[1], width: a * width, height: d * height, rx: a * parseFloat(style.rx) || 0 }),
        circle: () => ({ cx: across(x + width / 2), cy: down(y + height / 2), r: a * width / 2 }),
        line: () => ({ x1: across(given("x1")), y1: down(given("y1")), x2: across(given("x2")), y2: down(given("y2")) }),
        polygon: () => ({ points: numbers(given("points")).map((end, at) => (at % 2 ? down : across)(end)) }),
        // Large letters name places, small ones steps; H, h, V and v have one number each.
        path: () => ({ d: given("d").replace(/([a-z])([^a-z]*)/gi, (_, letter, rest) => letter + numbers(rest).map((end, at) => {
          const upright = /v/i.test(letter) || (at % 2 && letter !== "h");
          return letter > "Z" ? short(end * (upright ? d : a)) : (upright ? down : across)(end);
        }).join(" ")) }),
      }[own.localName];
      if (made) put(end, own.localName, { ...made(), ...look });
    }
    function walk(own) {
      if (own.nodeType === Node.TEXT_NODE) return words(own);
      if (!own.matches || own.matches("button, .unseen, caption, summary") || !own.checkVisibility({ visibilityProperty: true })) return;
      if (own.ownerSVGElement && own.localName !== "g") return shape(own);
      if (/^(svg|g)$/.test(own.localName)) return own.childNodes.forEach(walk);
      const style = getComputedStyle(own), place = own.getBoundingClientRect(), { left, top, width, height } = place;
      if (own.localName === "select") return write(own.selectedOptions[0].textContent, style, place);
      const [wide, high] = style.transform === "none" ? [width, height] : [own.offsetWidth, own.offsetHeight];
      box(style, left + (width - wide) / 2, top + (height - high) / 2, wide, high);
      pseudo(own, "::before");
      own.childNodes.forEach(walk);
      pseudo(own, "::after");
    }
    walk(figure);
    const [x, y] = [ends[0] - EDGE, ends[1] - EDGE], width = Math.ceil(ends[2] - x + EDGE), height = Math.ceil(ends[3] - y + EDGE);
    const ground = node("rect", { x, y, width, height, fill: getComputedStyle(document.body).backgroundColor });
    const title = node("title", {}, (find("figcaption", figure) || figure).textContent), view = [x, y, width, height].map(short).join(" ");
    const made = node("svg", { width, height, viewBox: view }, title, node("defs", {}, ...hatches), ground, ...shapes);
    return { width, height, text: new XMLSerializer().serializeToString(made) };
  }
  function image({ width, height, text }, done) {
    const picture = new Image(), canvas = document.createElement("canvas");
    Object.assign(canvas, { width: TIMES * width, height: TIMES * height });
    picture.onload = () => {
      canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(done);
    };
    picture.src = `data:image/svg+xml,${encodeURIComponent(text)}`;
  }
  const ways = {
    SVG: (made, name) => save(`${name}.svg`, made.text, "image/svg+xml"),
    PNG: (made, name) => image(made, (blob) => save(`${name}.png`, blob, blob.type)),
  };
  all("main figure:has(.chart, .bars, .matrix, .arcs, .profile)").forEach((figure, at) => {
    if (figure.parentElement.closest("figure")) return;
    const name = `${find("h1")?.textContent}-${figure.id || at}`.toLowerCase().replace(/[^a-z0-9]+/g, "-"), line = document.createElement("p");
    line.className = "script pictures";
    line.append(...Object.entries(ways).map(([words, way]) => {
      const button = document.createElement("button");
      button.textContent = words;
      button.setAttribute("aria-label", `Save the figure as ${words}`);
      button.addEventListener("click", () => way(drawing(figure), name));
      return button;
    }));
    figure.append(line);
  });
})();
