// Changes by hand: the server has the last word, and says why when it refuses.

import { byId, element, mark, write } from "./format.js";
import { parted } from "./detail.js";
import { inBatches, regionOf, store } from "./store.js";

let shown = "";
const pending = []; // wishes, oldest first, and the plan that each leads to
let before = ""; // the plan when they were last looked at
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
  drawPending();
  const usable = store.controls && !store.ended;
  byId("pause").hidden = !usable || store.adapting === null;
  write(byId("pause"), store.adapting ? "Pause adaptation" : "Resume adaptation");
  mark(byId("pause"), "aria-pressed", !store.adapting);
  const region = chosenRegion();
  byId("region-controls").hidden = !usable || !region || store.then !== null;
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

// Between every two steps a button: cut the pipeline in two there, or join what is cut.
function drawCuts(region, pipelines) {
  const focused = document.activeElement?.dataset?.cut;
  const parts = [];
  pipelines.forEach((steps, number) => steps.forEach((step, place) => {
    if (place > 0) parts.push(cutButton("✂ Split", `Split the pipeline before ${step}`, step, { region, split_before: step }));
    else if (number > 0) parts.push(cutButton("⇄ Merge", `Merge the pipelines before ${step}`, step, { region, merge_before: step }));
    parts.push(element("span", {}, step));
  }));
  byId("cuts").replaceChildren(...(parts.length > 1 ? parts : []));
  if (focused) byId("cuts").querySelector(`[data-cut="${CSS.escape(focused)}"]`)?.focus();
}

function cutButton(text, label, step, content) {
  const node = element("button", { type: "button", "aria-label": label, "data-cut": step }, text);
  node.addEventListener("click", () => wish(content));
  return node;
}

async function wish(content) {
  const found = await send("/api/plan", content);
  if (!found) return;
  if (!found.will.length) return answer("Nothing changes: it is so already.", false);
  if (!pending.length) before = store.plan.text;
  pending.push({ words: found.will.join("; "), plan: found.plan });
  again();
}

const told = (wishes) => wishes.map((each) => each.words).join("; ");

// What was asked for is pending until its plan is in force, or another one is instead.
function drawPending() {
  const taken = (count) => told(pending.splice(0, count));
  const now = store.plan?.text;
  const reached = pending.findLastIndex((each) => each.plan === now) + 1;
  if (reached) answer(`In force: ${taken(reached)}.`, false);
  else if (pending.length && store.ended) answer(`The run ended before this: ${taken(Infinity)}.`, true);
  else if (pending.length && now !== before) answer(`Another plan came instead of this: ${taken(Infinity)}.`, true);
  before = now;
  if (pending.length) answer(`Pending${inBatches() ? " until the next batch" : ""}: ${told(pending)}.`, false);
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
