"use strict";
// Two kinds of charts, drawn as SVG at the width they have. Arrow keys or the pointer move a cursor over the points, and
// the point under it is described below the chart.

const SVG = "http://www.w3.org/2000/svg";
const PAD = { left: 58, right: 10, top: 10, bottom: 22 };

function shape(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children.map((each) => (each instanceof Node ? each : document.createTextNode(String(each)))));
  return made;
}

function ticks(low, high, wanted) {
  const rough = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(at + 0 || 0);
  return found;
}

// Draws the parts that every chart has; returns what is needed to draw into it.
function frame(host, spec) {
  if (!host.firstChild) {
    host.append(element("ul", { class: "legend" }), element("div", { class: "drawing" }), element("p", { class: "readout", "aria-live": "polite" }));
  }
  if (!host.listens) {
    host.listens = true;
    host.addEventListener("keydown", (event) => moveCursor(host, event));
    host.addEventListener("pointermove", (event) => pointAt(host, event));
    host.addEventListener("pointerleave", () => setCursor(host, null));
  }
  const [legend, drawing, readout] = host.children;
  const width = Math.max(220, host.clientWidth);
  const height = spec.height || 190;
  const low = spec.low;
  const scale = ticks(low, Math.max(spec.high, low + 1e-9), 4);
  const high = Math.max(spec.high, scale.length ? scale[scale.length - 1] : low);
  const across = (at) => PAD.left + (width - PAD.left - PAD.right) * at;
  const up = (value) => height - PAD.bottom - ((height - PAD.top - PAD.bottom) * (value - low)) / (high - low || 1);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
  for (const at of scale) {
    svg.append(shape("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: up(at), y2: up(at) }));
    svg.append(shape("text", { x: PAD.left - 6, y: up(at) + 4, "text-anchor": "end" }, spec.format(at)));
  }
  legend.replaceChildren(...spec.legend.map(([name, kind, form]) => element("li", {}, sample(kind, form), name)));
  drawing.replaceChildren(svg);
  host.tabIndex = 0;
  host.setAttribute("role", "group");
  host.setAttribute("aria-label", spec.summary);
  return { svg, across, up, width, height, readout, low };
}

function sample(kind, form) {
  const picture = shape("svg", { viewBox: "0 0 30 12", "aria-hidden": "true" });
  if (form === "bar") picture.append(shape("rect", { class: `bar ${kind}`, x: 9, y: 1, width: 12, height: 10 }));
  else picture.append(shape("line", { class: form === "mean" ? "mean" : `line ${kind}`, x1: 1, x2: 29, y1: 6, y2: 6 }));
  return picture;
}

function nothing(host, words) {
  host.replaceChildren(element("p", { class: "muted" }, words));
  host.removeAttribute("tabindex");
  host.removeAttribute("role");
  host.removeAttribute("aria-label");
  host.chart = undefined;
}

function labels(parts, names, place) {
  const room = Math.max(1, Math.floor((parts.width - PAD.left - PAD.right) / 46));
  const every = Math.max(1, Math.ceil(names.length / room));
  for (let at = 0; at < names.length; at += every) {
    parts.svg.append(shape("text", { x: place(at), y: parts.height - 6, "text-anchor": "middle" }, String(names[at])));
  }
}

// spec: x, series [{name, kind, values, step}], marks (places in x), low, format, summary, empty, readout(index)
function lineChart(host, spec) {
  const known = spec.series.flatMap((each) => each.values).filter((each) => each !== null);
  if (!known.length) return nothing(host, spec.empty);
  if (!host.chart) host.replaceChildren();
  const shown = spec.series.filter((each) => each.values.some((value) => value !== null));
  const legend = shown.map((each) => [each.name, each.kind, "line"]);
  const parts = frame(host, { ...spec, high: Math.max(...known, spec.low + (spec.span || 0)), legend });
  const last = Math.max(1, spec.x.length - 1);
  const place = (index) => parts.across(spec.x.length === 1 ? 0.5 : index / last);
  for (const at of spec.marks || []) {
    parts.svg.append(shape("line", { class: "mark", x1: place(at - 0.5), x2: place(at - 0.5), y1: PAD.top, y2: parts.height - PAD.bottom }));
  }
  for (const each of shown) {
    let path = "";
    each.values.forEach((value, index) => {
      if (value === null) return;
      const begins = path === "" || each.values[index - 1] === null;
      if (each.step && !begins) path += `H${place(index).toFixed(1)}`;
      path += `${begins ? "M" : "L"}${place(index).toFixed(1)} ${parts.up(value).toFixed(1)}`;
    });
    parts.svg.append(shape("path", { class: `line ${each.kind}`, d: path }));
    if (each.values.length <= 40) {
      each.values.forEach((value, index) => {
        if (value !== null) parts.svg.append(shape("circle", { class: `dot ${each.kind}`, cx: place(index), cy: parts.up(value), r: 2.6 }));
      });
    }
  }
  labels(parts, spec.x, place);
  remember(host, parts, spec, spec.x.length, place, null);
}

// spec: names, series [{name, kind, values}], mean, meanName, format, summary, empty, readout(index)
function barChart(host, spec) {
  const known = spec.series.flatMap((each) => each.values).filter((each) => each !== null);
  if (!known.length) return nothing(host, spec.empty);
  if (!host.chart) host.replaceChildren();
  const legend = spec.series.map((each) => [each.name, each.kind, "bar"]);
  if (spec.mean !== undefined) legend.push([spec.meanName, "", "mean"]);
  const parts = frame(host, { ...spec, low: 0, high: Math.max(...known, spec.mean || 0, 1e-9), legend });
  const count = spec.names.length;
  const slot = (parts.width - PAD.left - PAD.right) / count;
  const gap = slot > 6 ? slot * 0.2 : 0;
  const thick = (slot - gap) / spec.series.length;
  spec.series.forEach((each, row) => {
    each.values.forEach((value, index) => {
      if (value === null) return;
      const x = PAD.left + index * slot + gap / 2 + row * thick;
      const y = parts.up(value);
      parts.svg.append(shape("rect", { class: `bar ${each.kind}`, x, y, width: Math.max(0.5, thick - (thick > 4 ? 1 : 0)), height: Math.max(0, parts.up(0) - y) }));
    });
  });
  if (spec.mean !== undefined) {
    parts.svg.append(shape("line", { class: "mean", x1: PAD.left, x2: parts.width - PAD.right, y1: parts.up(spec.mean), y2: parts.up(spec.mean) }));
  }
  const place = (index) => PAD.left + (index + 0.5) * slot;
  labels(parts, spec.names, place);
  remember(host, parts, spec, count, place, slot);
}

function remember(host, parts, spec, count, place, slot) {
  const before = host.chart ? host.chart.cursor : null;
  host.chart = { parts, spec, count, place, slot, cursor: null, drawn: null };
  setCursor(host, before === null || before === undefined ? null : Math.min(before, count - 1));
}

function setCursor(host, index) {
  const chart = host.chart;
  if (!chart) return;
  chart.cursor = index;
  if (chart.drawn) chart.drawn.remove();
  chart.drawn = null;
  chart.parts.readout.textContent = index === null ? "" : chart.spec.readout(index);
  if (index === null) return;
  const { svg, height } = chart.parts;
  const x = chart.place(index);
  chart.drawn = chart.slot
    ? shape("rect", { class: "shade", x: x - chart.slot / 2, y: PAD.top, width: chart.slot, height: height - PAD.top - PAD.bottom })
    : shape("line", { class: "cursor", x1: x, x2: x, y1: PAD.top, y2: height - PAD.bottom });
  svg.append(chart.drawn);
}

function moveCursor(host, event) {
  const chart = host.chart;
  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  if (!chart || event.target !== host) return;
  if (event.key === "Escape") return setCursor(host, null);
  if (!(event.key in steps)) return;
  event.preventDefault();
  const from = chart.cursor === null ? (event.key === "ArrowRight" ? -1 : chart.count) : chart.cursor;
  setCursor(host, Math.min(chart.count - 1, Math.max(0, from + steps[event.key])));
}

function pointAt(host, event) {
  const chart = host.chart;
  if (!chart || chart.parts.svg.parentNode === null) return;
  const x = event.clientX - chart.parts.svg.getBoundingClientRect().left;
  let best = 0;
  for (let index = 1; index < chart.count; index += 1) {
    if (Math.abs(chart.place(index) - x) < Math.abs(chart.place(best) - x)) best = index;
  }
  if (best !== chart.cursor) setCursor(host, best);
}
