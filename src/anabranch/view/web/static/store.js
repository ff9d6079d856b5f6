// What the page knows of the run. `history` is everything; every other piece of news adds to it.

export const MOST_POINTS = 3000;
const MOST_ENTRIES = 10000;

export const store = {
  id: "",
  journal: "",
  controls: false,
  adapting: null, // nobody tunes it
  connected: false,
  trouble: "",
  started: null,
  steps: {},
  plan: null,
  drawing: null,
  drawings: 0,
  points: [],
  entries: [],
  changes: [],
  dropped: 0,
  seen: null,
  rows_in: 0,
  rows_out: 0,
  rate_per_s: null,
  ended: null,
  chosen: null,
};

// Takes a piece of news; whether everything should be asked for again.
export function take(news) {
  if (news.kind === "history") return takeHistory(news);
  if (news.kind === "observed") store.points.push(news.point);
  if (news.entry) takeEntry(news.entry);
  for (const name of ["seen", "rows_in", "rows_out", "rate_per_s", "ended", "plan"]) {
    if (name in news) store[name] = news[name];
  }
  if (news.drawing) redraw(news.drawing);
  return store.points.length > MOST_POINTS;
}

function takeHistory(news) {
  for (const name of ["id", "journal", "controls", "adapting", "started", "steps", "plan", "points",
    "seen", "rows_in", "rows_out", "rate_per_s", "ended"]) {
    if (name in news) store[name] = news[name];
  }
  store.entries = [];
  store.changes = [];
  store.dropped = 0;
  for (const entry of news.entries) takeEntry(entry);
  if (news.drawing) redraw(news.drawing);
  return false;
}

function takeEntry(entry) {
  entry.words = `${entry.who} ${entry.kind} ${entry.text}`.toLowerCase();
  store.entries.push(entry);
  if (entry.kind === "change") store.changes.push(entry);
  if (store.entries.length > MOST_ENTRIES) {
    const oldest = store.entries.shift();
    store.dropped += 1;
    if (store.changes[0] === oldest) store.changes.shift();
  }
}

function redraw(drawing) {
  store.drawing = drawing;
  store.drawings += 1;
}

export function state() {
  if (store.ended) return store.ended.error ? "failed" : store.ended.whole ? "ended" : "stopped";
  if (store.journal) return "cut off";
  if (!store.connected) return "disconnected";
  return store.started ? "running" : "waiting";
}

export const regionOf = (step) => store.steps[step]?.region || step;

// Steps of a region as the flow orders them.
export const stepsOf = (region) =>
  Object.values(store.steps).filter((step) => step.region === region).map((step) => step.step);
