"use strict";
// Answers of the planner as tables, bars and pictures, for page.js.

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// New contents; the keyboard's focus stays where it was among the buttons.
function fill(box, ...children) {
  const held = [...box.querySelectorAll("button")].indexOf(document.activeElement);
  box.replaceChildren(...children);
  if (held < 0) return;
  const buttons = box.querySelectorAll("button");
  (buttons[Math.min(held, buttons.length - 1)] ?? $("fits")).focus();
}

// ---- text

const bytesText = (n) => n >= 2 ** 40 ? (n / 2 ** 40).toFixed(2) + " TiB" : n >= 2 ** 30 ? (n / 2 ** 30).toFixed(2) + " GiB"
  : n >= 2 ** 20 ? (n / 2 ** 20).toFixed(2) + " MiB" : n >= 1024 ? (n / 1024).toFixed(2) + " KiB" : n + " B";
const secondsText = (s) => s >= 1 ? s.toFixed(3) + " s" : s >= 1e-3 ? (1e3 * s).toFixed(2) + " ms" : (1e6 * s).toFixed(1) + " us";
const countText = (n) => n >= 1e12 ? (n / 1e12).toPrecision(4) + " T" : n >= 1e9 ? (n / 1e9).toPrecision(4) + " B" : (n / 1e6).toPrecision(4) + " M";
const color = (i) => `var(--c${i % 8})`;

// A cell that shows a number and keeps it as it is, under a name.
function cell(value, text, name) {
  const made = element("td", { textContent: text });
  made.dataset.value = value;
  if (name) made.dataset.name = name;
  return made;
}
const row = (...cells) => element("tr", {}, ...cells.map((c) => (c instanceof Node ? c : element("td", { textContent: c }))));
const head = (...names) => element("thead", {}, element("tr", {}, ...names.map((n) => element("th", { textContent: n, scope: "col" }))));
const named = (i, name) => element("td", {}, element("span", { className: "chip", style: `background:${color(i)}` }), name);

function bar(parts, whole, end) {
  const made = element("div", { className: "bar" });
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", parts.map(([name, , text]) => `${name} ${text}`).join(", "));
  parts.forEach(([name, value, text], i) =>
    made.append(element("span", { title: `${name}: ${text}`, style: `background:${color(i)};width:${(100 * value) / whole}%` })));
  if (end) made.append(element("span", { className: "end", title: "a GPU's memory", style: `left:${(100 * end) / whole}%` }));
  return made;
}

// What a narrow screen shows below the controls, of results beyond its edge.
function showBrief(text, good) {
  $("brief").textContent = text;
  $("brief").className = good ? "good" : "bad";
}

// ---- what is wrong, and what is nearest

function showProblem(text) {
  facts = current = null;
  const box = $("problem"), offered = new Set();
  for (const line of text.split("\n")) {
    const found = line.match(/nearest legal(?: ([a-z_.]+))?: (-?\d+)(?: or (-?\d+))?/);
    if (!found) continue;
    const name = found[1] || (line.match(/([a-z]+\.[a-z_]+) = /) || [])[1] || "";
    const key = keys.find((k) => k === name || k.endsWith("." + name));
    if (key) for (const value of [found[2], found[3]]) if (value) offered.add(`${key}=${value}`);
  }
  const start = text.match(/start (\d+) ranks?/);
  const buttons = [...offered].map((change) => element("button", { type: "button", textContent: change, onclick: () => apply([change]) }));
  if (start)
    buttons.push(element("button", { type: "button", textContent: `${start[1]} GPUs`, onclick: () => { $("ranks").value = start[1]; update(); } }));
  fill(box, element("pre", { textContent: text }), ...buttons);
  box.hidden = false;
  showBrief(text.split("\n").find((line) => !line.endsWith(":"))?.trim() ?? text, false);
  $("results").querySelectorAll("section").forEach((s) => s.classList.add("stale"));
  document.body.dataset.state = "problem";
}

// ---- memory and traffic

// Neighbouring stages that need the same bytes: [first, last] of them.
function alikeStages(stages) {
  const runs = [];
  for (const s of stages) {
    const last = runs.at(-1);
    if (last && Object.entries(s.bytes).every(([name, value]) => last[0].bytes[name] === value)) last[1] = s;
    else runs.push([s, s]);
  }
  return runs;
}

function showFacts() {
  $("results").querySelectorAll("section").forEach((s) => s.classList.remove("stale"));
  for (const key of keys) {
    const [section, name] = key.split("."), input = $(idOf(key));
    if (input.options) input.options[0].textContent = facts.deck[section][name];
    else input.placeholder = facts.deck[section][name];
  }
  $("ranks").placeholder = facts.ranks;
  const stages = facts.memory.ranks, largest = stages.reduce((a, b) => (b.total_bytes > a.total_bytes ? b : a));
  const parts = Object.entries(largest.bytes).map(([n, v]) => [n, v, bytesText(v)]);
  for (const a of facts.allowances) parts.push([a.name, a.bytes, bytesText(a.bytes)]);
  const fits = facts.peak_bytes <= facts.usable_bytes;
  $("fits").textContent = `${fits ? "fits" : "doesn't fit"}: ${bytesText(facts.peak_bytes)} of ${bytesText(facts.usable_bytes)}`;
  $("fits").className = fits ? "good" : "bad";
  showBrief($("fits").textContent, fits);
  fill($("memory_bar"), bar(parts, Math.max(facts.peak_bytes, facts.usable_bytes), facts.usable_bytes));
  const shown = alikeStages(stages), most = ([a]) => a.total_bytes === largest.total_bytes;
  const body = element("tbody");
  const bytes = (value, name) => cell(value, bytesText(value), name);
  parts.forEach(([name, value], i) => body.append(row(named(i, name),
    ...shown.map((run) => bytes(run[0].bytes[name] ?? value, most(run) ? "memory " + name : "")))));
  body.append(row("all of the plan", ...shown.map(([s]) => bytes(s.total_bytes))));
  body.append(row("with libraries, largest", bytes(facts.peak_bytes, "peak_bytes")));
  const place = ([a, b]) => "pp " + (a === b ? a.pp_rank : `${a.pp_rank}–${b.pp_rank}`);
  fill($("memory"), head("", ...shown.map(place)), body);
  showSent(facts.sent);
  showSteps(null);
}

function showSent(answer) {
  const sent = element("tbody");
  for (const [name, group] of Object.entries(answer.groups))
    sent.append(row(name, cell(group.bytes, bytesText(group.bytes), "sent " + name), cell(group.calls, String(group.calls)),
      element("td", { className: "text", textContent: Object.entries(group.collectives).map(([n, c]) => `${n} ${bytesText(c.bytes)}`).join(", ") })));
  if (!sent.children.length) sent.append(row("nothing is sent"));
  fill($("sent"), head("group of ranks", "bytes", "calls", "operations"), sent);
}

// ---- the three steps

// A scale with the layout's place on it, and what is good between two marks, as fractions of the scale.
function gauge(at, low, high) {
  const percent = (x) => `${100 * Math.min(1, Math.max(0, x))}%`;
  const made = element("div", { className: "gauge" }, element("span", { className: "range", style: `left:${percent(low)};right:${percent(1 - high)}` }));
  if (at !== null) made.append(element("span", { className: "here", style: `left:${percent(at)}` }));
  return made;
}

// Fit, then batch, then throughput: where the layout stands, and what the recipe says there (docs/choosing.md).
function showSteps(plan) {
  const used = facts.peak_bytes / facts.usable_bytes, tokens = facts.tokens_per_step, usual = facts.usual_tokens;
  const scale = (t) => Math.log2(t / 2 ** 18) / 8;  // 2^18 to 2^26 tokens
  const ratio = tokens / usual;
  const batchHint = ratio < 0.25 ? "small: raise the batch, or use fewer GPUs" : ratio > 4 ? "large: rates and warm-up follow it" : "usual for this size";
  const steps = [
    [used <= 1, "1. Fit", `${(100 * used).toFixed(0)} % of a GPU's memory; ${countText(facts.parameters)} parameters on ${facts.ranks} GPUs`,
      used > 1 ? "next: full recomputation, ZeRO 3, microbatches of one, states in bf16; then tp in a node, then pp"
        : used < 0.6 ? "room to spare: less recomputation, larger microbatches" : "", gauge(used / 1.25, 0, 0.8)],
    [used <= 1 ? ratio >= 0.25 && ratio <= 4 : null, "2. Batch", `${(tokens / 1e6).toPrecision(3)} M tokens a step; ${facts.microbatches} microbatch${facts.microbatches === 1 ? "" : "es"} a rank`,
      batchHint, gauge(scale(tokens), scale(usual / 4), scale(4 * usual))],
    [plan && used <= 1 ? plan.mfu >= 0.35 : null, "3. Throughput", plan ? `mfu ${(100 * plan.mfu).toFixed(1)} %; binds: ${plan.binds}` : "…",
      plan ? "one change and the search below may be faster" : "", gauge(plan ? plan.mfu / 0.7 : null, 0.5, 1)],
  ];
  const here = steps.findIndex(([good]) => good === false);
  $("steps").replaceChildren(...steps.map(([good, name, text, hint, scale], i) => {
    const made = element("li", { className: good === null ? "" : good ? "good" : "bad" }, element("b", { textContent: name }), scale, text,
      element("span", { className: "faint", textContent: hint }));
    if (i === here) made.setAttribute("aria-current", "step");
    return made;
  }));
}

// ---- time

function showStep(plan) {
  for (const id of ["time", "seconds"]) $(id).classList.remove("stale");
  showSteps(plan);
  showBrief(`${$("fits").textContent}; a step ${secondsText(plan.step_seconds)}`, facts.peak_bytes <= facts.usable_bytes);
  $("time").replaceChildren(...[
    ["step_seconds", secondsText(plan.step_seconds)], ["low", " (" + secondsText(plan.low)], ["high", " to " + secondsText(plan.high) + "); "],
    ["tokens_per_second_per_rank", plan.tokens_per_second_per_rank.toFixed(0) + " tokens/s a GPU; "], ["mfu", `mfu ${(100 * plan.mfu).toFixed(1)} %, `],
    ["hfu", `with recomputation ${(100 * plan.hfu).toFixed(1)} %`],
  ].map(([name, text]) => { const s = element("span", { textContent: text }); s.dataset.name = name; s.dataset.value = plan[name]; return s; }));
  const parts = Object.entries(plan.seconds).map(([n, v]) => [n, v, secondsText(v)]);
  fill($("time_bar"), bar(parts, Math.max(plan.step_seconds, parts.reduce((a, p) => a + p[1], 0))));
  const body = element("tbody");
  parts.forEach(([name, value, text], i) => body.append(row(named(i, name), cell(value, text, "seconds " + name), ((100 * value) / plan.step_seconds).toFixed(1) + " %")));
  for (const [name, value] of Object.entries(plan.wire_seconds)) if (value > 0) body.append(row("link: " + name, cell(value, secondsText(value), "wire " + name), ""));
  fill($("seconds"), head(`pp rank ${plan.busiest_pp_rank}, busy longest`, "time", "of the step"), body);
}

function showPlan(plan) {
  for (const id of ["warnings", "changes"]) $(id).classList.remove("stale");
  $("warnings").replaceChildren(...(plan.warnings.length ? plan.warnings : ["none"]).map((w) => element("li", { textContent: w })));
  const changes = element("tbody");
  for (const c of plan.one_change)
    changes.append(row(element("td", { className: "text" }, element("button", { type: "button", textContent: c.change, onclick: () => apply(c.change.split(" ")) })),
      `${(100 * (plan.step_seconds / c.step_seconds - 1)).toFixed(1)} %`, secondsText(c.step_seconds), bytesText(c.peak_bytes), c.fits ? "fits" : "doesn't fit"));
  fill($("changes"), head("change", "faster by", "step", "memory", ""), changes);
}

function showTimeline(timeline) {
  $("timeline").classList.remove("stale");
  const width = 1000, left = 60, lanes = [[0, 12], [13, 4], [18, 4], [23, 4], [28, 4]], height = 37;
  const x = (t) => (left + ((width - left) * t) / timeline.step_seconds).toFixed(2);
  const kinds = ["forward", "backward", "backward of weights", "step and update", "gathers", "reductions", "transfers", "layers' exchanges"];
  const paths = kinds.map(() => "");
  timeline.ranks.forEach((rank, r) => {
    for (const [kind, start, end] of rank.stretches) {
      const [top, tall] = lanes[Math.max(0, kind - 3)];
      paths[kind] += `M${x(start)} ${r * height + top}H${x(end)}v${tall}H${x(start)}z`;
    }
  });
  const tall = timeline.ranks.length * height;
  const svg = `<svg viewBox="0 0 ${width} ${tall}" role="img" aria-label="timeline of the step">` +
    timeline.ranks.map((rank, r) => `<text x="0" y="${r * height + 10}">pp ${rank.pp_rank}</text>`).join("") +
    paths.map((d, i) => `<path d="${d}" fill="${color(i)}" stroke="var(--back)" stroke-width="0.3"/>`).join("") + "</svg>";
  const legend = element("p", { className: "faint" });
  kinds.forEach((name, i) => { if (paths[i]) legend.append(element("span", { className: "chip", style: `background:${color(i)}` }), name + "   "); });
  $("timeline").innerHTML = svg;
  $("timeline").append(legend);
}

// ---- search, deck

// `soFar`: the search goes on.
function showFound(result, title, soFar = false) {
  const body = element("tbody");
  const brief = (layout) => Object.entries(layout).filter(([k, v]) => k !== "mesh.cp_inner" && (k !== "mesh.cp_method" || v === "two_level")).map(([k, v]) => `${k.split(".")[1]} ${v}`).join(", ");
  result.best.forEach((found, i) => {
    const changes = Object.entries(found.layout).map(([k, v]) => `${k}=${v}`), rank = String(i + 1);
    const take = element("button", { type: "button", textContent: "take", title: `the settings of layout ${rank}`, onclick: () => apply(changes) });
    body.append(row(rank, cell(found.step_seconds, secondsText(found.step_seconds), "found"), found.tokens_per_second_per_rank.toFixed(0),
      (100 * found.mfu).toFixed(1) + " %", bytesText(found.peak_bytes),
      element("td", { className: "text" }, take, " " + brief(found.layout) + "; " + found.binds)));
  });
  if (!result.best.length) body.append(row(element("td", { colSpan: 6, textContent: soFar ? "none yet" : "no layout fits" })));
  fill($("found"), element("caption", { textContent: title }), head("", "step", "tokens/s a GPU", "mfu", "memory", "layout"), body);
}

function showDeck(answer) {
  $("deck").classList.remove("stale");
  $("deck").textContent = answer.deck;
  $("copied").textContent = "";
  const option = (name, value) => value ? ` --${name} ${value}` : "";
  $("command").textContent = `forge plan deck.yaml --machine ${current.machine} --ranks ${facts.ranks}` + option("as", current.as) +
    option("imbalance", current.imbalance.trim());
}
