// Name, state and the numbers of this moment.

import { byId, clock, mark, milliseconds, plural, short, whole, write } from "./format.js";
import { inBatches, state, store, view } from "./store.js";

export function drawHeader() {
  const { started, seen, plan } = store;
  const last = store.points.at(-1);
  const name = started ? started.flow : "anabranch";
  write(byId("flow"), name);
  document.title = `${name} · ${state()}`;
  write(byId("about"), about(started, last));
  write(byId("state"), state());
  mark(byId("state"), "data-state", state());
  drawNotice();
  write(byId("rate"), short(store.rate_per_s));
  writeLatency("p50", last ? last[2] : null);
  writeLatency("p99", last ? last[3] : null);
  for (const [id, rows] of [["rows-in", store.rows_in], ["rows-out", store.rows_out]]) {
    write(byId(id), short(rows));
    mark(byId(id), "title", whole(rows));
  }
  write(byId("backlog"), seen && last ? short(last[4]) : "–");
  write(byId("plan-number"), plan ? whole(plan.threads) : "–");
  write(byId("plan-unit"), plan && seen ? plural(plan.threads, inBatches() ? "task" : "thread").split(" ")[1] : "");
  write(byId("plan-text"), view().plan?.text ?? "");
}

function about(started, last) {
  if (!started) return "waiting for a run …";
  const at = store.ended ? store.ended.at_s : last ? last[0] : 0;
  const parts = [`on ${started.engine}`, clock(at), plural(store.changes.length, "plan change")];
  if (store.journal) parts.unshift(`replay of ${store.journal}`);
  if (store.seen && store.seen.batch !== null) parts.push(`batch ${whole(store.seen.batch)}`);
  return parts.join(" · ");
}

function drawNotice() {
  const text = store.ended?.error ? `The run failed: ${store.ended.error}` : store.trouble;
  write(byId("notice"), text);
  byId("notice").hidden = !text;
}

function writeLatency(name, value) {
  const [text, unit] = milliseconds(value);
  write(byId(name), text);
  write(byId(`${name}-unit`), unit);
}

// A browser may forbid a page to remember anything.
function remembered(what) {
  try {
    return what();
  } catch {
    return null;
  }
}

export function prepareTheme() {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => write(byId("theme"), dark() ? "Light" : "Dark");
  const kept = remembered(() => localStorage.getItem("anabranch-theme"));
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    remembered(() => localStorage.setItem("anabranch-theme", root.dataset.theme));
    show();
  });
  system.addEventListener("change", show);
  show();
}
