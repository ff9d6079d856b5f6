// What is known of the operator or region that was chosen.

import { busyClass, byId, duration, element, percent, short, svg, whole, write } from "./format.js";
import { busyOf } from "./graph.js";
import { regionOf, stepsOf, store, view } from "./store.js";

const MOST_REPLICAS = 24;
let shown = "";

export function drawDetail() {
  if (!store.chosen) return;
  const [kind, name] = parted(store.chosen);
  const region = kind === "step" ? regionOf(name) : name;
  const parts = kind === "step" ? [...stepParts(name), heading(`Region ${region}`)] : [];
  parts.push(...regionParts(region, kind === "region"));
  // Written anew only when something has changed, so that a selection of text stays.
  const holder = element("div", {}, ...parts);
  write(byId("detail-title"), `${kind === "step" ? titleOf(name) : "Region"} ${name}`);
  if (holder.innerHTML !== shown) byId("detail").replaceChildren(holder);
  shown = holder.innerHTML;
}

export function parted(key) {
  const colon = key.indexOf(":");
  return [key.slice(0, colon), key.slice(colon + 1)];
}

const TITLES = { source: "Source", sink: "Sink" };
const titleOf = (step) => TITLES[store.steps[step]?.role] ?? "Operator";

const heading = (text) => element("h3", {}, text);

function stepParts(name) {
  const about = store.steps[name] || {};
  const found = view().seen?.steps[name];
  const source = view().seen?.sources[name];
  const words = [about.role, about.state, about.key?.length ? `key ${about.key.join(", ")}` : "", about.what];
  const rows = [];
  if (found) {
    rows.push(
      ["Cost", unit(found.cost_us, "µs a tuple")],
      ["Selectivity", unit(found.selectivity, "out per tuple in")],
      ["In", unit(found.in_per_s, "rows/s")],
      ["Out", unit(found.out_per_s, "rows/s")],
      ["Busy", percent(found.busy)],
      found.keys === null ? null : ["Keys", whole(found.keys)],
      ["Skipped after errors", whole(found.skipped), found.skipped > 0],
      ["Late", whole(found.late), found.late > 0],
    );
  }
  if (source) {
    rows.push(
      ["Read", unit(source.rate_per_s, "rows/s")],
      ["Backlog", source.backlog === null ? "unknown" : `${whole(source.backlog)} rows`],
      source.lag_ms === null ? null : ["Waited in the queue", duration(source.lag_ms)],
    );
  }
  return [chips(words), rows.length ? facts(rows) : element("p", { class: "empty" }, "Nothing measured yet.")];
}

function regionParts(name, alone) {
  const { plan, seen } = view();
  const found = seen?.regions[name];
  const pipelines = plan?.pipelines[name];
  const replicas = plan?.replicas[name];
  const busy = busyOf(name, seen);
  const serial = store.steps[stepsOf(name)[0]]?.serial;
  const parts = [];
  if (alone) parts.push(chips(stepsOf(name)));
  const rows = [["Replicas", whole(replicas)], serial ? ["Serial", `it ${serial}`] : null, pipelines ? ["Pipelines", whole(pipelines.length)] : null];
  if (busy !== null) rows.push(["Busy", percent(busy)]);
  if (seen && pipelines?.length === 1) rows.push(["Overhead", percent(seen.overheads[`${name}/0`])]);
  if (found) {
    rows.push(
      ["Takes in", unit(found.rows_per_s, "rows/s")],
      found.queue_rows === null ? null : ["Waiting in front", unit(found.queue_rows, "rows")],
      found.loaded_bytes ? ["State loaded", unit(found.loaded_bytes, "bytes")] : null,
      found.skew === null ? null : ["Skew of replicas", `${short(found.skew)} × even`, found.skew > 1.5],
      found.bucket_skew === null ? null : ["Skew of buckets", `${short(found.bucket_skew)} × even`],
      found.hot ? ["Hottest key", `${found.hot.key} (${percent(found.hot.share)})`, found.hot.share > 0.2] : null,
    );
  }
  parts.push(facts(rows));
  if (seen && pipelines?.length > 1) {
    parts.push(heading("Busy, by pipeline"), ...pipelines.map((steps, n) => pipelineMeter(steps, `${name}/${n}`, seen)));
  }
  if (found?.replica_busy.length) parts.push(heading("Busy, by replica"), ...meters(found.replica_busy));
  if (found?.bars.length > 1) parts.push(heading("Rows, by bucket"), bars(found.bars));
  return parts;
}

const unit = (value, word) => (value === null || value === undefined ? "–" : `${short(value)} ${word}`);

const chips = (words) =>
  element("div", { class: "chips" }, ...words.filter(Boolean).map((word) => element("span", {}, word)));

function facts(rows) {
  const list = element("dl", { class: "facts" });
  for (const row of rows.filter(Boolean)) {
    list.append(element("dt", {}, row[0]), element("dd", row[2] ? { class: "wrong" } : {}, row[1]));
  }
  return list;
}

function pipelineMeter(steps, name, seen) {
  const share = seen.overheads[name];
  const words = steps.join(" · ") + (share ? ` (overhead ${percent(share)})` : "");
  return element("div", {}, element("p", { class: "hint" }, words), meter("", seen.pipelines[name]));
}

function meter(name, share) {
  const fill = element("i", { class: `busy-${busyClass(share || 0)}` });
  fill.style.width = `${Math.min(100, (share || 0) * 100)}%`;
  return element("div", { class: "meter" }, element("span", {}, name), element("b", {}, fill), element("span", {}, percent(share)));
}

function meters(shares) {
  const some = shares.slice(0, MOST_REPLICAS).map((share, number) => meter(`#${number + 1}`, share));
  const more = shares.length - some.length;
  return more > 0 ? [...some, element("p", { class: "muted hint" }, `and ${more} more`)] : some;
}

function bars(values) {
  const most = Math.max(...values, 1);
  const width = 100 / values.length;
  const rects = values.map((value, n) =>
    svg("rect", { x: n * width, width: width * 0.8, y: 46 - (value / most) * 46, height: (value / most) * 46 }));
  return svg("svg", { class: "bars", viewBox: "0 0 100 46", preserveAspectRatio: "none", role: "img",
    "aria-label": `rows by stretches of buckets, at most ${short(most)}` }, ...rects);
}
