"use strict";
// Charts as SVG: axes, lines, bands, markers and what the pointer and the keyboard do with them. Knows no studies.

// ---- elements and text

function maker(create) {
  return (name, attributes = {}, ...children) => {
    const element = create(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children);
    return element;
  };
}
const html = maker((name) => document.createElement(name));
const svg = maker((name) => document.createElementNS("http://www.w3.org/2000/svg", name));

// Text from users: control characters and direction marks are shown, not obeyed.
function safe(text) {
  return String(text).replace(
    /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu,
    (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`,
  );
}

// A number to four digits, as in the tables of the Python side.
function number(value, digits = 4) {
  for (const [limit, letter] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e5, "k"],
  ]) {
    if (Math.abs(value) >= limit && Math.abs(value) < 1e15) {
      return Number((value / (letter === "k" ? 1e3 : limit)).toPrecision(digits)) + letter;
    }
  }
  if (value && Math.abs(value) < 1e-4) return Number(value.toPrecision(digits)).toExponential();
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(digits)));
}

// A value as text; of a long list, the first three, the last one and their count.
function plain(value) {
  if (!Array.isArray(value)) return typeof value === "number" ? number(value) : safe(value);
  if (value.length <= 10) return `[${value.map(plain).join(", ")}]`;
  return `[${value.slice(0, 3).map(plain).join(", ")}, ..., ${plain(value.at(-1))}] (${value.length} values)`;
}

// ---- scales: values to pixels

const TRANSFORMS = {
  linear: { forward: (value) => value, back: (t) => t },
  log: { forward: (value) => Math.log10(value), back: (t) => 10 ** t },
  error: { forward: (value) => Math.log10(1 - value), back: (t) => 1 - 10 ** t }, // 1 - accuracy on a logarithm
};

// A scale from values to pixels between `from` and `to`; `padding` is a share of its length. Between whole values on
// a logarithm, such as rounds, only whole ones are labelled.
function scale(kind, values, from, to, padding = 0.04) {
  const { forward, back } = TRANSFORMS[kind];
  let low = Infinity,
    high = -Infinity;
  for (const value of values) {
    const t = forward(value);
    if (Number.isFinite(t)) {
      low = Math.min(low, t);
      high = Math.max(high, t);
    }
  }
  if (low > high) [low, high] = kind === "linear" ? [0, 1] : [-1, 0];
  const margin = (high - low) * padding || (padding ? 0.05 * Math.abs(low) || 0.05 : 1e-9);
  low -= margin;
  high += margin;
  const whole = kind === "log" && values.length > 0 && values.every(Number.isInteger);
  // Values without a place, such as 0 on a logarithm, and values beyond an end are drawn at that end.
  const inside = (t) => (Number.isNaN(t) ? low : Math.max(low, Math.min(t, high)));
  return {
    at: (value) => from + ((inside(forward(value)) - low) / (high - low)) * (to - from),
    value: (pixel) => back(low + ((pixel - from) / (to - from)) * (high - low)),
    ticks: (room) => ticks(kind, low, high, room).filter(([value]) => !whole || Number.isInteger(value)),
  };
}

// Values to label between two transformed ends, as [value, text]: about `room`, but at least two, which show the scale.
function ticks(kind, low, high, room) {
  const found = ticksFor(kind, low, high, room);
  return found.length > 1 || room > 64 ? found : ticks(kind, low, high, room + 1);
}

function ticksFor(kind, low, high, room) {
  if (kind === "linear") return steps(low, high, room).map((value) => [value, number(value)]);
  const shown = kind === "error" ? (value) => [1 - value, number(value)] : (value) => [value, number(value)];
  const decades = high - low;
  if (decades < 0.6) return steps(10 ** low, 10 ** high, room).map(shown);
  const choices = [...(decades < 1 ? [[1, 2, 3, 5, 7]] : []), [1, 2, 5], [1, 3], [1]];
  const digits = choices.find((one) => decades * one.length <= room + 1) || [1];
  const every = digits.length > 1 ? 1 : Math.max(1, Math.ceil(decades / room));
  const found = [];
  for (let power = Math.floor(low); power <= high; power += 1) {
    if (power % every) continue;
    for (const digit of digits) {
      const value = Number(`${digit}e${power}`);
      if (Math.log10(value) >= low - 1e-9 && Math.log10(value) <= high + 1e-9) found.push(shown(value));
    }
  }
  return found;
}

function steps(low, high, room) {
  const rough = (high - low) / Math.max(room, 3),
    power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((digit) => digit * power >= rough);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high + 1e-12; k += 1)
    found.push(Number((k * step).toPrecision(12)));
  return found;
}

// A scale for the values of a hyperparameter: numbers on a logarithm if they span more than a factor 20, with 0 below
// them; everything else as a category. Missing values (undefined) have no place.
function valueScale(values, from, to) {
  const known = values.filter((value) => value !== undefined);
  if (known.length && known.every((value) => typeof value === "number")) {
    const few = [...new Set(known)].sort((a, b) => a - b);
    const whole = few.length <= 6 && few.every(Number.isInteger) ? few.map((value) => [value, number(value)]) : null;
    const positive = known.filter((value) => value > 0);
    const least = Math.min(...positive),
      most = Math.max(...positive);
    if (known.every((value) => value >= 0) && most > 20 * least) {
      const zero = known.includes(0) ? least / 4 : null;
      const logarithmic = scale("log", zero ? [zero, least, most] : [least, most], from, to);
      return {
        at: (value) => logarithmic.at(value === 0 ? zero : value),
        ticks: (room) =>
          whole || [
            ...(zero ? [[0, "0"]] : []),
            ...logarithmic.ticks(room).filter(([value]) => value >= least * 0.999),
          ],
      };
    }
    const linear = scale("linear", known, from, to);
    return { ...linear, ticks: (room) => whole || linear.ticks(room) };
  }
  const names = [...new Set(known.map((value) => JSON.stringify(value)))].sort();
  const places = scale(
    "linear",
    names.map((_, index) => index),
    from,
    to,
    0.15,
  );
  return {
    at: (value) => places.at(names.indexOf(JSON.stringify(value))),
    ticks: () => names.map((name) => [JSON.parse(name), plain(JSON.parse(name))]),
  };
}

// ---- drawing

const px = (value) => Math.round(value * 10) / 10;

let charts = 0;

// An empty chart with its axes. `x` and `y` make a scale from two pixels, so that they can be drawn at any size.
function chart(host, { height, x, y, xTitle, yTitle = "", name, left = 58 }) {
  const width = Math.max(host.clientWidth, 200),
    bottom = height - (xTitle ? 42 : 24);
  const across = x(left, width - 14),
    up = y(bottom, 12);
  const root = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    role: "group",
    tabindex: 0,
    "aria-label": `${name}: arrow keys move between markers, Enter selects`,
  });
  for (const [value, text] of across.ticks(Math.floor((width - left) / 70))) {
    const at = px(across.at(value));
    root.append(
      svg("line", { class: "grid", x1: at, x2: at, y1: 12, y2: bottom }),
      svg("text", { x: at, y: bottom + 16, "text-anchor": "middle" }, text),
    );
  }
  for (const [value, text] of up.ticks(Math.floor(height / 45))) {
    const at = px(up.at(value));
    root.append(
      svg("line", { class: "grid", x1: left, x2: width - 14, y1: at, y2: at }),
      svg("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, text),
    );
  }
  if (xTitle)
    root.append(
      svg("text", { class: "title", x: (left + width - 14) / 2, y: height - 6, "text-anchor": "middle" }, xTitle),
    );
  if (yTitle)
    root.append(
      svg(
        "text",
        { class: "title", transform: `translate(12,${bottom / 2}) rotate(-90)`, "text-anchor": "middle" },
        yTitle,
      ),
    );
  charts += 1;
  root.append(
    svg(
      "clipPath",
      { id: `inside${charts}` },
      svg("rect", { x: left - 7, y: 5, width: width - left, height: bottom + 2 }),
    ),
  );
  const content = svg("g", { "clip-path": `url(#inside${charts})` }),
    overlay = svg("g");
  root.append(content, overlay);
  host.replaceChildren(root);
  return { root, content, overlay, width, height, bottom, left, x: across, y: up, points: [] };
}

const joined = (points) => points.map(([x, y]) => `${px(x)},${px(y)}`).join("L");
const line = (points) => (points.length ? `M${joined(points)}` : "");
const area = (lower, upper) => `M${joined([...lower, ...upper.slice().reverse()])}Z`;

// The corners of a staircase through points: flat until the next point, then up or down.
function stairs(points) {
  return points.flatMap(([x, y], index) =>
    index
      ? [
          [x, points[index - 1][1]],
          [x, y],
        ]
      : [[x, y]],
  );
}

const SYMBOLS = {
  circle: (x, y, r) => `M${x - r},${y}a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0z`,
  square: (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
  "triangle-up": (x, y, r) => `M${x},${y - 1.2 * r}l${1.2 * r},${2.1 * r}h${-2.4 * r}z`,
  "triangle-down": (x, y, r) => `M${x},${y + 1.2 * r}l${1.2 * r},${-2.1 * r}h${-2.4 * r}z`,
  diamond: (x, y, r) => `M${x},${y - 1.3 * r}l${1.3 * r},${1.3 * r}l${-1.3 * r},${1.3 * r}l${-1.3 * r},${-1.3 * r}z`,
  cross: (x, y, r) =>
    `M${x - r / 2},${y - 1.2 * r}h${r}v${r * 0.7}h${r * 0.7}v${r}h${-r * 0.7}v${r * 0.7}` +
    `h${-r}v${-r * 0.7}h${-r * 0.7}v${-r}h${r * 0.7}z`,
};

// One path for all these points, however many there are.
const marks = (points, symbol, radius = 5) =>
  points.map((point) => SYMBOLS[symbol](px(point.x), px(point.y), radius)).join("");
const dots = (points) => points.map((point) => `M${px(point.x)},${px(point.y)}h0`).join("");

// ---- pointer and keyboard

const tip = document.getElementById("tip");

function showTip(root, view, point) {
  const box = root.getBoundingClientRect(),
    ratio = box.width / view.width;
  const [first, ...rest] = point.text();
  tip.replaceChildren(html("b", {}, first), ...rest.map((row) => html("div", {}, row)));
  tip.hidden = false;
  const x = box.left + point.x * ratio,
    y = box.top + point.y * ratio;
  tip.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${y + 14 + tip.offsetHeight > window.innerHeight ? Math.max(4, y - tip.offsetHeight - 10) : y + 14}px`;
}

// Points know `x`, `y`, `text()` and may be picked. The nearest one within `reach` pixels speaks; of points at one place
// the one that is drawn last, on top of the others.
function pointer(view, { reach = 26, distance, pick, pickNothing }) {
  const ring = svg("circle", { class: "chosen", r: 8, visibility: "hidden" });
  view.root.append(ring);
  let current = null;
  const measure = distance || ((point, x, y) => Math.hypot(point.x - x, point.y - y));
  const show = (point) => {
    current = point;
    if (!point) {
      tip.hidden = true;
      ring.setAttribute("visibility", "hidden");
      return;
    }
    ring.setAttribute("cx", point.x);
    ring.setAttribute("cy", point.y);
    ring.setAttribute("visibility", "visible");
    showTip(view.root, view, point);
  };
  const place = (event) => {
    const box = view.root.getBoundingClientRect(),
      ratio = view.width / box.width;
    return [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
  };
  const nearest = (x, y) => {
    let best = null,
      least = reach;
    for (const point of view.points) {
      const far = measure(point, x, y);
      if (far <= least) {
        best = point;
        least = far;
      }
    }
    return best;
  };
  view.root.addEventListener("pointermove", (event) => show(nearest(...place(event))));
  view.root.addEventListener("pointerleave", () => show(null));
  view.root.addEventListener("blur", () => show(null));
  view.root.addEventListener("click", (event) => {
    const [x, y] = place(event),
      point = nearest(x, y);
    show(point);
    if (point && pick) pick(point);
    else if (pickNothing) pickNothing(x, y);
  });
  view.root.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const ordered = view.points.slice().sort((a, b) => a.x - b.x);
    if (step && ordered.length) {
      const at = ordered.indexOf(current);
      show(
        ordered[at < 0 ? (step > 0 ? 0 : ordered.length - 1) : Math.max(0, Math.min(at + step, ordered.length - 1))],
      );
    } else if (event.key === "Enter" && current && pick) pick(current);
    else if (event.key === "Escape") show(null);
    else return;
    event.preventDefault();
  });
}
