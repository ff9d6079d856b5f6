// An earlier plan: the graph as it stood when that was in force.

import { byId, clock, write } from "./format.js";
import { lookAt, newestPlan, store } from "./store.js";

let again = () => {};
let trouble = "";

export function prepareThen(refresh) {
  again = refresh;
  byId("then-earlier").addEventListener("click", () => showPlan(store.then.number - 1));
  byId("then-later").addEventListener("click", () => showPlan(store.then.number + 1));
  byId("then-now").addEventListener("click", () => showPlan(newestPlan()));
}

// The newest plan is what is now.
export async function showPlan(number) {
  let found = null;
  trouble = "";
  if (number < newestPlan()) {
    const reply = await fetch(`/api/plans/${number}`).catch(() => null);
    if (reply?.ok) found = await reply.json();
    else trouble = `What was seen under plan ${number} cannot be had any more.`;
  }
  if (found || !trouble) lookAt(found);
  again();
}

export function drawThen() {
  const { then } = store;
  byId("then").hidden = !then && !trouble;
  if (!then) return write(byId("then-text"), trouble);
  const next = store.changes.find((change) => change.plan === then.number + 1);
  const time = next ? `${clock(then.at_s)} to ${clock(next.at_s)}` : `${clock(then.at_s)} on`;
  write(byId("then-text"), trouble || `The graph under plan ${then.number}, from ${time}`);
  byId("then-earlier").disabled = then.number <= 1;
}
