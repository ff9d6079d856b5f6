// Asks for the history, follows the stream, and draws at most once a frame.

import { drawCharts } from "./charts.js";
import { drawControls, prepareControls } from "./controls.js";
import { drawDetail } from "./detail.js";
import { drawGraph, prepareGraph } from "./graph.js";
import { drawHeader, prepareTheme } from "./header.js";
import { drawJournal, prepareJournal } from "./journal.js";
import { store, take } from "./store.js";
import { drawThen, prepareThen } from "./then.js";

const AGAIN_MS = 2000;
const MOST_MS = 8000;
const tabs = new BroadcastChannel("anabranch");
let waiting = false;
let stream = null;
let patience = AGAIN_MS; // twice as long after every refusal
let later = 0;

function draw() {
  waiting = false;
  for (const part of [drawHeader, drawGraph, drawDetail, drawControls, drawCharts, drawJournal, drawThen]) part();
  document.body.dataset.drawn = store.id;
}

export function refresh() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(draw);
}

async function load() {
  const answer = await fetch("/api/history");
  if (!answer.ok) throw new Error(await answer.text());
  take(await answer.json());
}

const address = () => `/api/stream?since=${encodeURIComponent(store.id)}`;

function follow() {
  leave();
  stream = new EventSource(address());
  stream.onopen = () => { trouble(""); connected(true); };
  stream.onmessage = (event) => {
    patience = AGAIN_MS;
    const tooMuch = take(JSON.parse(event.data));
    store.id = event.lastEventId;
    if (tooMuch) begin();
    refresh();
  };
  stream.onerror = () => {
    const final = stream.readyState === EventSource.CLOSED;
    stream.close(); // left to itself, a browser would ask every second for ever
    connected(false);
    if (final && !store.ended) refused();
    else again(follow);
  };
}

function leave() {
  clearTimeout(later);
  stream?.close();
}

// A stream does not say why it is refused; the same request without one does. What was missed meanwhile is
// told when it is granted, so that nothing has to be asked for until then.
async function refused() {
  const stopper = new AbortController();
  try {
    const reply = await fetch(address(), { signal: stopper.signal });
    if (!reply.ok) trouble(`The run does not answer: ${said(await reply.text())}. The page tries again.`);
  } catch {
    // Nobody is there: the state says so.
  }
  stopper.abort();
  again(follow);
}

function said(text) {
  try {
    return JSON.parse(text).error;
  } catch {
    return text.trim();
  }
}

function again(what) {
  clearTimeout(later);
  later = setTimeout(what, patience);
  patience = Math.min(MOST_MS, 2 * patience);
}

// A browser has six connections to a server, and every stream takes one: a hidden tab gives its own to the tab
// that is looked at. One that is alone keeps it, and knows how the run ended.
tabs.onmessage = () => {
  if (!document.hidden || store.journal) return;
  leave();
  document.title = store.started?.flow ?? "anabranch";
};

document.addEventListener("visibilitychange", () => {
  if (document.hidden || store.journal) return;
  tabs.postMessage("looked at");
  if (stream?.readyState === EventSource.CLOSED) follow();
});

function trouble(text) {
  store.trouble = text;
  refresh();
}

function connected(now) {
  store.connected = now;
  refresh();
}

async function begin() {
  leave();
  try {
    await load();
    trouble("");
    if (!store.journal) follow();
  } catch (error) {
    trouble(`No answer from the run: ${said(error.message)}`);
    connected(false);
    again(begin);
  }
}

if (location.search) history.replaceState(null, "", location.pathname); // the token is in a cookie now
prepareTheme();
prepareGraph(refresh);
prepareControls(refresh);
prepareJournal(refresh);
prepareThen(refresh);
addEventListener("resize", refresh);
if (!document.hidden) tabs.postMessage("looked at");
begin();
