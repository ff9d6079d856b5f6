// The graph: the server says where boxes and lines lie, this draws them and keeps them up to date.

import { busyClass, byId, mark, percent, roving, short, stop, svg, write } from "./format.js";
import { store } from "./store.js";

const CARD = 4;
const MOST_CARDS = 3;
const LEAST_SCALE = 0.25;
const MOST_SCALE = 2.5;

let drawn = 0;
let picture = null;
let boxes = new Map(); // "step:count" → its nodes
let lines = [];
let zoom = null; // null: as large as fits
let again = () => {};

export function prepareGraph(refresh) {
  again = refresh;
  const items = () => [...boxes.values()].filter((box) => box.stop).map((box) => box.group);
  roving(byId("graph"), items);
  byId("zoom-in").addEventListener("click", () => scale(1.25));
  byId("zoom-out").addEventListener("click", () => scale(0.8));
  byId("zoom-fit").addEventListener("click", () => { zoom = null; resize(); });
  new ResizeObserver(resize).observe(byId("graph"));
  byId("detail-card").addEventListener("keydown", (event) => {
    if (event.key === "Escape") boxes.get(store.chosen)?.group.focus();
  });
}

export function drawGraph() {
  if (!store.drawing) return;
  if (drawn !== store.drawings) build();
  drawn = store.drawings;
  update();
}

function build() {
  const focused = document.activeElement?.dataset?.key;
  const { width, height } = store.drawing;
  boxes = new Map();
  picture = svg("svg", { viewBox: `0 0 ${width} ${height + 4}`, role: "group", "aria-label": "Graph of the flow" });
  const regions = svg("g");
  for (const box of store.drawing.boxes) regions.append(region(box));
  picture.append(regions, streams());
  byId("graph").replaceChildren(picture);
  resize();
  const items = [...boxes.values()].filter((box) => box.stop).map((box) => box.group);
  const again = items.find((item) => item.dataset.key === focused);
  stop(items, again || items.find((item) => item.dataset.key === store.chosen) || items[0]);
  again?.focus({ preventScroll: true });
}

function region(box) {
  // A region of one step is drawn as a frame around it, and chosen with it.
  const alone = !box.label && box.inside[0]?.inside.length === 1;
  const group = alone ? svg("g", { class: "g-region" }) : button("region", box);
  if (alone) group.addEventListener("click", () => choose(`step:${box.inside[0].inside[0].name}`));
  for (let card = Math.min(box.replicas, MOST_CARDS) - 1; card > 0; card -= 1) {
    group.append(rectangle({ ...box, x: box.x + card * CARD, y: box.y - card * CARD }, "behind", 10));
  }
  const outline = rectangle(box, "outline", 10);
  const right = box.x + box.width;
  const share = svg("text", { class: "share", x: right - (box.replicas > 1 ? 22 : 9), y: box.y + 18, "text-anchor": "end" });
  const flag = svg("text", { class: "flag", x: box.x + 4, y: box.y + box.height + 13 });
  group.append(outline, svg("text", { class: "name", x: box.x + 9, y: box.y + 18 }, box.label), flag);
  if (!alone) group.append(share);
  keep("region", box, { group, share, flag, stop: !alone });
  for (const inner of box.inside) {
    if (inner.kind === "step") group.append(step(inner, box));
    else group.append(pipeline(inner, box, alone ? outline : null));
  }
  if (box.replicas > 1) group.append(badge(`×${box.replicas}`, right, box.y));
  return group;
}

function badge(text, right, y) {
  const width = 10 + 7 * text.length;
  return svg("g", { class: "badge" },
    svg("rect", { x: right - width + 10, y: y - 8, width, height: 16, rx: 8 }),
    svg("text", { x: right - width / 2 + 10, y: y + 4 }, text));
}

function pipeline(box, region, outline) {
  const frame = outline || rectangle(box, "frame", 7);
  keep("pipeline", box, { frame, name: outline ? "outline frame" : "frame" });
  return svg("g", {}, outline ? null : frame, ...box.inside.map((inner) => step(inner, outline ? region : null)));
}

function step(box, alone) {
  const group = button("step", box);
  const middle = box.x + box.width / 2;
  const flow = svg("text", { class: "flow", x: middle, y: box.y + 31, "text-anchor": "middle" });
  group.append(rectangle(box, "face", 5));
  group.append(svg("text", { class: "name", x: middle, y: box.y + 17, "text-anchor": "middle" }, box.label), flow);
  keep("step", box, { group, flow, alone, stop: true });
  return group;
}

function button(kind, box) {
  const key = `${kind}:${box.name}`;
  const group = svg("g", { class: `g-${kind}`, role: "button", tabindex: -1, "data-key": key });
  group.append(svg("title", {}, box.name));
  group.addEventListener("click", (event) => { event.stopPropagation(); choose(key); });
  group.addEventListener("keydown", (event) => {
    if (event.target !== group || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    choose(key);
    byId("detail-title").focus();
  });
  return group;
}

const keep = (kind, box, nodes) => boxes.set(`${kind}:${box.name}`, { ...nodes, kind, box });

const rectangle = (box, name, radius) =>
  svg("rect", { class: name, x: box.x, y: box.y, width: box.width, height: box.height, rx: radius });

export function choose(key) {
  store.chosen = key;
  const box = boxes.get(key);
  if (box) stop([...boxes.values()].filter((each) => each.stop).map((each) => each.group), box.group);
  again();
}

function streams() {
  lines = store.drawing.lines.map((line) => {
    const points = line.points;
    const [x, y] = points.at(-1);
    const title = svg("title");
    const side = line.port !== "out";
    const path = svg("path", { class: side ? "g-line g-side" : "g-line", d: curve(points) }, title);
    const port = side ? svg("text", { class: "g-port", x: points[0][0] + 12, y: points[0][1] + 14 }, line.port) : null;
    const arrow = svg("path", { class: "g-arrow", d: `M${x} ${y}l-8 -5v10z` });
    return { line, path, title, group: svg("g", {}, path, arrow, port) };
  });
  return svg("g", { "aria-hidden": "true" }, ...lines.map((each) => each.group));
}

// Level where it leaves and where it enters.
function curve(points) {
  let path = `M${points[0][0]} ${points[0][1]}`;
  for (let n = 1; n < points.length; n += 1) {
    const [[a, b], [c, d]] = [points[n - 1], points[n]];
    const end = n === points.length - 1 ? c - 6 : c;
    path += b === d ? `L${end} ${d}` : `C${(a + c) / 2} ${b} ${(a + c) / 2} ${d} ${end} ${d}`;
  }
  return path;
}

function update() {
  const seen = store.seen;
  for (const [key, box] of boxes) {
    if (box.kind === "region") updateRegion(box, seen);
    else if (box.kind === "pipeline") updateFrame(box, seen);
    else updateStep(box, seen);
    if (box.group) {
      box.group.classList.toggle("chosen", key === store.chosen);
      mark(box.group, "aria-pressed", key === store.chosen);
    }
  }
  lines.forEach((each, number) => updateLine(each, seen?.traffic[number]));
}

export const busyOf = (region, seen) => seen?.busy[region] ?? null;

function updateRegion({ group, share, flag, box, stop: apart }, seen) {
  const busy = busyOf(box.name, seen);
  const held = seen?.bottleneck === box.name;
  write(share, busy === null ? "" : percent(busy));
  write(flag, held ? "▲ bottleneck" : "");
  group.classList.toggle("bottleneck", held);
  if (apart) mark(group, "aria-label", `region ${box.name}, ${regionWords(box, seen)}`);
}

function regionWords(box, seen) {
  const busy = busyOf(box.name, seen);
  const words = [box.replicas === 1 ? "1 replica" : `${box.replicas} replicas`];
  if (busy !== null) words.push(`${percent(busy)} busy`);
  if (seen?.bottleneck === box.name) words.push("bottleneck");
  return words.join(", ");
}

function updateFrame({ frame, name, box }, seen) {
  const level = busyClass(seen?.pipelines[box.name]);
  mark(frame, "class", level === null ? name : `${name} busy-${level}`);
}

function updateStep({ group, flow, alone, box }, seen) {
  const found = seen?.steps[box.name];
  const rate = found ? found.in_per_s : seen?.sources[box.name]?.rate_per_s;
  const lost = found ? found.skipped + found.late : 0;
  const busy = alone ? busyOf(alone.name, seen) : null;
  const text = rate === null || rate === undefined ? box.detail || "" : `${short(rate)}/s`;
  write(flow, [text, lost ? `▲${short(lost)}` : null, busy === null ? null : percent(busy)].filter(Boolean).join(" · "));
  flow.classList.toggle("wrong", lost > 0);
  const words = [`${box.role || "step"} ${box.name}`, text, lost ? `${short(lost)} left out` : null, alone ? regionWords(alone, seen) : null];
  mark(group, "aria-label", words.filter(Boolean).join(", "));
}

function updateLine({ line, path, title }, rate) {
  mark(path, "stroke-width", rate ? (1.2 + 1.05 * Math.log10(1 + rate)).toFixed(1) : 1);
  const words = rate === null || rate === undefined ? "" : `: ${short(rate)} rows/s`;
  write(title, `${line.producer} → ${line.consumer}${words}`);
}

function fit() {
  const room = byId("graph").clientWidth - 2;
  return Math.max(0.55, Math.min(1.35, room / store.drawing.width));
}

function scale(factor) {
  zoom = Math.max(LEAST_SCALE, Math.min(MOST_SCALE, (zoom ?? fit()) * factor));
  resize();
}

function resize() {
  if (!picture || !store.drawing) return;
  const size = zoom ?? fit();
  mark(picture, "width", Math.round(store.drawing.width * size));
  mark(picture, "height", Math.round((store.drawing.height + 4) * size));
}
