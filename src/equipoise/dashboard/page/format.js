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

// Two digits, or all before the decimal point, as in equipoise.readable.
function short(value, digits) {
  return Math.abs(value) >= 10 ** digits ? wholeNumber.format(value) : String(Number(value.toPrecision(digits)));
}

function bytes(value, digits = 2) {
  if (value === null || value === undefined) return "";
  if (value < 1000) return `${Math.round(value)} bytes`;
  const units = ["KB", "MB", "GB", "TB", "PB"];
  let unit = -1;
  do {
    value /= 1000;
    unit += 1;
  } while (value >= 999.5 && unit < units.length - 1);
  return `${short(value, digits)} ${units[unit]}`;
}

function seconds(value, digits = 2) {
  if (value === null || value === undefined) return "";
  const sign = value < 0 ? "-" : "";
  const amount = Math.abs(value);
  if (amount === 0) return "0 s";
  if (amount < 1e-4) return `${sign}${short(1e6 * amount, digits)} µs`;
  if (amount < 0.9995) return `${sign}${short(1e3 * amount, digits)} ms`;
  if (amount < 59.5) return `${sign}${short(amount, digits)} s`;
  if (amount < 3599.5) return `${sign}${joined(Math.round(amount), "min", "s")}`;
  return `${sign}${joined(Math.round(amount / 60), "h", "min")}`;
}

function joined(amount, large, small) {
  return `${Math.floor(amount / 60)} ${large}${amount % 60 ? ` ${amount % 60} ${small}` : ""}`;
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
