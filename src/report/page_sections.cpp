#include "report/report_page.hpp"

namespace forge {

const char* const page_sections = R"js(
const page = document.getElementById("page");
const lastOf = (series) => (series && series.values.length ? series.values.at(-1) : null);
const leastOf = (series) => (series && series.values.length ? Math.min(...(series.low || series.values)) : null);
function medianOf(series) {
  if (!series || series.values.length === 0) return null;
  return [...series.values].sort((a, b) => a - b)[series.values.length >> 1];
}
const namesOf = (run, quantity) => Object.keys(run.series).filter((name) => name.split("/")[0] === quantity);
const validationNames = (run) => namesOf(run, "validation_loss");
const setOf = (name) => name.split("/").slice(1).join("/") || "validation";

function table(titles, rows, kind = "") {
  return node("div", { class: "scroll" }, node("table", { class: kind }, node("tr", {}, ...titles.map((t) => node("th", {}, t))),
    ...rows.map((row) => node("tr", {}, ...row.map((cell) => (cell instanceof Node ? cell : node("td", {}, String(cell))))))));
}
const nameOf = (run, i) => node("td", {}, chip(colourOf(i)), run.name);

function factsOf(run) {
  const job = run.job || {}, planned = job.steps ? ` of ${job.steps}` : "";
  const mesh = Object.entries(job.mesh || {}).filter(([, n]) => n > 1).map(([axis, n]) => `${axis} ${n}`).join(", ");
  const best = validationNames(run).map((name) => (validationNames(run).length > 1 ? setOf(name) + " " : "") + short(leastOf(run.series[name])));
  return {
    "steps": run.last_step + planned,
    "tokens": counted(run.tokens.values.at(-1)),
    "hours": run.seconds.values.length ? short(run.seconds.values.at(-1) / 3600) : "–",
    "last loss": short(lastOf(run.series.loss)),
    "least validation": best.join(", ") || "–",
    "tokens/s": counted(medianOf(run.series.tokens_per_second)),
    "MFU": run.series.mfu ? percent(medianOf(run.series.mfu)) : "–",
    "parameters": counted(job.parameters),
    "ranks": job.ranks ? `${job.ranks} on ${job.nodes} node${job.nodes > 1 ? "s" : ""}` : "–",
    "layout": mesh || (job.mesh ? "one rank" : "–"),
    "device": job.device || "–",
    "precision": job.precision || "–",
    "optimizer": job.optimizer || "–",
    "started": job.started || "–",
    "build": job.build ? job.build + (job.revision ? ", " + job.revision : "") : "–",
  };
}

function addHead() {
  page.append(node("h1", {}, runs.length > 1 ? `${runs.length} runs of forge` : `Run ${runs[0].name}`));
  document.title = "forge: " + runs.map((run) => run.name).join(", ");
  const facts = runs.map(factsOf);
  page.append(table(["run", ...Object.keys(facts[0])], runs.map((run, i) => [nameOf(run, i), ...Object.values(facts[i])]), "facts"));
  page.append(node("p", { class: "faint" }, "Hours are those of the run without the time between its jobs; tokens/s and MFU are medians of steps."));
  for (const run of runs) for (const note of run.notes)
    page.append(node("div", { class: "note" }, (runs.length > 1 ? run.name + ": " : "") + note));
  const thinned = runs.filter((run) => run.series.loss && run.series.loss.width > 1);
  for (const run of thinned)
    page.append(node("p", { class: "faint" }, `${run.name}: each point is a mean of ${run.series.loss.width} steps; the band behind it reaches from the least to the largest value.`));
}

function addControls() {
  const check = (text, key) => node("label", {}, node("input", { type: "checkbox", ...(state[key] ? { checked: "" } : {}),
    onchange: (e) => { state[key] = e.target.checked; redraw(); } }), " " + text);
  const axis = node("select", { onchange: (e) => { state.axis = e.target.value; state.range = null; redraw(); } },
    ...["step", "tokens", "hours"].map((name) => node("option", { value: name }, name)));
  const shown = runs.length < 2 ? [] : runs.map((run, i) => node("label", {}, node("input", { type: "checkbox", checked: "",
    onchange: (e) => { e.target.checked ? state.hidden.delete(i) : state.hidden.add(i); redraw(); } }), chip(colourOf(i)), run.name));
  page.append(node("div", { class: "controls" }, node("label", {}, "over ", axis), check("running mean", "smooth"), check("logarithmic", "log"),
    check("with the first steps", "whole"), node("button", { onclick: () => { state.range = null; redraw(); } }, "whole run"), ...shown,
    node("span", { class: "faint" }, "drag: zoom; double click: back")));
}

// One line a run and name; of one run with several names a colour each.
function linesOf(names) {
  const lines = [];
  runs.forEach((run, index) => names(run).filter(([, series]) => series && series.values.length > 0).forEach(([name, series], k) =>
    lines.push({ run, index, name, series, colour: colourOf(runs.length > 1 ? index : k), dash: runs.length > 1 && k > 0 ? `${2 + 2 * k} ${1 + k}` : "" })));
  return lines;
}
const varies = (series) => Math.min(...(series.low || series.values)) < Math.max(...(series.high || series.values));

function addCharts() {
  const grid = node("div", { class: "charts" }), used = new Set(["peak_bytes", "validation_perplexity", "validation_labels", "total_loss", "mtp_loss"]);
  const add = (title, names, options) => {
    const lines = linesOf(names);
    if (lines.length > 0) grid.append(chart(title, lines, options));
  };
  const one = (key, title, options) => { used.add(key); add(title, (run) => [[key, run.series[key]]], options); };
  one("loss", "loss, nats a label", { clip: true, smooth: true });
  const bySet = (quantity) => (run) => namesOf(run, quantity).map((name) => { used.add(name); return [setOf(name), run.series[name]]; });
  add("validation loss, nats a label", bySet("validation_loss"));
  add("validation, bits a byte", bySet("validation_bits_per_byte"));
  add("accuracy of tasks", bySet("validation_accuracy"), { zero: true });
  add("accuracy of tasks, normalised by length", bySet("validation_accuracy_normalised"), { zero: true });
  add("loss by source", (run) => Object.keys(run.series).filter((n) => n.startsWith("sources/")).map((name) => {
    used.add(name);
    return [name.split("/").slice(1, -1).join("/"), run.series[name]];
  }), { clip: true, smooth: true });
  const sums = (run) => run.series.total_loss && lastOf(run.series.total_loss) !== lastOf(run.series.loss);
  add("total loss and loss of multi-token prediction", (run) => (sums(run) ? [["total_loss", run.series.total_loss], ["mtp_loss", run.series.mtp_loss]] : []), { clip: true, smooth: true });
  one("grad_norm", "gradient norm before clipping", { clip: true, smooth: true });
  one("learning_rate", "learning rate", { zero: true });
  one("tokens_per_second", "tokens a second", { zero: true, smooth: true, format: counted });
  one("mfu", "MFU: share of the peak", { zero: true, smooth: true, format: percent });
  one("step_seconds", "seconds a step", { zero: true, smooth: true, clip: true });
  const others = new Set(runs.flatMap((run) => Object.keys(run.series)).filter((name) => !used.has(name) && !/^validation_(perplexity|labels|questions)(\/|$)/.test(name)));
  for (const key of [...others].sort())
    if (runs.some((run) => run.series[key] && varies(run.series[key]))) one(key, key.replaceAll("_", " "), {});
  page.append(node("h2", {}, "Course"), grid);
}

function addTimes() {
  const cards = node("div", { class: "charts" });
  for (const run of runs) {
    const plan = run.job && run.job.planned_memory_bytes;
    if (run.phases.length > 0)
      cards.append(bar(`${run.name}: time of rank 0 in its last job`, run.phases.map((p) => [p.name, p.seconds]), (s) => short(s) + " s", ""));
    else cards.append(node("div", { class: "card" }, node("h3", {}, `${run.name}: time by phase`), node("p", { class: "faint" }, "No job of this run has come to its end, where log.txt has it.")));
    if (!plan) continue;
    const peak = lastOf(run.series.peak_bytes);
    const reached = peak === null ? "" : `, high-water mark ${bytes(peak)} (${percent(peak / plan.total)})`;
    cards.append(bar(`${run.name}: memory of a rank`, Object.entries(plan).filter(([name, size]) => name !== "total" && size > 0), bytes,
      `planned ${bytes(plan.total)}${reached}. ${run.memory}`));
  }
  page.append(node("h2", {}, "Time and memory"), cards);
}

function addMaps() {
  runs.forEach((run) => {
    const before = runs.length > 1 ? run.name + ": " : "", loads = run.experts, norms = run.norms;
    if (loads) {
      const of = (key) => (r, c) => loads[key][r][c];
      page.append(node("h2", {}, before + "Experts"), heat("Load of experts by layer: multiples of the mean; of several steps the worst", loads,
        { "load of the most loaded expert": of("load_max"), "load of the least loaded expert": of("load_min"), "entropy of the load (1: even)": of("entropy"),
          "dropped share": of("dropped_share") }, "layer"));
    }
    if (norms)
      page.append(node("h2", {}, before + "Norms"), heat("Norms by unit", norms, {
        "update / weights, log10": (r, c) => Math.log10(norms.update[r][c] / norms.weights[r][c]),
        "weights": (r, c) => norms.weights[r][c], "update": (r, c) => norms.update[r][c] }, "unit"));
  });
}

function addEvents() {
  const rows = runs.flatMap((run, i) => run.events.map((event) => [...(runs.length > 1 ? [nameOf(run, i)] : []), event.step, event.kind, event.text]));
  if (rows.length === 0) return;
  const counts = runs.map((run) => (runs.length > 1 ? run.name + ": " : "") + Object.entries(run.event_counts).map(([kind, n]) => `${kind} ${n}`).join(", "));
  page.append(node("h2", {}, "Events"), node("p", { class: "faint" }, counts.join("; ") + ". Of a kind with more than 200 the first and the last 100 are here."),
    node("details", rows.length <= 40 ? { open: "" } : {}, node("summary", {}, `${rows.length} events`),
      table([...(runs.length > 1 ? ["run"] : []), "step", "kind", ""], rows)));
}

function addDecks() {
  if (runs.length > 1) {
    page.append(node("h2", {}, "Differences of the decks"));
    page.append(data.differences.length === 0 ? node("p", {}, "None: the decks that are known have the same values.")
      : table(["key", ...runs.map((run) => run.name)], data.differences.map((row) => [row.key, ...row.values.map((v) => v === null ? "–" : v)])));
  }
  page.append(node("h2", {}, "Deck"));
  for (const run of runs)
    page.append(run.deck ? node("details", {}, node("summary", {}, `${run.name}: every key`), node("pre", {}, run.deck)) : node("p", { class: "faint" }, `${run.name}: no deck.yaml`));
}

function addSamples() {
  if (runs.every((run) => run.samples.length === 0)) return;
  page.append(node("h2", {}, "Samples"));
  for (const run of runs) run.samples.forEach((text, i) =>
    page.append(node("h3", {}, `${run.name}, sample ${i + 1} of ${run.samples.length}`), node("pre", {}, text)));
}

page.replaceChildren();
document.body.append(tip);
addHead();
addControls();
addCharts();
addTimes();
addMaps();
addEvents();
addDecks();
addSamples();
)js";

}  // namespace forge
