"use strict";
// The page of the explorer: its controls, its address, and questions to the planner. All numbers come from the
// planner's module: facts at once, in the page itself; step, timeline, deck, plan and search from workers, which
// compute as long as they need. show.js puts the answers into the page.

// Keys with a control of their own.
const keys = ["train.sequence_tokens", "train.global_batch_sequences", "train.microbatch_sequences", "mesh.pp", "mesh.dp_replicate",
  "mesh.dp_shard", "mesh.cp", "mesh.tp", "mesh.ep", "mesh.etp", "mesh.cp_method", "mesh.cp_inner", "train.zero_stage", "train.recompute", "train.overlap",
  "schedule.name", "schedule.virtual_stages", "train.gather", "train.accumulate", "model.dispatch", "train.precision"];
const idOf = (key) => "key_" + key.replace(".", "_");
const longest = 1 << 18;  // characters of a pasted config.json

// ---- the settings, in the controls and in the address

function fillControls(known) {
  const model = $("model");
  model.append(element("option", { value: "size:", textContent: "a size" }), element("option", { value: "config:", textContent: "a config.json" }));
  const presets = element("optgroup", { label: "shipped decks" });
  for (const name of Object.keys(files.decks)) presets.append(element("option", { value: name, textContent: name }));
  model.append(presets);
  const describe = (text) => (text.match(/^description: (.*)$/m) || ["", ""])[1];
  for (const [id, folder] of [["machine", "machines"], ["as", "programs"]])
    for (const [name, text] of Object.entries(files[folder]))
      $(id).append(element("option", { value: name, textContent: name, title: describe(text) }));
  for (const key of keys) {
    const words = known[key].legal.split(" | ");
    const input = words.length > 1 ? element("select", { id: idOf(key) }) : element("input", { id: idOf(key), inputMode: "numeric" });
    if (words.length > 1) for (const word of ["", ...words]) input.append(element("option", { value: word, textContent: word }));
    $("keys").append(element("label", { title: known[key].doc }, key, input));
  }
}

const fields = () => ["model", "size", "config", "machine", "ranks", "as", "imbalance", "more", ...keys.map(idOf)];
const first = { model: "llama3_8b_8k_8gpu_cp2", machine: "h100_8", size: "8B" };

// Values of the address that no control has are named in a note.
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1)), all = fields(), unknown = [];
  for (const id of all) {
    const value = given.get(id) ?? (given.toString() ? "" : first[id] ?? "");
    $(id).value = value;
    if ($(id).options && $(id).value !== value) {
      unknown.push(`${id} = ${value}`);
      $(id).value = "";
    }
    if (!$(id).value && (id === "model" || id === "machine")) $(id).value = first[id];
  }
  for (const id of given.keys()) if (!all.includes(id)) unknown.push(id);
  $("address_note").hidden = unknown.length === 0;
  $("address_note").textContent = `This page doesn't know these parts of the address and leaves them out: ${unknown.join(", ").slice(0, 300)}`;
}

function writeAddress() {
  const all = new URLSearchParams();
  for (const id of fields()) if ($(id).value) all.set(id, $(id).value);
  history.replaceState(null, "", "#" + all);
}

function settings() {
  const list = keys.filter((key) => $(idOf(key)).value.trim()).map((key) => `${key}=${$(idOf(key)).value.trim()}`);
  return [...list, ...otherSettings()].join("\n");
}
// Keys that stand twice, in their control or a line: the last one counts, as with forge's --set.
function showTwice() {
  const all = settings().split("\n").map((s) => s.split("=")[0].trim()).filter(Boolean);
  const twice = [...new Set(all.filter((key, i) => all.indexOf(key) < i))];
  $("more_note").hidden = twice.length === 0;
  $("more_note").textContent = `set more than once, and the last value counts: ${twice.join(", ").slice(0, 300)}`;
}
const otherSettings = () => $("more").value.split("\n").map((s) => s.trim()).filter(Boolean);

// Gives keys values, in their controls or among the other settings.
function apply(changes) {
  for (const change of changes) {
    const at = change.indexOf("="), key = change.slice(0, at);
    const others = otherSettings().filter((s) => !s.startsWith(key + "="));
    if (keys.includes(key)) $(idOf(key)).value = change.slice(at + 1);
    $("more").value = (keys.includes(key) ? others : [...others, change]).join("\n");
  }
  update();
}

// ---- questions

function question() {
  const asked = { settings: settings() }, model = $("model").value;
  for (const id of ["machine", "ranks", "as", "imbalance"]) asked[id] = $(id).value;
  if (model === "size:") asked.size = $("size").value;
  else if (model === "config:") asked.config = $("config").value;
  else asked.deck = files.decks[model];
  return asked;
}

let answer = null;   // of the module in the page; null while it is made
let facts = null;
let current = null;  // the question whose layout is shown

async function restart() {
  answer = null;
  answer = await makePlanner(sharedFiles, () => {});
}

// Of the module in the page. One that failed is made anew: nothing is known of its memory.
function answerNow(what, asked) {
  try {
    return answer(what, asked);
  } catch (error) {
    restart();
    return { error: `the planner failed: ${error}` };
  }
}

function update() {
  if (!answer) return setTimeout(update, 50);
  showTwice();
  $("size_box").hidden = $("model").value !== "size:";
  $("config_box").hidden = $("model").value !== "config:";
  if ($("config").value.length > longest)
    return showProblem(`config.json has ${$("config").value.length} characters; legal: at most ${longest}`);
  writeAddress();
  const began = performance.now(), asked = question(), found = answerNow("facts", asked);
  if (found.error) return showProblem(found.error);
  facts = found;
  current = asked;
  $("problem").hidden = true;
  showFacts();
  document.body.dataset.factsMilliseconds = (performance.now() - began).toFixed(1);
  planLater();
}

let planner = null, busy = false;

async function planLater() {
  for (const id of ["time", "seconds", "warnings", "changes", "timeline", "deck"]) $(id).classList.add("stale");
  document.body.dataset.state = "planning";
  if (busy) return;
  busy = true;
  for (let own = null; current && own !== current;) {
    own = current;
    const began = performance.now();
    const shows = { step: showStep, timeline: showTimeline, deck: showDeck, plan: showPlan };
    for (const [what, show] of Object.entries(shows)) {
      const found = await planner.ask(what, own);
      if (current !== own) break;
      if (found.error) showProblem(found.error);
      else show(found);
      if (found.error) break;
      if (what === "timeline") document.body.dataset.timelineMilliseconds = (performance.now() - began).toFixed(0);
    }
  }
  busy = false;
  if (current) document.body.dataset.state = "done";
}

// ---- search

let searching = null;

async function search() {
  if (searching) return;
  let passed = 0, known = null;
  const asked = { ...question(), best: $("best").value, seconds: $("limit").value }, began = performance.now();
  const limit = Number($("limit").value) || 45;
  const title = `${$("model").selectedOptions[0].textContent} on ${$("machine").value}`;
  const progress = () => {
    passed = (performance.now() - began) / 1000;
    const looked = known ? 1 - known.left / Math.max(1, known.layouts) : 0;
    $("progress").value = Math.max($("progress").value, Math.min(1, passed / limit), looked);
    $("search_state").textContent = `${passed.toFixed(0)} s` + (known ? `; ${known.layouts - known.left} of ${known.layouts} layouts` : "");
  };
  const own = searching = new Planner((told) => {
    known = told;
    showFound(told, `${title}, so far; long steps are estimates`, true);
  });
  $("found").replaceChildren();
  $("search_end").textContent = "";
  $("progress").value = 0;
  $("progress").hidden = $("stop").disabled = false;
  $("search").disabled = true;
  $("stop").focus();
  const tick = setInterval(progress, 200);
  own.end = (text) => {
    clearInterval(tick);
    own.stop();
    $("search").disabled = false;
    if (document.activeElement === $("stop")) $("search").focus();
    $("stop").disabled = $("progress").hidden = true;
    $("search_state").textContent = "";
    $("search_end").textContent = text;
    searching = null;
  };
  own.cancel = () => own.end(known ? `stopped after ${known.layouts - known.left} of ${known.layouts} layouts` : "stopped");
  const result = await own.ask("search", asked);
  if (result.error) return own.end(result.error);
  own.end(`${result.layouts} layouts on ${result.ranks} GPUs: ${result.without_room} have no room, ${result.bounded} are bounded by better ones, ` +
    `${result.simulated} were simulated, ${result.refused} are not legal, ${result.left} were left when time was up`);
  showFound(result, title);
}

// ---- the page

function copyDeck() {
  const range = document.createRange();
  range.selectNodeContents($("deck"));
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  const say = (good) => { $("copied").textContent = good ? "copied" : "selected: Ctrl-C copies it"; };
  const old = () => say(document.execCommand("copy"));
  if (navigator.clipboard) navigator.clipboard.writeText($("deck").textContent).then(() => say(true), old);
  else old();
}

async function start() {
  document.head.append(element("script", { textContent: moduleText }));
  await restart();
  planner = new Planner();
  fillControls(answer("keys", {}));
  readAddress();
  let wait = 0;
  const later = (event) => {
    clearTimeout(wait);
    wait = setTimeout(update, event.type === "change" ? 0 : 60);
    $("address_note").hidden = true;
  };
  $("controls").addEventListener("input", later);
  $("controls").addEventListener("submit", (event) => {
    event.preventDefault();
    update();
  });
  window.addEventListener("hashchange", () => { readAddress(); update(); });
  $("search").onclick = search;
  $("stop").onclick = () => searching && searching.cancel();
  $("copy").onclick = copyDeck;
  const toResults = (event) => {
    event.preventDefault();
    const place = $("problem").hidden ? $("fits") : $("problem");
    place.focus();
    place.scrollIntoView();
  };
  $("skip").onclick = $("brief").onclick = toResults;
  update();
}

start();
