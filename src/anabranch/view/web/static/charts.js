// Throughput and latency over time, with a mark for every change of plan.

import { byId, clock, duration, element, mark, pressed, roving, short, stop, svg, write } from "./format.js";
import { reveal } from "./journal.js";
import { store } from "./store.js";

const HEIGHT = 176;
const LEFT = 46;
const RIGHT = 12;
const TOP = 26;
const BOTTOM = 20;
const APART = 20; // marks closer than this are one

let shown = "";
let marked = [];

export function drawCharts() {
  const { points, changes } = store;
  const width = byId("rate-chart").clientWidth;
  const key = [width, points.length, points.at(-1)?.[0], changes.length, changes[0]?.at_s, store.id.split("-")[0]].join();
  if (key === shown || width < 80) return;
  shown = key;
  const from = points.length ? Math.max(0, Math.min(points[0][0] - 1, changes[0]?.at_s ?? Infinity)) : 0;
  const to = Math.max(points.at(-1)?.[0] ?? 1, changes.at(-1)?.at_s ?? 0, from + 1);
  const across = (at) => LEFT + ((at - from) / (to - from)) * (width - LEFT - RIGHT);
  const frame = { width, from, to, across };
  const groups = clusters(changes, across);
  draw("rate-chart", frame, groups, [["c-rate", 1]], true);
  draw("latency-chart", frame, groups, [["c-p50", 2], ["c-p99", 3]], false);
}

function draw(id, frame, groups, curves, withMarks) {
  const most = Math.max(0, ...store.points.flatMap((point) => curves.map(([, n]) => point[n] ?? 0)));
  const top = most > 0 ? nice(most) : 1;
  const unit = !withMarks && top >= 1000 ? 1000 : 1; // seconds, once milliseconds would be thousands
  if (!withMarks) write(byId("latency-unit"), unit === 1 ? "ms" : "s");
  const up = (value) => HEIGHT - BOTTOM - (Math.min(value, top) / top) * (HEIGHT - TOP - BOTTOM);
  const picture = svg("svg", { width: frame.width, height: HEIGHT, role: "group",
    "aria-label": withMarks ? "Throughput over time; plan changes" : "Latency over time" });
  for (const share of [0, 0.5, 1]) {
    const y = up(top * share);
    picture.append(svg("line", { class: "axis", x1: LEFT, x2: frame.width - RIGHT, y1: y, y2: y }));
    const known = most > 0 || (store.points.length && share === 0);
    if (known) picture.append(svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, short(top * share / unit)));
  }
  for (const at of ticks(frame)) {
    picture.append(svg("text", { x: frame.across(at), y: HEIGHT - 4, "text-anchor": "middle" }, clock(at)));
  }
  for (const group of groups) {
    const x = frame.across(group[0].at_s);
    picture.append(svg("line", { class: "c-change", x1: x, x2: x, y1: TOP - 6, y2: HEIGHT - BOTTOM }));
  }
  for (const [name, column] of curves) picture.append(...curve(name, column, frame, up));
  const cross = svg("line", { class: "c-cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  picture.append(cross);
  follow(picture, cross, frame, id);
  if (withMarks) picture.append(marks(groups, frame, id));
  replace(id, picture, withMarks);
}

function curve(name, column, frame, up) {
  const known = store.points.filter((point) => point[column] !== null);
  if (!known.length) return [];
  const places = known.map((point) => `${frame.across(point[0]).toFixed(1)} ${up(point[column]).toFixed(1)}`);
  const line = svg("path", { class: name, d: `M${places.join("L")}` });
  if (name !== "c-rate") return [line];
  const [first, last] = [frame.across(known[0][0]), frame.across(known.at(-1)[0])];
  return [svg("path", { class: "c-fill", d: `M${first} ${up(0)}L${places.join("L")}L${last} ${up(0)}z` }), line];
}

function clusters(changes, across) {
  const found = [];
  for (const change of changes) {
    const group = found.at(-1);
    if (group && across(change.at_s) - across(group[0].at_s) < APART) group.push(change);
    else found.push([change]);
  }
  return found;
}

function marks(groups, frame, id) {
  const holder = svg("g", { role: "group", "aria-label": "Plan changes" });
  marked = groups.map((group) => {
    const x = frame.across(group[0].at_s);
    const words = explained(group);
    const name = group.length > 1 ? `${group.length}×` : group[0].who.replace("plan ", "");
    const node = svg("g", { class: "c-mark", role: "button", tabindex: -1, "aria-label": words, "data-at": group[0].at_s },
      svg("circle", { cx: x, cy: 11, r: 9.5 }), svg("text", { x, y: 15 }, name));
    const explain = () => tip(words, x, id, 24);
    for (const name of ["mouseenter", "focus"]) node.addEventListener(name, explain);
    for (const name of ["mouseleave", "blur"]) node.addEventListener(name, hideTip);
    node.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
    pressed(node, () => { reveal(group.at(-1)); explain(); });
    return node;
  });
  stop(marked, marked[0]);
  holder.append(...marked);
  return holder;
}

function explained(group) {
  const some = group.slice(-6).map((change) => {
    const pause = change.pause_ms === null ? "" : `, tuples stood still for ${duration(change.pause_ms)}`;
    return `${clock(change.at_s)}, ${change.who}: ${change.text}${pause}${change.why ? `\nWhy: ${change.why}` : ""}`;
  });
  const more = group.length - some.length;
  return [...(more > 0 ? [`${more} earlier ones, and`] : []), ...some].join("\n");
}

function replace(id, picture, withMarks) {
  const old = document.activeElement?.dataset?.at;
  const tipped = withMarks && old !== undefined && byId(id).contains(document.activeElement);
  byId(id).replaceChildren(picture);
  if (!tipped) return;
  const again = marked.find((node) => node.dataset.at === old) || marked[0];
  stop(marked, again);
  again?.focus({ preventScroll: true });
}

// The values under the pointer.
function follow(picture, cross, frame, id) {
  picture.addEventListener("mousemove", (event) => {
    const x = event.clientX - picture.getBoundingClientRect().left;
    const y = event.clientY - picture.getBoundingClientRect().top;
    const point = y < 22 ? null : nearest(x, frame);
    mark(cross, "visibility", point ? "visible" : "hidden");
    if (!point) return;
    const at = frame.across(point[0]);
    mark(cross, "x1", at);
    mark(cross, "x2", at);
    tip(`${clock(point[0])}\n${short(point[1])} rows/s\np50 ${duration(point[2])}, p99 ${duration(point[3])}`
      + (point[4] === null ? "" : `\nbacklog ${short(point[4])} rows`), at, id, 60);
  });
  picture.addEventListener("mouseleave", () => { mark(cross, "visibility", "hidden"); hideTip(); });
}

function nearest(x, frame) {
  if (x < LEFT) return null;
  const at = frame.from + ((x - LEFT) / (frame.width - LEFT - RIGHT)) * (frame.to - frame.from);
  let best = null;
  for (const point of store.points) {
    if (best === null || Math.abs(point[0] - at) < Math.abs(best[0] - at)) best = point;
  }
  return best;
}

function tip(text, x, id, down) {
  const node = byId("tip");
  node.replaceChildren(element("span", {}, text));
  node.hidden = false;
  const chart = byId(id);
  const room = byId("charts-card").clientWidth - node.offsetWidth - 8;
  node.style.left = `${Math.max(8, Math.min(chart.offsetLeft + x + 12, room))}px`;
  node.style.top = `${chart.offsetTop + down}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}

function nice(most) {
  const size = 10 ** Math.floor(Math.log10(most));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((n) => n * size).find((n) => n >= most * 1.02) ?? 10 * size;
}

function ticks({ from, to, width }) {
  const wanted = (to - from) / Math.max(2, Math.floor((width - LEFT) / 80));
  const step = [0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800]
    .find((size) => size >= wanted) ?? wanted;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}

roving(byId("rate-chart"), () => marked);
