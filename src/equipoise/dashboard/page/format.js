"use strict";
// Figures as people read them.

const withPoint = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const wholeNumber = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function number(value) {
  if (value === null || value === undefined) return "";
  return Math.abs(value) >= 1000 ? wholeNumber.format(value) : withPoint.format(value);
}

function times(value) {
  return value === null || value === undefined ? "" : value.toFixed(2);
}

function percent(value) {
  if (value === null || value === undefined) return "";
  return `${(100 * value).toFixed(value < 0.1 ? 2 : 1)} %`;
}

function bytes(value) {
  if (value === null || value === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? Number(value.toPrecision(3)) : Math.round(value)} ${units[unit]}`;
}

function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value === 0) return "0 s";
  if (value < 1) return `${withPoint.format(Number((1000 * value).toPrecision(3)))} ms`;
  return `${Number(value.toPrecision(3))} s`;
}

function ago(milliseconds) {
  const past = Math.max(0, Math.round(milliseconds / 1000));
  if (past < 120) return `${past} s ago`;
  if (past < 7200) return `${Math.round(past / 60)} minutes ago`;
  return past < 172800 ? `${Math.round(past / 3600)} hours ago` : `${Math.round(past / 86400)} days ago`;
}

function plural(count, one, many) {
  return `${number(count)} ${count === 1 ? one : many}`;
}
