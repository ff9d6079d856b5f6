// Asks for the history, follows the stream, and draws at most once a frame.

import { drawCharts } from "./charts.js";
import { drawControls, prepareControls } from "./controls.js";
import { drawDetail } from "./detail.js";
import { byId } from "./format.js";
import { drawGraph, prepareGraph } from "./graph.js";
import { drawHeader, prepareTheme } from "./header.js";
import { drawJournal, prepareJournal } from "./journal.js";
import { store, take } from "./store.js";

const AGAIN_MS = 2000;
let waiting = false;
let stream = null;

function draw() {
  waiting = false;
  for (const part of [drawHeader, drawGraph, drawDetail, drawControls, drawCharts, drawJournal]) part();
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

function follow() {
  stream?.close();
  stream = new EventSource(`/api/stream?since=${encodeURIComponent(store.id)}`);
  stream.onopen = () => connected(true);
  stream.onmessage = (event) => {
    const news = JSON.parse(event.data);
    const tooMuch = take(news);
    store.id = event.lastEventId;
    if (news.entry?.who === "by hand") askControls();
    if (tooMuch) begin();
    refresh();
  };
  stream.onerror = () => {
    connected(false);
    if (stream.readyState === EventSource.CLOSED) setTimeout(begin, AGAIN_MS);
  };
}

function connected(now) {
  store.connected = now;
  if (now) askControls();
  refresh();
}

async function askControls() {
  try {
    Object.assign(store, await (await fetch("/api/controls")).json());
    refresh();
  } catch {
    // The stream says that nobody is there.
  }
}

async function begin() {
  stream?.close();
  try {
    await load();
    byId("notice").hidden = true;
    if (!store.journal) follow();
    refresh();
  } catch (error) {
    byId("notice").textContent = `No answer from the run: ${error.message}`;
    byId("notice").hidden = false;
    connected(false);
    setTimeout(begin, AGAIN_MS);
  }
}

if (location.search) history.replaceState(null, "", location.pathname); // the token is in a cookie now
prepareTheme();
prepareGraph(refresh);
prepareControls(refresh);
prepareJournal(refresh);
addEventListener("resize", refresh);
begin();
