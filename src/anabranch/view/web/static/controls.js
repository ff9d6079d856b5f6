// Changes by hand: the server has the last word, and says why when it refuses.

import { byId, element, mark, write } from "./format.js";
import { parted } from "./detail.js";
import { regionOf, store } from "./store.js";

let shown = "";
let again = () => {};

export function prepareControls(refresh) {
  again = refresh;
  byId("pause").addEventListener("click", async () => {
    const found = await send("/api/adaptation", { paused: store.adapting });
    if (found) Object.assign(store, found);
    if (found) answer(found.adapting ? "Adaptation goes on." : "Adaptation is paused.", false);
    again();
  });
  byId("replicas-form").addEventListener("submit", (event) => {
    event.preventDefault();
    wish({ region: chosenRegion(), replicas: Number(byId("replicas").value) });
  });
}

export function drawControls() {
  const usable = store.controls && !store.ended;
  byId("pause").hidden = !usable || store.adapting === null;
  write(byId("pause"), store.adapting ? "Pause adaptation" : "Resume adaptation");
  mark(byId("pause"), "aria-pressed", !store.adapting);
  const region = chosenRegion();
  byId("region-controls").hidden = !usable || !region;
  byId("policy-hint").hidden = !store.adapting;
  if (!region || !store.plan) return;
  const pipelines = store.plan.pipelines[region] || [];
  const key = JSON.stringify([region, store.plan.replicas[region], pipelines]);
  if (key === shown) return;
  shown = key;
  byId("replicas").value = store.plan.replicas[region];
  drawCuts(region, pipelines);
}

const chosenRegion = () => {
  if (!store.chosen) return null;
  const [kind, name] = parted(store.chosen);
  return kind === "step" ? regionOf(name) : name;
};

// Between every two steps a button: cut the thread in two there, or join what is cut.
function drawCuts(region, pipelines) {
  const focused = document.activeElement?.dataset?.cut;
  const lengths = pipelines.map((steps) => steps.length);
  const parts = [];
  pipelines.forEach((steps, number) => steps.forEach((step, place) => {
    const first = number === 0 && place === 0;
    if (!first) parts.push(place === 0 ? join(region, lengths, number, step) : cut(region, lengths, number, place, step));
    parts.push(element("span", {}, step));
  }));
  byId("cuts").replaceChildren(...(parts.length > 1 ? parts : []));
  if (focused) byId("cuts").querySelector(`[data-cut="${CSS.escape(focused)}"]`)?.focus();
}

function cut(region, lengths, number, place, step) {
  const wanted = [...lengths.slice(0, number), place, lengths[number] - place, ...lengths.slice(number + 1)];
  return cutButton("✂ Split", `Split the pipeline before ${step}`, step, region, wanted);
}

function join(region, lengths, number, step) {
  const both = lengths[number - 1] + lengths[number];
  const wanted = [...lengths.slice(0, number - 1), both, ...lengths.slice(number + 1)];
  return cutButton("⇄ Merge", `Merge the pipelines before ${step}`, step, region, wanted);
}

function cutButton(text, label, step, region, pipelines) {
  const node = element("button", { type: "button", "aria-label": label, "data-cut": step }, text);
  node.addEventListener("click", () => wish({ region, pipelines }));
  return node;
}

async function wish(content) {
  const found = await send("/api/plan", content);
  if (!found) return;
  answer(found.will.length ? `Asked for: ${found.will.join("; ")}.` : "Nothing changes: it is so already.", false);
}

// What the server answers; nothing if it refuses, which is said on the page.
async function send(path, content) {
  try {
    const headers = { "Content-Type": "application/json", "X-Anabranch": "1" };
    const reply = await fetch(path, { method: "POST", headers, body: JSON.stringify(content) });
    const found = await reply.json();
    if (reply.ok) return found;
    answer(`Refused: ${found.error}`, true);
  } catch (error) {
    answer(`No answer: ${error.message}`, true);
  }
  return null;
}

function answer(text, wrong) {
  byId("answer").classList.toggle("wrong", wrong);
  write(byId("answer"), text);
}
