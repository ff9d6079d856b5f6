// What the page knows of the run. `history` is everything; every other piece of news adds to it.

const MOST_POINTS = 3000;
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
  then: null, // an earlier plan that is looked at
};

// What the graph, the details and the plan's text are about: now, or an earlier plan.
export const view = () => store.then ?? store;

// Takes a piece of news; whether everything should be asked for again.
export function take({ kind, point, entry, entries, drawing, ...rest }) {
  Object.assign(store, rest);
  if (kind === "history") {
    Object.assign(store, { entries: [], changes: [], dropped: 0, then: null });
    entries.forEach(takeEntry);
  }
  if (point) store.points.push(point);
  if (entry) takeEntry(entry);
  if (drawing) redraw(drawing);
  return store.points.length > MOST_POINTS;
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

export function lookAt(then) {
  store.then = then;
  store.drawings += 1;
}

export const newestPlan = () => store.changes.at(-1)?.plan ?? 1;

// Where a batch is worked on whole, stages run one after another: a plan is of tasks, not threads.
export const inBatches = () => store.seen !== null && store.seen.batch !== null;

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
