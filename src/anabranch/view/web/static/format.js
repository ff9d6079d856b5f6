// Numbers as people read them, and elements: names only ever get in as text.

const DASH = "–";
const UNITS = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

export function short(value) {
  if (value === null || value === undefined) return DASH;
  for (const [size, letter] of UNITS) {
    if (Math.abs(value) >= size * 0.9995) return digits(value / size) + letter;
  }
  return digits(value);
}

function digits(value) {
  const size = Math.abs(value);
  if (size === 0 || size >= 100) return String(Math.round(value));
  if (size >= 10) return trimmed(value.toFixed(1));
  return size >= 0.01 ? trimmed(value.toFixed(2)) : value.toPrecision(1);
}

const trimmed = (text) => text.replace(/\.?0+$/, "");

export const whole = (value) =>
  value === null || value === undefined ? DASH : Math.round(value).toLocaleString("en-US");

export const percent = (share) =>
  share === null || share === undefined ? DASH : `${Math.round(share * 100)} %`;

export function milliseconds(value) {
  if (value === null || value === undefined) return [DASH, "ms"];
  return value >= 999.5 ? [short(value / 1000), "s"] : [short(value), "ms"];
}

export const duration = (value) => milliseconds(value).join(" ");

export function clock(seconds) {
  if (seconds === null || seconds === undefined) return DASH;
  if (seconds < 120) return `${trimmed(seconds.toFixed(1))} s`;
  const minutes = Math.floor(seconds / 60);
  const rest = String(Math.floor(seconds % 60)).padStart(2, "0");
  if (minutes < 120) return `${minutes}:${rest} min`;
  return `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")} h`;
}

// 0 to 4, or null where nothing was measured.
export const busyClass = (share) =>
  share === null || share === undefined ? null : Math.max(0, Math.min(4, Math.floor(share * 5)));

export const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// Write only what is new: a page that stands still costs nothing.
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function mark(node, name, value) {
  if (value === null || value === undefined) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, value);
  }
}

// What a click does, Enter and the space bar do, too.
export function pressed(node, action) {
  node.addEventListener("click", action);
  node.addEventListener("keydown", (event) => {
    if (event.target !== node || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    action(event);
  });
}

// Arrow keys move between the items of a group, which is one stop for the tab key.
export function roving(group, items) {
  group.addEventListener("keydown", (event) => {
    const all = items();
    const here = all.indexOf(document.activeElement);
    if (here < 0) return;
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    let next = null;
    if (event.key in steps) next = (here + steps[event.key] + all.length) % all.length;
    if (event.key === "Home") next = 0;
    if (event.key === "End") next = all.length - 1;
    if (next === null) return;
    event.preventDefault();
    stop(all, all[next]);
    all[next].focus();
    all[next].scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}

export function stop(all, chosen) {
  for (const item of all) mark(item, "tabindex", item === chosen ? 0 : -1);
}
