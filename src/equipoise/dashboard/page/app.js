"use strict";
// Draws snapshots as they arrive. Their contents are inserted as text, never as HTML.

const WORDS = {
  empty: ["no batch yet", ""],
  running: ["running", "good"],
  finished: ["finished", ""],
  stopped: ["stopped", "bad"],
  elsewhere: ["on another machine", ""],
  damaged: ["damaged", "bad"],
  incompatible: ["other version", "bad"],
};
const byId = (id) => document.getElementById(id);
const token = new URLSearchParams(location.search).get("token");
const withToken = (path) => (token === null ? path : `${path}?token=${encodeURIComponent(token)}`);
let snapshot = null;

function fill(table, heads, rows) {
  const head = element("tr", {}, ...heads.map((each) => element("th", { scope: "col" }, each)));
  const lines = rows.map((row) => element("tr", {}, ...row.map((cell) => cell instanceof Node ? cell : element("td", {}, cell))));
  table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...lines));
}

// Tables behind the charts are made when they are opened, and kept up to date while they are open.
const tables = {};
function table(id, heads, rows) {
  const details = byId(`${id}-details`);
  tables[id] = () => details.open && fill(details.querySelector("table"), heads, rows());
  if (!details.listens) {
    details.listens = true;
    details.addEventListener("toggle", () => tables[id]());
  }
  tables[id]();
}

function drawHead() {
  const [word, kind] = WORDS[snapshot.status] || [snapshot.status, ""];
  byId("status").textContent = word;
  byId("status").className = `badge ${kind}`;
  byId("where").textContent = snapshot.key.length ? `by ${snapshot.key.join(", ")} in ${snapshot.location}` : snapshot.location;
  byId("message").textContent = snapshot.message;
  byId("message").className = ["damaged", "incompatible", "stopped"].includes(snapshot.status) ||
    (snapshot.undelivered !== null && snapshot.status !== "running") ? "alarm" : "muted";
  document.title = `equipoise: ${word}`;
}

function drawTiles() {
  const last = snapshot.batches[snapshot.batches.length - 1];
  const tiles = [];
  const tile = (name, main, more) => tiles.push(element("div", {}, element("dt", {}, name), element("dd", { class: "main" }, main), element("dd", { class: "more" }, more)));
  if (last) {
    const hash = last.imbalance_rows_hash === null ? "" : `plain hash ${times(last.imbalance_rows_hash)}`;
    const bound = last.bound_rows === null ? "" : `bound ${times(last.bound_rows)}`;
    tile("Batch", number(last.batch), plural(last.rows, "row", "rows"));
    tile("Imbalance", times(last.imbalance_rows), [hash, bound].filter(Boolean).join(", "));
    tile("Time of the batch", seconds(last.seconds), last.target_seconds === null ? `${number(last.rows / last.seconds)} rows/s` : `of ${seconds(last.target_seconds)}, ${number(last.rows / last.seconds)} rows/s`);
    tile("Partitions", number(last.partitions), last.busy === null ? "" : `busy ${percent(last.busy)}`);
    tile("Plans saved", seconds(snapshot.totals.got_seconds), `${seconds(snapshot.totals.promised_seconds)} promised, ${seconds(snapshot.totals.spent_seconds)} spent`);
    tile("State", bytes(last.state_bytes), `${bytes(snapshot.totals.moved_bytes)} moved so far`);
  }
  if (snapshot.plan) {
    const plan = snapshot.plan;
    tile("Plan", number(plan.version), `${plan.isolated_keys} isolated`);
  }
  byId("tiles").replaceChildren(...tiles);
}

const mean = (values) => values.reduce((sum, each) => sum + each, 0) / (values.length || 1);
const relative = (values) => {
  const middle = mean(values);
  return values.map((each) => (middle ? each / middle : 0));
};

function drawTasks() {
  const tasks = snapshot.tasks;
  const rows = relative(tasks.map((each) => each.rows));
  const spent = relative(tasks.map((each) => each.seconds));
  const names = tasks.map((each) => each.partition);
  const last = snapshot.batches[snapshot.batches.length - 1];
  const describe = (at) => `Partition ${tasks[at].partition}: ${plural(tasks[at].rows, "row", "rows")} (${times(rows[at])} x the mean), ${seconds(tasks[at].seconds)} (${times(spent[at])} x the mean)`;
  byId("load-note").textContent = tasks.length ? `One pair of bars for each of the ${tasks.length} tasks of batch ${last.batch}, over their mean.` : "";
  barChart(byId("load"), {
    names, low: 0, mean: 1, meanName: "mean", format: (value) => number(value), empty: "No batch yet.",
    series: [{ name: "rows", kind: "rows", values: rows }, { name: "time", kind: "time", values: spent }],
    summary: tasks.length ? `Load of ${tasks.length} partitions over their mean. Fullest by rows ${times(Math.max(...rows))}, by time ${times(Math.max(...spent))}.` : "",
    readout: describe,
  });
  table("load", ["Partition", "Rows", "x mean", "Time", "x mean"], () =>
    tasks.map((each, at) => [each.partition, number(each.rows), times(rows[at]), seconds(each.seconds), times(spent[at])]));
  const states = tasks.map((each) => each.state_bytes);
  const known = states.filter((each) => each !== null);
  byId("stored-note").textContent = known.length ? `${bytes(known.reduce((sum, each) => sum + each, 0))} in all, before the last batch.` : "";
  barChart(byId("stored"), {
    names, mean: known.length ? mean(known) : undefined, meanName: "mean", format: (value) => bytes(value, 3), empty: "No state yet.",
    series: [{ name: "bytes of state", kind: "store", values: states }],
    summary: known.length ? `Bytes of state of ${tasks.length} partitions. Largest ${bytes(Math.max(...known))}, mean ${bytes(mean(known))}.` : "",
    readout: (at) => `Partition ${tasks[at].partition}: ${bytes(states[at])}`,
  });
  table("stored", ["Partition", "State"], () => tasks.map((each) => [each.partition, bytes(each.state_bytes)]));
}

function drawBatches() {
  const batches = snapshot.batches;
  const column = (name) => batches.map((each) => each[name]);
  const x = column("batch");
  const marks = batches.flatMap((each, at) => (at && each.plan !== batches[at - 1].plan ? [at] : []));
  const newestFirst = (cells) => () => [...batches].reverse().map(cells);
  const last = batches[batches.length - 1];
  const by = document.querySelector("input[name=by]:checked").value;
  const ours = `imbalance_${by}`;
  const hash = `imbalance_${by}_hash`;
  const bound = `bound_${by}`;
  lineChart(byId("imbalance"), {
    x, marks, low: 1, span: 0.2, height: 240, format: (value) => number(value), empty: "No batch yet.",
    series: [
      { name: "plain hash", kind: "hash", values: column(hash) },
      { name: "equipoise", kind: "ours", values: column(ours) },
      { name: "bound: no plan can do better with whole keys", kind: "bound", values: column(bound) },
    ],
    summary: last ? `Imbalance by ${by} of the last ${batches.length} batches. Now ${times(last[ours])}, plain hash ${times(last[hash])}, bound ${times(last[bound])}. Arrow keys read single batches.` : "",
    readout: (at) => `Batch ${x[at]}, plan ${batches[at].plan}: ${times(batches[at][ours])}, plain hash ${times(batches[at][hash])}, bound ${times(batches[at][bound])}`,
  });
  table("imbalance", ["Batch", "By rows", "Plain hash", "Bound", "By time", "Plain hash", "Bound", "Plan"], newestFirst((each) =>
    [each.batch, times(each.imbalance_rows), times(each.imbalance_rows_hash), times(each.bound_rows), times(each.imbalance_seconds), times(each.imbalance_seconds_hash), times(each.bound_seconds), each.plan]));
  table("promises", ["Batch", "Plan", "Before: promised", "measured", "Plan: promised", "measured", "Saved: promised", "measured", "Trust", "Look", "Rows seen", "Time of it"], newestFirst((each) =>
    [each.batch, each.applied ? `${each.plan}, new` : each.plan, times(each.unchanged_rows), times(each.imbalance_rows_unchanged), times(each.promised_rows), times(each.imbalance_rows), seconds(each.promised_seconds), seconds(each.got_seconds), percent(each.trust), each.look || "", number(each.look_rows), seconds(each.look_seconds)]));
  const targeted = batches.some((each) => each.target_seconds !== null);
  byId("time-note").textContent = targeted ? "Compared with the interval of the trigger, or with targetSeconds." : "The trigger has no interval; the dashed line is the time from one batch to the next.";
  lineChart(byId("time"), {
    x, marks, low: 0, format: (value) => seconds(value, 3), empty: "No batch yet.",
    series: [
      { name: "time of the batch", kind: "ours", values: column("seconds") },
      targeted ? { name: "interval", kind: "hash", values: column("target_seconds") } : { name: "between batches", kind: "hash", values: column("since_previous") },
    ],
    summary: last ? `Time of the last ${batches.length} batches. Now ${seconds(last.seconds)}${targeted ? ` of ${seconds(last.target_seconds)}` : ""}.` : "",
    readout: (at) => `Batch ${x[at]}: ${seconds(batches[at].seconds)}${targeted ? ` of ${seconds(batches[at].target_seconds)}` : ""}, ${plural(batches[at].rows, "row", "rows")}`,
  });
  table("time", ["Batch", "When", "Time", "Interval", "Since the last", "Work", "Rows", "Combined rows", "Output"], newestFirst((each) =>
    [each.batch, new Date(each.time_ms).toLocaleString(), seconds(each.seconds), seconds(each.target_seconds), seconds(each.since_previous), seconds(each.work_seconds), number(each.rows), number(each.combined_rows), number(each.output_rows)]));
  lineChart(byId("elastic"), {
    x, low: 0, height: 150, format: (value) => number(value), empty: "No batch yet.",
    series: [{ name: "partitions", kind: "rows", values: column("partitions"), step: true }],
    summary: last ? `Number of partitions over the last ${batches.length} batches. Now ${last.partitions}.` : "",
    readout: (at) => `Batch ${x[at]}: ${batches[at].partitions} partitions`,
  });
  lineChart(byId("busy"), {
    x, low: 0, height: 150, format: (value) => `${number(100 * value)} %`, empty: "No batch yet.",
    series: [{ name: "busy", kind: "store", values: column("busy") }],
    summary: last ? `Busy part of the time of all partitions. Now ${percent(last.busy)}.` : "",
    readout: (at) => `Batch ${x[at]}: busy ${percent(batches[at].busy)}`,
  });
  table("elastic", ["Batch", "Partitions", "Busy", "Work"], newestFirst((each) => [each.batch, each.partitions, percent(each.busy), seconds(each.work_seconds)]));
}

function drawSource() {
  const source = snapshot.source;
  byId("source-part").hidden = !source.length;
  if (!source.length) return;
  const last = source[source.length - 1];
  lineChart(byId("source"), {
    x: source.map((each) => each.batch), low: 0, height: 150, format: (value) => number(value), empty: "No batch yet.",
    series: [
      { name: "blocks", kind: "ours", values: source.map((each) => each.blocks), step: true },
      { name: "buckets", kind: "hash", values: source.map((each) => each.buckets), step: true },
    ],
    summary: `Blocks and reduce buckets of the source. Now ${last.blocks} and ${last.buckets}.`,
    readout: (at) => `Batch ${source[at].batch}: ${source[at].blocks} blocks, ${source[at].buckets} buckets; ${source[at].reason}`,
  });
  byId("source-note").textContent = `Batch ${last.batch}: ${last.action}, ${last.reason}`;
}

function drawHotKeys() {
  const keys = snapshot.hot_keys;
  const most = Math.max(...keys.map((each) => each.share), 1e-9);
  byId("hot-note").textContent = keys.length ? "Share of the load, partition in the last batch, and since which batch a key is isolated or among the hottest." : "No hot key yet.";
  fill(byId("hot"), keys.length ? ["Key", "Share", "Partition", "Placed", "Since"] : [], keys.map((each) => {
    const bar = shape("svg", { class: "share", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, shape("rect", { class: "bar rows", width: (100 * each.share) / most, height: 10 }));
    const placed = each.isolated ? "isolated" : "in its group";
    const since = `${each.since}${each.earlier ? " or before" : ""}, for ${each.age}`;
    return [element("td", { class: "key" }, each.key), element("td", {}, bar, percent(each.share)), each.partition, placed, since];
  }));
}

function drawPlan() {
  const plan = snapshot.plan;
  const facts = !plan ? [] : [
    ["Version", plan.parent === null ? plan.version : `${plan.version}, after ${plan.parent}`], ["Made by", plan.planner], ["Why", plan.reason],
    ["Partitions", plan.partitions], ["Tail groups", number(plan.tail_groups)], ["Isolated keys", plan.isolated_keys],
    ["Overrides", plan.overrides === null ? "none: the load decides" : plan.overrides],
  ];
  byId("plan").replaceChildren(...(plan ? facts : [["", "No plan yet."]]).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  byId("plan-details").hidden = !plan || !plan.isolated.length;
  table("plan", ["Key", "Partition"], () => (plan ? plan.isolated : []).map((each) => [element("td", { class: "key" }, each.key), each.partition]));
}

function drawDecisions() {
  const made = snapshot.decisions.map((each) => {
    const when = each.first === each.last ? `Batch ${each.first}` : `Batches ${each.first} to ${each.last}`;
    const what = each.action === "keep" ? `plan ${each.plan} kept` : each.applied ? `${each.action}, now plan ${each.plan}` : `${each.action} advised, not applied`;
    const figures = [];
    if (each.action !== "keep") {
      if (each.imbalance_after !== null) figures.push(`predicted ${times(each.imbalance_before)} to ${times(each.imbalance_after)}`);
      if (each.seen_before !== null) figures.push(`measured by rows ${times(each.seen_before)} to ${times(each.seen_after)}`);
      if (each.move_bytes !== null) figures.push(`moves ${bytes(each.move_bytes)}, ${plural(each.keys_moved, "key", "keys")}, ${plural(each.groups_moved, "group", "groups")}`);
      if (each.move_seconds !== null) figures.push(`costs ${seconds(each.move_seconds)}, saves ${seconds(each.gain_seconds)}`);
    }
    return element("li", { class: each.applied ? "made" : "" }, element("p", { class: "what" }, `${when}: ${what}`), element("p", {}, each.reason), element("p", { class: "figures" }, figures.join("; ")));
  });
  byId("decisions").replaceChildren(...(made.length ? made : [element("li", {}, "None yet.")]));
}

function draw() {
  if (!snapshot) return;
  drawHead();
  drawTiles();
  drawTasks();
  drawBatches();
  drawSource();
  drawHotKeys();
  drawPlan();
  drawDecisions();
  document.body.dataset.batch = snapshot.batches.length ? snapshot.batches[snapshot.batches.length - 1].batch : "";
}

let connection = "asking the server";
function drawLive() {
  const last = snapshot && snapshot.batches[snapshot.batches.length - 1];
  const text = last ? `${connection}; last batch ${ago(Date.now() - last.time_ms)}` : connection;
  if (byId("live").textContent !== text) byId("live").textContent = text;
}

function listen() {
  const events = new EventSource(withToken("/events"));
  events.addEventListener("open", () => { connection = "live"; drawLive(); });
  events.addEventListener("snapshot", (event) => { snapshot = JSON.parse(event.data); draw(); drawLive(); });
  events.addEventListener("error", () => {
    connection = "the server does not answer; this is its last snapshot";
    drawLive();
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  });
}

byId("data-link").href = withToken("/data");
byId("metrics-link").href = withToken("/metrics");
document.querySelectorAll("input[name=by]").forEach((each) => each.addEventListener("change", draw));
let width = 0;
new ResizeObserver(() => { if (byId("main").clientWidth !== width) { width = byId("main").clientWidth; draw(); } }).observe(byId("main"));
setInterval(drawLive, 1000);
listen();
