// The journal, newest first. Only the rows that can be seen are there, so ten thousand cost no more than ten.

import { byId, clock, duration, element, mark, whole, write } from "./format.js";
import { store } from "./store.js";
import { showPlan } from "./then.js";

const ROW = 62;
const SPARE = 4;

let found = []; // entries that pass the filter, oldest first
let wanted = "";
let chosen = null;
let shown = "";
let again = () => {};

export function prepareJournal(refresh) {
  again = refresh;
  byId("filter").addEventListener("input", () => {
    wanted = byId("filter").value.trim().toLowerCase();
    byId("journal").scrollTop = 0;
    again();
  });
  byId("journal").addEventListener("scroll", again);
  byId("journal").addEventListener("keydown", move);
}

export function drawJournal() {
  const key = [store.entries.length, store.dropped, store.entries.at(-1)?.at_s, wanted].join();
  if (key !== shown) {
    const before = found.length;
    found = wanted ? store.entries.filter((entry) => entry.words.includes(wanted)) : store.entries.slice();
    // What one reads stays where it is while news comes in above it.
    const list = byId("journal");
    if (list.scrollTop > ROW && before && found.length > before) list.scrollTop += (found.length - before) * ROW;
  }
  shown = key;
  const all = store.entries.length;
  write(byId("journal-count"), wanted ? `${whole(found.length)} of ${whole(all)}` : whole(all));
  byId("journal-rows").style.height = `${found.length * ROW}px`;
  rows();
}

function rows() {
  const list = byId("journal");
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - SPARE);
  const last = Math.min(found.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + SPARE);
  const holder = byId("journal-rows");
  const old = new Map([...holder.children].map((node) => [node.entry, node]));
  const nodes = [];
  for (let place = first; place < last; place += 1) {
    const entry = found[found.length - 1 - place];
    const node = old.get(entry) || row(entry);
    node.style.top = `${place * ROW}px`;
    mark(node, "aria-posinset", place + 1);
    mark(node, "aria-setsize", found.length);
    mark(node, "aria-selected", entry === chosen);
    mark(node, "id", entry === chosen ? "chosen-entry" : null);
    nodes.push(node);
  }
  if (nodes.length !== holder.children.length || nodes.some((node, n) => node !== holder.children[n])) {
    holder.replaceChildren(...nodes);
  }
  mark(list, "aria-activedescendant", nodes.some((node) => node.id) ? "chosen-entry" : null);
}

function row(entry) {
  const node = element("div", { class: "entry", role: "option", "data-kind": entry.kind },
    element("div", { class: "top" },
      element("span", {}, clock(entry.at_s)),
      element("span", { class: "who" }, entry.who),
      element("span", { class: "kind" }, entry.kind === "change" ? "in force" : entry.kind)),
    element("div", { class: "text" }, entry.text));
  node.entry = entry;
  node.addEventListener("click", () => choose(entry));
  return node;
}

function choose(entry) {
  chosen = entry;
  const more = [`${clock(entry.at_s)} · ${entry.who} · ${entry.kind === "change" ? "in force" : entry.kind}`, entry.text];
  if (entry.pause_ms !== undefined && entry.pause_ms !== null) more.push(`Tuples stood still for ${duration(entry.pause_ms)}.`);
  if (entry.why) more.push(`Why: ${entry.why}`);
  write(byId("journal-entry"), more.join("\n"));
  byId("journal-entry").hidden = false;
  if (entry.plan) showPlan(entry.plan);
  again();
}

// Shows an entry, wherever in the journal it is.
export function reveal(entry) {
  byId("filter").value = wanted = "";
  shown = "";
  choose(entry);
  drawJournal();
  scrollTo(found.length - 1 - found.indexOf(entry));
}

function scrollTo(place) {
  const list = byId("journal");
  if (place * ROW < list.scrollTop) list.scrollTop = place * ROW;
  else if ((place + 1) * ROW > list.scrollTop + list.clientHeight) list.scrollTop = (place + 1) * ROW - list.clientHeight;
}

function move(event) {
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 5, PageUp: -5, Home: -Infinity, End: Infinity };
  if (!(event.key in steps) || !found.length) return;
  event.preventDefault();
  const here = found.includes(chosen) ? found.length - 1 - found.indexOf(chosen) : -1; // the filter may hide it
  const place = Math.max(0, Math.min(found.length - 1, here + steps[event.key]));
  choose(found[found.length - 1 - place]);
  scrollTo(place);
}
