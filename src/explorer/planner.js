"use strict";
// The planner's module in the page and in workers of its own, for page.js.

const $ = (id) => document.getElementById(id);
const files = JSON.parse($("files").textContent);  // decks and machines, by name
const moduleText = $("module").textContent;

const signatures = {
  explorer_file: ["string", "string"],
  explorer_facts: ["string", "string", "string", "number"],
  explorer_sent: ["string", "string", "string", "number"],
  explorer_step: ["string", "string", "string", "number"],
  explorer_plan: ["string", "string", "string", "number"],
  explorer_timeline: ["string", "string", "string", "number"],
  explorer_deck: ["string", "string", "string", "number"],
  explorer_search: ["string", "string", "string", "number", "number", "number"],
  explorer_sized: ["string"],
  explorer_keys: [],
};
const callText = `(module, [name, ...values]) => JSON.parse(module.ccall(name, "string", ${JSON.stringify(signatures)}[name], values))`;
const call = eval(callText);
const machineFiles = Object.entries(files.machines).map(([name, text]) => ["explorer_file", `inputs/machines/${name}.yaml`, text]);

// A worker with a module of its own: ask(calls) gives the answer of the last of them.
class Planner {
  constructor() {
    const glue = `const call = ${callText};
      const ready = ForgeModule().then((m) => { for (const c of ${JSON.stringify(machineFiles)}) call(m, c); return m; });
      onmessage = async (event) => {
        const module = await ready;
        let answer;
        try { for (const c of event.data) answer = call(module, c); } catch (error) { answer = { error: "the planner failed: " + error }; }
        postMessage(answer);
      };`;
    this.worker = new Worker(URL.createObjectURL(new Blob([moduleText, "\n", glue], { type: "text/javascript" })));
  }
  ask(calls) {
    return new Promise((done) => {
      this.worker.onmessage = (event) => done(event.data);
      this.worker.postMessage(calls);
    });
  }
  stop() { this.worker.terminate(); }
}
