"use strict";
// The planner's module in the page and in workers of its own, for page.js.

const $ = (id) => document.getElementById(id);
const files = JSON.parse($("files").textContent);  // decks, machines and programs, by name
const moduleText = $("module").textContent;

// The page and its workers each make a module with the files. tell(text) gets a search's partial results.
const makeText = `async (files, tell) => {
  const module = await ForgeModule({ tell });
  const call = (name, ...texts) => JSON.parse(module.ccall(name, "string", texts.map(() => "string"), texts));
  for (const [path, text] of files) call("explorer_file", path, text);
  return (what, question) => call("explorer_answer", what, JSON.stringify(question));
}`;
const makePlanner = eval(makeText);
const sharedFiles = ["machines", "programs"].flatMap((folder) =>
  Object.entries(files[folder]).map(([name, text]) => [`inputs/${folder}/${name}.yaml`, text]));

// A worker with a module of its own: ask(what, question) gives the answer, tell(answer) what is known before it.
class Planner {
  constructor(tell = () => {}) {
    const glue = `const make = () => (${makeText})(${JSON.stringify(sharedFiles)}, (text) => postMessage({ told: JSON.parse(text) }));
      let ready = make();
      onmessage = async (event) => {
        let answer;
        try {
          answer = (await ready)(...event.data);
        } catch (error) {
          ready = make();
          answer = { error: "the planner failed: " + error };
        }
        postMessage({ answer });
      };`;
    this.worker = new Worker(URL.createObjectURL(new Blob([moduleText, "\n", glue], { type: "text/javascript" })));
    this.worker.onmessage = (event) => event.data.told ? tell(event.data.told) : this.done(event.data.answer);
  }
  ask(what, question) {
    return new Promise((done) => {
      this.done = done;
      this.worker.postMessage([what, question]);
    });
  }
  stop() { this.worker.terminate(); }
}
