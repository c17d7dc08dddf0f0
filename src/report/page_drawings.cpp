#include "report/report_page.hpp"

namespace forge {

const char* const page_drawings = R"js(
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs;
const state = { axis: "step", range: null, smooth: true, whole: false, log: false, hidden: new Set() };
const redraws = [];
const redraw = () => redraws.forEach((draw) => draw());
const colours = 8;
const colourOf = (i) => `var(--c${i % colours})`;

// Texts become text nodes: nothing of a run is read as HTML.
function node(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}
function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
const chip = (colour, dash = "") => {
  const [on, off] = dash.split(" ").map(Number);
  const fill = dash ? `repeating-linear-gradient(90deg, ${colour} 0 ${on}px, transparent ${on}px ${on + off}px); width: 24px` : colour;
  return node("span", { class: "chip", style: `background: ${fill}` });
};

function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e5 || size < 1e-3) return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(value.toPrecision(5)));
}
function counted(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, unit] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]])
    if (Math.abs(value) >= size) return Number((value / size).toPrecision(4)) + unit;
  return short(value);
}
const percent = (value) => Number((100 * value).toPrecision(3)) + " %";
const bytes = (value) => (value >= 2 ** 30 ? (value / 2 ** 30).toFixed(2) + " GiB" : (value / 2 ** 20).toFixed(2) + " MiB");

// Where a step is on the axis: between two known places in a straight line; a run begins at 0.
function place(run, step) {
  if (state.axis === "step") return step;
  const { steps, values } = state.axis === "tokens" ? run.tokens : run.seconds;
  const scale = state.axis === "hours" ? 1 / 3600 : 1;
  let low = 0, high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < step) low = middle + 1;
    else high = middle;
  }
  if (steps.length === 0) return 0;
  if (low === steps.length) return values[low - 1] * scale;
  const from = low > 0 ? [steps[low - 1], values[low - 1]] : [Math.min(0, step), 0];
  if (steps[low] === from[0]) return values[low] * scale;
  return (from[1] + ((values[low] - from[1]) * (step - from[0])) / (steps[low] - from[0])) * scale;
}

// Means of the last `width` values, of fewer at the beginning.
function runningMean(values, width) {
  let total = 0;
  return values.map((value, i) => {
    total += value - (i >= width ? values[i - width] : 0);
    return total / Math.min(i + 1, width);
  });
}

function ticks(low, high, most) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((f) => f * power >= rough) || 10);
  const list = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; ++i) list.push(i * step);
  return list;
}
function powers(low, high) {
  const list = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); ++e)
    for (const f of [1, 2, 5]) if (f * 10 ** e >= low && f * 10 ** e <= high) list.push(f * 10 ** e);
  return list.length > 9 ? list.filter((v) => Math.abs(Math.log10(v) % 1) < 1e-9) : list;
}

const tip = node("div", { id: "tip" });
function showTip(event, text) {
  tip.textContent = text;
  tip.style.display = "block";
  const left = event.clientX + 14, width = tip.offsetWidth;
  tip.style.left = (left + width > innerWidth ? Math.max(0, event.clientX - width - 14) : left) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight) + "px";
}
const hideTip = () => (tip.style.display = "none");

// What a line shows in the range: its places, values, and the extremes that its thinned values hide.
function pointsOf(line) {
  const s = line.series, xs = s.steps.map((step) => place(line.run, step));
  let begin = 0, end = xs.length;
  if (state.range) {
    while (begin < end && xs[begin] < state.range[0]) ++begin;
    while (end > begin && xs[end - 1] > state.range[1]) --end;
    begin = Math.max(0, begin - 1);
    end = Math.min(xs.length, end + 1);
  }
  const cut = (list) => (list ? list.slice(begin, end) : null);
  return { xs: cut(xs), steps: cut(s.steps), values: cut(s.values), low: cut(s.low) || cut(s.values), high: cut(s.high) || cut(s.values),
    lowSteps: cut(s.low_steps), highSteps: cut(s.high_steps) };
}

// The first steps fall from ln V: without `state.whole` what follows them fills the picture.
function valueRange(drawn, options) {
  let low = Infinity, high = -Infinity;
  for (const points of drawn) {
    const skip = options.clip && !state.whole ? Math.floor(points.xs.length / 20) : 0;
    const highs = points.high.slice(skip).sort((a, b) => a - b);
    const lows = points.low.slice(skip).reduce((a, b) => Math.min(a, b), Infinity);
    if (highs.length === 0) continue;
    const at = options.clip && !state.whole ? Math.floor(0.995 * (highs.length - 1)) : highs.length - 1;
    low = Math.min(low, lows);
    high = Math.max(high, highs[at], options.clip && !state.whole ? 1.25 * highs[highs.length >> 1] : -Infinity);
  }
  if (options.zero && !state.log) low = Math.min(low, 0), high = Math.max(high, 0);
  if (low === high) low -= Math.abs(low) * 0.05 || 1, high += Math.abs(high) * 0.05 || 1;
  return [low, high];
}

const eventColours = { restart: "var(--faint)", skipped: "var(--alert)", stop: "var(--c4)" };

function drawEvents(svg, toX, box) {
  runs.forEach((run, i) => {
    if (state.hidden.has(i)) return;
    for (const event of run.events) {
      const x = toX(place(run, event.step));
      if (!(event.kind in eventColours) || x < box.left || x > box.right) continue;
      svg.append(shape("line", { class: "event", x1: x, x2: x, y1: box.top, y2: box.bottom, stroke: eventColours[event.kind] },
        shape("title", {}, `${run.name}, step ${event.step}: ${event.kind}`)));
    }
  });
}

function drawLine(svg, points, line, toX, toY, options) {
  const at = (xs, ys) => xs.map((x, i) => `${i ? "L" : "M"}${toX(x).toFixed(1)} ${toY(ys[i]).toFixed(1)}`).join("");
  const drawn = { stroke: line.colour, fill: "none", "stroke-width": 1.5, "stroke-dasharray": line.dash || "none" };
  if (points.lowSteps) {
    const back = points.xs.map((x, i) => `L${toX(x).toFixed(1)} ${toY(points.low[i]).toFixed(1)}`).reverse().join("");
    svg.append(shape("path", { d: at(points.xs, points.high) + back + "Z", fill: line.colour, opacity: 0.22 }));
  }
  const width = Math.round(points.values.length / 40);
  const smooth = options.smooth && state.smooth && width > 1;
  if (smooth && !points.lowSteps) svg.append(shape("path", { ...drawn, d: at(points.xs, points.values), "stroke-width": 0.7, opacity: 0.4 }));
  svg.append(shape("path", { ...drawn, d: at(points.xs, smooth ? runningMean(points.values, width) : points.values) }));
  if (points.xs.length <= 60)
    points.xs.forEach((x, i) => svg.append(shape("circle", { cx: toX(x), cy: toY(points.values[i]), r: 2, fill: line.colour })));
}

// A card with lines over the axis. `lines`: {run, index of the run, name, series, colour, dash}.
function chart(title, lines, options = {}) {
  const format = options.format || short, box = { left: 62, right: 708, top: 8, bottom: 232 };
  const body = node("div"), card = node("div", { class: "card" }, node("h3", {}, title), body);
  const named = lines.length > runs.length || new Set(lines.map((l) => l.name)).size > 1;
  if (named)
    card.append(node("div", { class: "legend" }, ...lines.map((l) => node("span", {}, chip(l.colour, l.dash),
      (runs.length > 1 ? l.run.name + ": " : "") + l.name))));
  const draw = () => {
    body.replaceChildren();
    const shown = lines.filter((l) => !state.hidden.has(l.index)).map((line) => ({ line, points: pointsOf(line) }))
      .filter((s) => s.points.xs.length > 0);
    if (shown.length === 0) return body.append(node("p", { class: "faint" }, "nothing here"));
    const svg = shape("svg", { viewBox: "0 0 720 262" });
    const all = shown.map((s) => s.points);
    const last = Math.max(...all.map((p) => p.xs.at(-1)));
    const [left, right] = state.range || [Math.min(0, ...all.map((p) => p.xs[0])), last || 1];
    let [low, high] = valueRange(all, options);
    const log = state.log && low > 0;
    const form = log ? Math.log10 : (v) => v;
    const toX = (x) => box.left + ((x - left) / (right - left)) * (box.right - box.left);
    const toY = (y) => {
      const share = (form(Math.max(y, log ? low : y)) - form(low)) / (form(high) - form(low));
      return box.bottom - Math.min(Math.max(share, -9), 9) * (box.bottom - box.top);
    };
    for (const y of log ? powers(low, high) : ticks(low, high, 5)) {
      svg.append(shape("line", { class: "grid", x1: box.left, x2: box.right, y1: toY(y), y2: toY(y) }));
      svg.append(shape("text", { x: box.left - 6, y: toY(y) + 4, "text-anchor": "end" }, format(y)));
    }
    for (const x of ticks(left, right, 7))
      svg.append(shape("text", { x: toX(x), y: box.bottom + 15, "text-anchor": "middle" }, counted(x)));
    svg.append(shape("text", { x: box.right, y: box.bottom + 28, "text-anchor": "end" }, state.axis));
    const clip = "clip" + redraws.length + title.replace(/\W/g, "");
    svg.append(shape("clipPath", { id: clip }, shape("rect", { x: box.left, y: box.top - 4, width: box.right - box.left, height: box.bottom - box.top + 8 })));
    const inside = shape("g", { "clip-path": `url(#${clip})` });
    svg.append(inside);
    drawEvents(inside, toX, box);
    for (const s of shown) drawLine(inside, s.points, s.line, toX, toY, options);
    listen(svg, shown, { left, right, box, format });
    body.append(svg);
  };
  redraws.push(draw);
  draw();
  return card;
}

// Under the pointer the nearest values; dragging zooms, a double click shows all.
function listen(svg, shown, view) {
  const { box } = view;
  const cursor = shape("line", { class: "grid", y1: box.top, y2: box.bottom, visibility: "hidden" });
  const zoom = shape("rect", { y: box.top, height: box.bottom - box.top, fill: "var(--c0)", opacity: 0.15, width: 0 });
  svg.append(cursor, zoom);
  const pixel = (event) => ((event.clientX - svg.getBoundingClientRect().left) / svg.getBoundingClientRect().width) * 720;
  const value = (x) => view.left + ((x - box.left) / (box.right - box.left)) * (view.right - view.left);
  let from = null;
  svg.addEventListener("pointermove", (event) => {
    const x = Math.min(Math.max(pixel(event), box.left), box.right), target = value(x);
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.setAttribute("visibility", "visible");
    if (from !== null) {
      zoom.setAttribute("x", Math.min(from, x));
      zoom.setAttribute("width", Math.abs(x - from));
    }
    showTip(event, shown.map(({ line, points }) => {
      let i = 0;
      for (let k = 1; k < points.xs.length; ++k) if (Math.abs(points.xs[k] - target) < Math.abs(points.xs[i] - target)) i = k;
      const range = points.lowSteps ? `, least ${view.format(points.low[i])} at ${points.lowSteps[i]}, largest ${view.format(points.high[i])} at ${points.highSteps[i]}` : "";
      return `${runs.length > 1 ? line.run.name + ", " : ""}${line.name}, step ${points.steps[i]}: ${view.format(points.values[i])}${range}`;
    }).join("\n"));
  });
  svg.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); hideTip(); from = null; zoom.setAttribute("width", 0); });
  svg.addEventListener("pointerdown", (event) => { from = Math.min(Math.max(pixel(event), box.left), box.right); event.preventDefault(); });
  svg.addEventListener("pointerup", (event) => {
    const to = Math.min(Math.max(pixel(event), box.left), box.right);
    if (from !== null && Math.abs(to - from) > 5) state.range = [value(Math.min(from, to)), value(Math.max(from, to))], redraw();
    from = null;
  });
  svg.addEventListener("dblclick", () => { state.range = null; redraw(); });
}

const ramp = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
function rampColour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (ramp.length - 1), i = Math.min(Math.floor(at), ramp.length - 2);
  return ramp[i].map((c, k) => Math.round(c + (ramp[i + 1][k] - c) * (at - i)));
}

// A card with a heat map: rows of layers or units, columns of steps. `quantities`: name → (row, column) → value.
// Rows stand in the order of their names' numbers.
function heat(title, table, quantities, rowName) {
  const order = table.rows.map((_, r) => r).sort((a, b) => String(table.rows[a]).localeCompare(String(table.rows[b]), "en", { numeric: true }));
  const names = Object.keys(quantities), rows = table.rows.length, columns = table.steps.length;
  const choice = node("select", { "aria-label": "quantity" }, ...names.map((name) => node("option", { value: name }, name)));
  const canvas = node("canvas", { width: columns, height: rows, style: `height: ${Math.min(Math.max(rows * 14, 60), 620)}px` });
  const scale = node("div", { class: "faint" });
  const draw = () => {
    const value = (r, c) => quantities[choice.value](order[r], c), pixels = canvas.getContext("2d").createImageData(columns, rows);
    let low = Infinity, high = -Infinity;
    for (let r = 0; r < rows; ++r) for (let c = 0; c < columns; ++c) {
      const v = value(r, c);
      if (Number.isFinite(v)) low = Math.min(low, v), high = Math.max(high, v);
    }
    for (let r = 0; r < rows; ++r) for (let c = 0; c < columns; ++c) {
      const v = value(r, c);
      pixels.data.set(Number.isFinite(v) ? [...rampColour(high > low ? (v - low) / (high - low) : 0), 255] : [0, 0, 0, 0], 4 * (r * columns + c));
    }
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    scale.textContent = `dark ${short(low)}, light ${short(high)}; steps ${table.steps[0]} to ${table.steps.at(-1)} from left to right; ` +
      `${rowName} ${table.rows[order[0]]} at the top, ${table.rows[order.at(-1)]} at the bottom`;
  };
  choice.addEventListener("change", draw);
  canvas.addEventListener("pointermove", (event) => {
    const size = canvas.getBoundingClientRect();
    const c = Math.min(columns - 1, Math.max(0, Math.floor(((event.clientX - size.left) / size.width) * columns)));
    const r = Math.min(rows - 1, Math.max(0, Math.floor(((event.clientY - size.top) / size.height) * rows)));
    showTip(event, `${rowName} ${table.rows[order[r]]}, up to step ${table.steps[c]}: ${short(quantities[choice.value](order[r], c))}`);
  });
  canvas.addEventListener("pointerleave", hideTip);
  draw();
  return node("div", { class: "card" }, node("h3", {}, title), choice, canvas, scale);
}

// Parts of a whole as a bar, with a legend. `parts`: [name, value].
function bar(title, parts, format, below) {
  const all = parts.reduce((sum, part) => sum + part[1], 0) || 1;
  return node("div", { class: "card" }, node("h3", {}, title),
    node("div", { class: "bar" }, ...parts.map((p, i) => node("span", { style: `width: ${(100 * p[1]) / all}%; background: ${colourOf(i)}`, title: p[0] }))),
    node("div", { class: "legend" }, ...parts.map((p, i) => node("span", {}, chip(colourOf(i)), `${p[0]} ${format(p[1])}, ${percent(p[1] / all)}`))),
    node("div", { class: "faint" }, below));
}
)js";

}  // namespace forge
