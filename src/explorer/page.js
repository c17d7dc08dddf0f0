"use strict";
// The page of the explorer. All numbers come from the planner's module: explorer_facts at once, in the page itself;
// plan, timeline and search from workers, which compute as long as they need.

// Keys with a control of their own.
const keys = ["train.sequence_tokens", "train.global_batch_sequences", "train.microbatch_sequences", "mesh.pp", "mesh.dp_replicate",
  "mesh.dp_shard", "mesh.cp", "mesh.tp", "mesh.ep", "mesh.etp", "mesh.cp_method", "train.zero_stage", "train.recompute",
  "schedule.name", "schedule.virtual_stages", "train.gather", "train.accumulate", "model.dispatch", "train.precision"];
const idOf = (key) => "key_" + key.replace(".", "_");

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// ---- the settings, in the controls and in the address

function fillControls() {
  const model = $("model");
  model.append(element("option", { value: "size:", textContent: "a size" }), element("option", { value: "config:", textContent: "a config.json" }));
  const presets = element("optgroup", { label: "shipped decks" });
  for (const name of Object.keys(files.decks)) presets.append(element("option", { value: name, textContent: name }));
  model.append(presets);
  for (const [name, text] of Object.entries(files.machines))
    $("machine").append(element("option", { value: name, textContent: name, title: (text.match(/^description: (.*)$/m) || ["", ""])[1] }));
  const known = call(module, ["explorer_keys"]);
  for (const key of keys) {
    const words = known[key].legal.split(" | ");
    const input = words.length > 1 ? element("select", { id: idOf(key) }) : element("input", { id: idOf(key), inputMode: "numeric" });
    if (words.length > 1) for (const word of ["", ...words]) input.append(element("option", { value: word, textContent: word }));
    $("keys").append(element("label", { title: known[key].doc }, key, input));
  }
}

const fields = () => ["model", "size", "config", "machine", "ranks", "more", ...keys.map(idOf)];

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const first = { model: "llama3_8b_8k_8gpu_cp2", machine: "h100_8", size: "8B" };
  for (const id of fields()) $(id).value = given.get(id) ?? (given.size || given.toString() ? "" : first[id]) ?? "";
  if (!$("model").value) $("model").value = first.model;
  if (!$("machine").value) $("machine").value = first.machine;
}

function writeAddress() {
  const all = new URLSearchParams();
  for (const id of fields()) if ($(id).value) all.set(id, $(id).value);
  history.replaceState(null, "", "#" + all);
}

function settings() {
  const list = keys.filter((key) => $(idOf(key)).value.trim()).map((key) => `${key}=${$(idOf(key)).value.trim()}`);
  return [...list, ...$("more").value.split("\n").map((s) => s.trim()).filter(Boolean)];
}

// Gives keys values, in their controls or among the other settings.
function apply(changes) {
  for (const change of changes) {
    const at = change.indexOf("="), key = change.slice(0, at), value = change.slice(at + 1);
    if (keys.includes(key)) {
      $(idOf(key)).value = value;
    } else {
      const others = $("more").value.split("\n").filter((s) => s.trim() && !s.trim().startsWith(key + "="));
      $("more").value = [...others, change].join("\n");
    }
  }
  update();
}

// ---- requests of the settings

let module = null;

// The deck's text, and the calls that must come before it is asked about.
function deckOf() {
  const model = $("model").value;
  if (model === "size:") {
    const sized = call(module, ["explorer_sized", $("size").value.trim()]);
    return sized.error ? sized : { text: sized.deck, before: [] };
  }
  if (model !== "config:") return { text: files.decks[model], before: [] };
  const config = $("config").value;
  if (!config.trim()) return { error: "paste a config.json" };
  let positions = 2048;
  try { positions = Math.min(JSON.parse(config).max_position_embeddings || 2048, 2048); } catch { /* the planner says where it ends */ }
  const text = `model: {hf: model}
train: {steps: 1, global_batch_sequences: ${Number($("ranks").value) || 1}, sequence_tokens: ${positions}}
mesh: {dp_shard: -1}
optimizer: {learning_rate: 1e-4}
data: {files: [train.bin]}
output: {directory: runs/model}
`;
  return { text, before: [["explorer_file", "model/config.json", config]] };
}

let facts = null;
let asked = null;    // the last request: its prerequisites and arguments
let current = null;  // it, where its layout is legal

function update() {
  writeAddress();
  $("size_box").hidden = $("model").value !== "size:";
  $("config_box").hidden = $("model").value !== "config:";
  const deck = deckOf();
  if (deck.error) return showProblem(deck.error);
  const request = [deck.text, settings().join("\n"), $("machine").value, Number($("ranks").value) || 0];
  asked = { before: deck.before, request };
  for (const c of deck.before) call(module, c);
  const began = performance.now();
  const answer = call(module, ["explorer_facts", ...request]);
  if (answer.error) return showProblem(answer.error);
  facts = answer;
  current = asked;
  $("problem").hidden = true;
  showFacts();
  document.body.dataset.factsMilliseconds = (performance.now() - began).toFixed(1);
  planLater();
}

let planner = null, busy = false;

async function planLater() {
  for (const id of ["sent", "time", "seconds", "warnings", "changes", "timeline", "deck"]) $(id).classList.add("stale");
  document.body.dataset.state = "planning";
  if (busy) return;
  busy = true;
  for (let own = null; current && own !== current;) {
    own = current;
    const shows = { sent: showSent, step: showStep, timeline: showTimeline, deck: showDeck, plan: showPlan };
    for (const [name, show] of Object.entries(shows)) {
      const answer = await planner.ask([...own.before, [`explorer_${name}`, ...own.request]]);
      if (current !== own) break;
      if (answer.error) showProblem(answer.error);
      else show(answer);
      if (answer.error) break;
    }
  }
  busy = false;
  if (current) document.body.dataset.state = "done";
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
  parts.forEach(([name, value, text], i) =>
    made.append(element("span", { title: `${name}: ${text}`, style: `background:${color(i)};width:${(100 * value) / whole}%` })));
  if (end) made.append(element("span", { className: "end", title: "a GPU's memory", style: `left:${(100 * end) / whole}%` }));
  return made;
}

// ---- what is wrong, and what is nearest

function showProblem(text) {
  facts = current = null;
  const box = $("problem");
  box.replaceChildren(element("pre", { textContent: text }));
  const offered = new Set();
  for (const line of text.split("\n")) {
    const found = line.match(/nearest legal(?: ([a-z_.]+))?: (-?\d+)(?: or (-?\d+))?/);
    if (!found) continue;
    const name = found[1] || (line.match(/([a-z]+\.[a-z_]+) = /) || [])[1] || "";
    const key = keys.find((k) => k === name || k.endsWith("." + name));
    if (key) for (const value of [found[2], found[3]]) if (value) offered.add(`${key}=${value}`);
  }
  const start = text.match(/start (\d+) ranks?/);
  for (const change of offered)
    box.append(element("button", { type: "button", textContent: change, onclick: () => apply([change]) }));
  if (start)
    box.append(element("button", { type: "button", textContent: `${start[1]} GPUs`, onclick: () => { $("ranks").value = start[1]; update(); } }));
  box.hidden = false;
  $("results").querySelectorAll("section").forEach((s) => s.classList.add("stale"));
  document.body.dataset.state = "problem";
}

// ---- memory and traffic

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
  $("memory_bar").replaceChildren(bar(parts, Math.max(facts.peak_bytes, facts.usable_bytes), facts.usable_bytes));
  const shown = stages.length > 8 ? [...stages.slice(0, 4), largest, ...stages.slice(-3)].filter((s, i, all) => all.indexOf(s) === i) : stages;
  const body = element("tbody");
  parts.forEach(([name, value], i) => body.append(row(named(i, name),
    ...shown.map((s) => (name in s.bytes ? cell(s.bytes[name], bytesText(s.bytes[name]), s === largest ? "memory " + name : "") : cell(value, bytesText(value), s === largest ? "memory " + name : ""))))));
  body.append(row("all of the plan", ...shown.map((s) => cell(s.total_bytes, bytesText(s.total_bytes)))));
  body.append(row("with libraries, largest", cell(facts.peak_bytes, bytesText(facts.peak_bytes), "peak_bytes")));
  $("memory").replaceChildren(head("", ...shown.map((s) => "pp rank " + s.pp_rank)), body);
  showSteps(null);
}

function showSent(answer) {
  $("sent").classList.remove("stale");
  const sent = element("tbody");
  for (const [name, group] of Object.entries(answer.groups))
    sent.append(row(name, cell(group.bytes, bytesText(group.bytes), "sent " + name), cell(group.calls, String(group.calls)),
      element("td", { className: "text", textContent: Object.entries(group.collectives).map(([n, c]) => `${n} ${bytesText(c.bytes)}`).join(", ") })));
  if (!sent.children.length) sent.append(row("nothing is sent"));
  $("sent").replaceChildren(head("group of ranks", "bytes", "calls", "operations"), sent);
}

// Fit, then batch, then throughput: where the layout stands.
function showSteps(plan) {
  const fits = facts.peak_bytes <= facts.usable_bytes;
  const steps = [
    [fits, "1. It fits", `${((100 * facts.peak_bytes) / facts.usable_bytes).toFixed(0)} % of a GPU's memory; ${countText(facts.parameters)} parameters on ${facts.ranks} GPUs`],
    [true, "2. The batch", `${(facts.tokens_per_step / 1e6).toPrecision(3)} M tokens a step; ${facts.microbatches} microbatches a rank`],
    [plan && fits ? plan.mfu >= 0.35 : null, "3. Throughput", plan ? `mfu ${(100 * plan.mfu).toFixed(1)} %; binds: ${plan.binds}` : "…"],
  ];
  $("steps").replaceChildren(...steps.map(([good, name, text]) =>
    element("li", { className: good === null ? "" : good ? "good" : "bad" }, element("b", { textContent: name }), text)));
}

// ---- time

function showStep(plan) {
  for (const id of ["time", "seconds"]) $(id).classList.remove("stale");
  showSteps(plan);
  $("time").replaceChildren(...[
    ["step_seconds", secondsText(plan.step_seconds)], ["low", " (" + secondsText(plan.low)], ["high", " to " + secondsText(plan.high) + "); "],
    ["tokens_per_second_per_rank", plan.tokens_per_second_per_rank.toFixed(0) + " tokens/s a GPU; "], ["mfu", `mfu ${(100 * plan.mfu).toFixed(1)} %, `],
    ["hfu", `with recomputation ${(100 * plan.hfu).toFixed(1)} %`],
  ].map(([name, text]) => { const s = element("span", { textContent: text }); s.dataset.name = name; s.dataset.value = plan[name]; return s; }));
  const parts = Object.entries(plan.seconds).map(([n, v]) => [n, v, secondsText(v)]);
  $("time_bar").replaceChildren(bar(parts, Math.max(plan.step_seconds, parts.reduce((a, p) => a + p[1], 0))));
  const body = element("tbody");
  parts.forEach(([name, value, text], i) => body.append(row(named(i, name), cell(value, text, "seconds " + name), ((100 * value) / plan.step_seconds).toFixed(1) + " %")));
  for (const [name, value] of Object.entries(plan.wire_seconds)) if (value > 0) body.append(row("link: " + name, cell(value, secondsText(value), "wire " + name), ""));
  $("seconds").replaceChildren(head(`pp rank ${plan.busiest_pp_rank}, busy longest`, "time", "of the step"), body);
}

function showPlan(plan) {
  for (const id of ["warnings", "changes"]) $(id).classList.remove("stale");
  $("warnings").replaceChildren(...(plan.warnings.length ? plan.warnings : ["none"]).map((w) => element("li", { textContent: w })));
  const changes = element("tbody");
  for (const c of plan.one_change)
    changes.append(row(element("td", { className: "text" }, element("button", { type: "button", textContent: c.change, onclick: () => apply(c.change.split(" ")) })),
      `${(100 * (plan.step_seconds / c.step_seconds - 1)).toFixed(1)} %`, secondsText(c.step_seconds), bytesText(c.peak_bytes), c.fits ? "fits" : "doesn't fit"));
  $("changes").replaceChildren(head("change", "faster by", "step", "memory", ""), changes);
}

function showTimeline(timeline) {
  $("timeline").classList.remove("stale");
  const width = 1000, left = 60, lanes = [[0, 12], [13, 4], [18, 4], [23, 4]], height = 32;
  const x = (t) => (left + ((width - left) * t) / timeline.step_seconds).toFixed(2);
  const kinds = ["forward", "backward", "backward of weights", "step and update", "gathers", "reductions", "transfers"];
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

let searching = null;

async function search() {
  if (!asked) return;
  searching = new Planner();
  const own = searching, limit = Number($("limit").value) || 45, began = performance.now();
  $("stop").disabled = false;
  $("search").disabled = true;
  $("progress").hidden = false;
  const tick = setInterval(() => {
    const passed = (performance.now() - began) / 1000;
    $("progress").value = Math.min(1, passed / limit);
    $("search_state").textContent = `${passed.toFixed(0)} s of at most ${limit} s`;
  }, 200);
  own.end = (text) => {
    clearInterval(tick);
    own.stop();
    $("stop").disabled = true;
    $("search").disabled = false;
    $("progress").hidden = true;
    $("search_state").textContent = text;
    searching = null;
  };
  const result = await own.ask([...asked.before, ["explorer_search", ...asked.request, Number($("best").value) || 10, limit]]);
  if (result.error) return own.end(result.error);
  own.end(`${result.layouts} layouts on ${result.ranks} GPUs: ${result.without_room} have no room, ${result.bounded} are bounded by better ones, ` +
    `${result.simulated} were simulated, ${result.refused} are not legal, ${result.left} were left when time was up`);
  showFound(result);
}

function showFound(result) {
  const body = element("tbody");
  const brief = (layout) => Object.entries(layout).filter(([k]) => k !== "mesh.cp_method").map(([k, v]) => `${k.split(".")[1]} ${v}`).join(", ");
  result.best.forEach((found, i) => {
    const changes = Object.entries(found.layout).map(([k, v]) => `${k}=${v}`);
    body.append(row(String(i + 1), cell(found.step_seconds, secondsText(found.step_seconds), "found"), found.tokens_per_second_per_rank.toFixed(0),
      (100 * found.mfu).toFixed(1) + " %", bytesText(found.peak_bytes),
      element("td", { className: "text" }, element("button", { type: "button", textContent: "take", onclick: () => apply(changes) }), " " + brief(found.layout) + "; " + found.binds)));
  });
  if (!result.best.length) body.append(row("no layout fits"));
  $("found").replaceChildren(head("", "step", "tokens/s a GPU", "mfu", "memory", "layout"), body);
}

function showDeck(answer) {
  $("deck").classList.remove("stale");
  $("deck").textContent = answer.deck;
  $("command").textContent = `forge plan deck.yaml --machine ${$("machine").value} --ranks ${facts.ranks}`;
}

async function start() {
  const script = element("script", { textContent: moduleText });
  document.head.append(script);
  module = await ForgeModule();
  for (const c of machineFiles) call(module, c);
  planner = new Planner();
  fillControls();
  readAddress();
  let wait = 0;
  $("controls").addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(update, 60); });
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", () => { readAddress(); update(); });
  $("search").onclick = search;
  $("stop").onclick = () => searching && searching.end("stopped");
  $("copy").onclick = () => {
    const range = document.createRange();
    range.selectNodeContents($("deck"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    if (navigator.clipboard) navigator.clipboard.writeText($("deck").textContent).catch(() => document.execCommand("copy"));
    else document.execCommand("copy");
  };
  update();
}

start();
