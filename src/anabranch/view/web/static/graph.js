// The graph: the server says where boxes and lines lie, this draws them and keeps them up to date.

import { busyClass, byId, mark, percent, pressed, roving, short, stop, svg, write } from "./format.js";
import { store, view } from "./store.js";

const CARD = 4;
const MOST_CARDS = 3;
const LEAST_SCALE = 0.25;
const MOST_SCALE = 2.5;
const READABLE = 0.9; // smaller letters are under 9 pixels; what is wider than the page scrolls
const BAR = 26;

let drawn = 0;
let picture = null;
let boxes = new Map(); // "step:count" → its nodes
let lines = [];
let zoom = null; // null: as large as fits and can be read; "fit": all of it
let again = () => {};

export function prepareGraph(refresh) {
  again = refresh;
  const items = () => [...boxes.values()].filter((box) => box.stop).map((box) => box.group);
  roving(byId("graph"), items);
  byId("zoom-in").addEventListener("click", () => scale(1.25));
  byId("zoom-out").addEventListener("click", () => scale(0.8));
  byId("zoom-fit").addEventListener("click", () => { zoom = "fit"; resize(); });
  new ResizeObserver(resize).observe(byId("graph"));
  byId("detail-card").addEventListener("keydown", (event) => {
    if (event.key === "Escape") boxes.get(store.chosen)?.group.focus();
  });
}

export function drawGraph() {
  if (!view().drawing) return;
  if (drawn !== store.drawings) build();
  drawn = store.drawings;
  update();
}

function build() {
  const focused = document.activeElement?.dataset?.key;
  const { width, height } = view().drawing;
  boxes = new Map();
  picture = svg("svg", { viewBox: `0 0 ${width} ${height + 4}`, role: "group", "aria-label": "Graph of the flow" });
  const regions = svg("g");
  for (const box of view().drawing.boxes) regions.append(region(box));
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
  const group = svg("g", { class: "g-region", "data-region": box.name });
  if (!alone) mark(group, "role", "group");
  if (!alone) mark(group, "aria-label", `region ${box.name}`);
  group.addEventListener("click", () => choose(alone ? `step:${box.inside[0].inside[0].name}` : `region:${box.name}`));
  for (let card = Math.min(box.replicas, MOST_CARDS) - 1; card > 0; card -= 1) {
    group.append(rectangle({ ...box, x: box.x + card * CARD, y: box.y - card * CARD }, "behind", 10));
  }
  const outline = rectangle(box, "outline", 10);
  const right = box.x + box.width;
  const share = svg("text", { class: "share", x: right - (box.replicas > 1 ? 22 : 9), y: box.y + 18, "text-anchor": "end" });
  const flag = svg("text", { class: "flag", x: box.x + 4, y: box.y + box.height + 13 });
  group.append(outline, flag);
  const title = alone ? null : button("region", box); // beside its steps: a button holds no buttons
  title?.append(rectangle({ ...box, height: BAR }, "bar", 10),
    svg("text", { class: "name", x: box.x + 9, y: box.y + 18 }, box.label), share);
  if (title) group.append(title);
  keep("region", box, { outer: group, group: title, share, flag, stop: !alone });
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
  const title = svg("title");
  frame.append(title);
  if (!outline) mark(frame, "role", "img");
  keep("pipeline", box, { frame, title, name: outline ? "outline frame" : "frame" });
  return svg("g", {}, outline ? null : frame, ...box.inside.map((inner) => step(inner, outline ? region : null)));
}

function step(box, alone) {
  const group = button("step", box);
  const middle = box.x + box.width / 2;
  const flow = svg("text", { class: "flow", x: middle, y: box.y + 31, "text-anchor": "middle" });
  group.append(rectangle(box, "face", 5));
  group.append(svg("text", { class: "name", x: middle, y: box.y + 17, "text-anchor": "middle" }, box.label), flow);
  const lost = svg("g", { class: "lost" },
    svg("rect", { x: box.x - 5, y: box.y - 8, height: 15, rx: 7.5 }), svg("text", { x: box.x + 1, y: box.y + 4 }));
  group.append(lost);
  keep("step", box, { group, flow, lost, alone, stop: true });
  return group;
}

function button(kind, box) {
  const key = `${kind}:${box.name}`;
  const group = svg("g", { class: kind === "region" ? "g-title" : "g-step", role: "button", tabindex: -1, "data-key": key });
  group.append(svg("title", {}, box.name));
  pressed(group, (event) => {
    event.stopPropagation();
    choose(key);
    if (event.type === "keydown") byId("detail-title").focus();
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
  lines = view().drawing.lines.map((line) => {
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
  const { seen } = view();
  write(byId("serial"), seen?.serial ?? "");
  for (const [key, box] of boxes) {
    if (box.kind === "region") updateRegion(box, seen);
    else if (box.kind === "pipeline") updateFrame(box, seen);
    else updateStep(box, seen);
    (box.outer ?? box.group)?.classList.toggle("chosen", key === store.chosen);
    if (box.group) mark(box.group, "aria-pressed", key === store.chosen);
  }
  lines.forEach((each, number) => updateLine(each, seen?.traffic[number]));
}

export const busyOf = (region, seen) => seen?.busy[region] ?? null;

function updateRegion({ outer, group, share, flag, box }, seen) {
  const busy = busyOf(box.name, seen);
  const held = seen?.bottleneck === box.name;
  write(share, busy === null ? "" : percent(busy));
  write(flag, held ? "▲ bottleneck" : "");
  outer.classList.toggle("bottleneck", held);
  if (group) mark(group, "aria-label", `region ${box.name}, ${regionWords(box, seen)}`);
}

function regionWords(box, seen) {
  const busy = busyOf(box.name, seen);
  const words = [box.replicas === 1 ? "1 replica" : `${box.replicas} replicas`];
  if (busy !== null) words.push(`${percent(busy)} busy`);
  if (seen?.bottleneck === box.name) words.push("bottleneck");
  return words.join(", ");
}

function updateFrame({ frame, title, name, box }, seen) {
  const busy = seen?.pipelines[box.name] ?? null;
  const level = busyClass(busy);
  const words = `${box.inside.map((inner) => inner.name).join(" · ")}: ${busy === null ? "not measured" : `${percent(busy)} busy`}`;
  write(title, words);
  if (frame.hasAttribute("role")) mark(frame, "aria-label", `pipeline ${words}`);
  mark(frame, "class", level === null ? name : `${name} busy-${level}`);
}

function updateStep({ group, flow, lost: badge, alone, box }, seen) {
  const found = seen?.steps[box.name];
  const rate = (seen?.sources[box.name] ?? {}).rate_per_s ?? found?.in_per_s;
  const lost = found ? found.skipped + found.late : 0;
  const busy = alone ? busyOf(alone.name, seen) : null;
  const text = rate === null || rate === undefined ? box.detail || "" : `${short(rate)}/s`;
  write(flow, [text, busy === null ? null : percent(busy)].filter(Boolean).join(" · "));
  write(badge.lastChild, lost ? `▲${short(lost)}` : "");
  mark(badge.firstChild, "width", lost ? 12 + 7 * badge.textContent.length : 0);
  const words = [`${box.role || "step"} ${box.name}`, text, lost ? `${short(lost)} left out` : null, alone ? regionWords(alone, seen) : null];
  mark(group, "aria-label", words.filter(Boolean).join(", "));
}

function updateLine({ line, path, title }, rate) {
  mark(path, "stroke-width", rate ? (1.2 + 1.05 * Math.log10(1 + rate)).toFixed(1) : 1);
  const words = rate === null || rate === undefined ? "" : `: ${short(rate)} rows/s`;
  write(title, `${line.producer} → ${line.consumer}${words}`);
}

function size() {
  const whole = Math.min(1.35, (byId("graph").clientWidth - 2) / view().drawing.width);
  return zoom === "fit" ? whole : zoom ?? Math.max(READABLE, whole);
}

function scale(factor) {
  zoom = Math.max(LEAST_SCALE, Math.min(MOST_SCALE, size() * factor));
  resize();
}

function resize() {
  if (!picture || !view().drawing) return;
  const { width, height } = view().drawing;
  mark(picture, "width", Math.round(width * size()));
  mark(picture, "height", Math.round((height + 4) * size()));
}
