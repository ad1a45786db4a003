// The timeline: rows open in the panel without leaving the page, the axis can be zoomed, and long runs load their rows
// in blocks. The server draws the first rows with the same axis, so everything can be read without this script.
import { areKeysOn, connect, morph, move, onPatch, parsePage } from "./page.js";

const ROW = 28, BLOCK = 500, DRAWN_MAX = 120;
const svg = "http://www.w3.org/2000/svg";
const timeline = () => document.getElementById("timeline");
const list = () => timeline()?.querySelector("[data-rows]");
let zoom; // The shown part of the time as [from, to], in microseconds since the start; undefined: all of it.
let axis;

// The axis: the same computation as in `axis.rs`.
function makeAxis() {
  let parts = timeline().dataset.axis.split(",").map((part) => part.split(" ").map(Number));
  if (zoom) {
    const shown = parts.map(([from, to, gap]) => [Math.max(from, zoom[0]), Math.min(to, zoom[1]), gap]).filter(([from, to]) => from < to);
    if (shown.length) parts = shown;
  }
  const gaps = parts.filter(([, , gap]) => gap).length;
  const time = parts.reduce((sum, [from, to, gap]) => sum + (gap ? 0 : to - from), 0);
  const gapWidth = gaps ? (time ? Math.min(8, 55 / gaps) : 98 / gaps) : 0;
  const scale = time ? (98 - gapWidth * gaps) / time : 0;
  let x = 0;
  const segments = parts.map(([from, to, gap]) => {
    const width = gap ? gapWidth : (to - from) * scale;
    x += width;
    return { from, to, gap, x: x - width, width };
  });
  axis = { segments, scale, from: segments[0].from, to: segments.at(-1).to };
}
function x(time) {
  const segment = axis.segments.find((part) => time <= part.to) ?? axis.segments.at(-1);
  const part = (time - segment.from) / Math.max(1, segment.to - segment.from);
  return segment.x + segment.width * Math.min(1, Math.max(0, part));
}
/** The time at a position in percent. */
function timeAt(position) {
  const segment = axis.segments.find((part) => position <= part.x + part.width) ?? axis.segments.at(-1);
  return segment.from + ((segment.to - segment.from) * Math.max(0, position - segment.x)) / (segment.width || 1);
}
const percent = (value) => `${value.toFixed(2)}%`;

/** Moves a shape to where its times are on the axis. */
function place(shape) {
  const from = Number(shape.dataset.f), to = Number(shape.dataset.t);
  const left = x(from), right = x(to);
  const isShown = to >= axis.from && from <= axis.to && (shape.nodeName !== "text" || right - left >= 2.4);
  shape.setAttribute("display", isShown ? "inline" : "none");
  if (!isShown) return;
  if (shape.nodeName === "line") { shape.setAttribute("x1", percent(left)); shape.setAttribute("x2", percent(right)); return; }
  shape.setAttribute("x", percent(shape.nodeName === "text" ? (left + right) / 2 : left));
  if (shape.nodeName === "rect") shape.setAttribute("width", right - left < 0.5 ? "3" : percent(right - left));
}

function element(name, attributes, text) {
  const made = document.createElementNS(svg, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const S = 1e6;
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500].map((ms) => ms * 1000).concat([1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800].map((s) => s * S));
function duration(micros) {
  const ms = Math.round(micros / 1000), s = Math.floor(ms / 1000);
  if (s < 1) return `${ms} ms`;
  if (s < 60) return ms % 1000 < 100 ? `${s} s` : `${s}.${Math.floor((ms % 1000) / 100)} s`;
  const two = (size, unit, part, small) => `${Math.floor(s / size)} ${unit}${Math.floor((s % size) / part) ? ` ${Math.floor((s % size) / part)} ${small}` : ""}`;
  return s < 3600 ? two(60, "m", 1, "s") : s < 86400 ? two(3600, "h", 60, "m") : two(86400, "d", 3600, "h");
}
const brief = (micros) => { const s = micros / S, [size, unit] = s < 60 ? [1, "s"] : s < 3600 ? [60, "m"] : s < 86400 ? [3600, "h"] : [86400, "d"]; return Math.round(s / size) + unit; };

/** Marks in steps of 1, 2 or 5, which count again after each gap. */
function ticks() {
  const found = [];
  if (!axis.scale) return found;
  const least = 13 / axis.scale, step = STEPS.find((size) => size >= least) ?? Math.ceil(least / (604800 * S)) * 604800 * S;
  let origin, isAfterGap = false, last = -100;
  for (const part of axis.segments) {
    if (part.gap) { origin = undefined; isAfterGap = true; last = part.x + part.width; continue; }
    // A zoomed axis counts from the start of the run.
    origin ??= isAfterGap ? part.from : 0;
    for (let time = Math.ceil((part.from - origin) / step) * step; origin + time <= part.to; time += step) {
      const at = part.x + (origin + time - part.from) * axis.scale;
      if (at - last < 9.75 || (at >= 1 && part.x + part.width - at <= 6)) continue;
      found.push({ at, time, isAfterGap });
      last = at;
    }
  }
  return found;
}

function drawAxis() {
  const box = timeline(), marks = ticks(), gaps = axis.segments.filter((part) => part.gap);
  const now = Number(box.dataset.now ?? NaN);
  const middle = (gap) => percent(gap.x + gap.width / 2);
  box.querySelector(".axis svg").replaceChildren(
    ...marks.map(({ at, time, isAfterGap }) => element("text", { x: percent(at), y: 17, "text-anchor": at >= 1 ? "middle" : undefined }, `${isAfterGap ? "+" : ""}${duration(time)}`)),
    ...gaps.filter((gap) => gap.width >= 5).flatMap((gap) => [element("text", { class: "gap", x: middle(gap), y: 13, "text-anchor": "middle" }, brief(gap.to - gap.from)), element("use", { class: "zigzag", href: "#tl-zigzag", x: middle(gap), y: 21 })]),
  );
  const line = (at, name) => element("line", { class: name, x1: percent(at), x2: percent(at), y1: 0, y2: "100%" });
  box.querySelector(".grid").replaceChildren(
    ...gaps.map((gap) => element("rect", { class: "gap", x: percent(gap.x), width: percent(gap.width), height: "100%" })),
    ...marks.map(({ at }) => line(at, "tick")),
    ...(now >= axis.from && now <= axis.to ? [line(x(now), "now")] : []),
  );
}
function relayout() {
  if (!timeline()) return;
  makeAxis();
  drawAxis();
  for (const shape of timeline().querySelectorAll(".bars [data-f]")) place(shape);
}

// Zoom.
let isDrawing = false;
function setZoom(range) {
  makeAxis();
  if (!axis) return;
  const [begin, end] = [0, Number(timeline().dataset.axis.split(",").at(-1).split(" ")[1])];
  if (range) {
    const length = Math.max(1000, range[1] - range[0]);
    range = length >= end - begin ? undefined : [Math.max(begin, Math.min(range[0], end - length)), 0];
    if (range) range[1] = range[0] + length;
  }
  zoom = range?.map(Math.round);
  const address = new URL(location.href);
  if (zoom) address.searchParams.set("zoom", zoom.join("-"));
  else address.searchParams.delete("zoom");
  history.replaceState(history.state, "", address);
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => { isDrawing = false; relayout(); });
}
function zoomBy(factor, at = 0.5) {
  if (!factor) return setZoom(undefined);
  makeAxis();
  const length = axis.to - axis.from, middle = timeAt(at * 98);
  setZoom([middle - length * factor * at, middle + length * factor * (1 - at)]);
}
const pan = (part) => { makeAxis(); const by = (axis.to - axis.from) * part; if (zoom) setZoom([axis.from + by, axis.to + by]); };

// Long runs: rows are loaded in blocks, and only those near the window are in the document.
let blocks = new Map(), drawn = new Map(), isLong = false, generation = 0;
function node(name, properties, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  made.append(...children.filter((child) => child !== undefined && child !== ""));
  return made;
}
function icon(name) {
  const made = element("svg", { class: "icon", "aria-hidden": "true" });
  made.append(element("use", { href: timeline().dataset.icons + name }));
  return made;
}
function shapeOf([kind, name, from, to, extra, title]) {
  const times = { class: name, "data-f": from, "data-t": to };
  if (kind === "bar") return element("rect", { ...times, y: 14 - extra / 2, height: extra, rx: Math.floor(Math.min(extra, 6) / 2) });
  if (kind === "line") return element("line", { ...times, y1: 14, y2: 14 });
  if (kind === "mark") {
    const mark = element("use", { ...times, href: `#tl-${extra}`, y: 14 });
    if (title) mark.append(element("title", {}, title));
    return mark;
  }
  return element("text", { ...times, y: 18 }, extra);
}
function makeRow(row) {
  const selected = new URL(location.href).searchParams.get("op");
  const isCurrent = row.kind === "run" ? selected === null : row.number !== null && String(row.number) === selected;
  const status = node("span", { class: `s-${row.status}` });
  status.append(icon(row.icon));
  const label = node(row.href ? "a" : "span", { class: "label", href: row.href ?? undefined, "data-row": Boolean(row.href) },
    node("span", { class: "number" }, String(row.number ?? "")), status, node("span", { class: "name", title: row.label }, row.label),
    row.note ? node("span", { class: row.warning ? "tag-note warn" : "tag-note" }, row.note) : undefined, row.href ? node("span", { class: "hidden" }, ` ${row.words}`) : undefined);
  const bars = element("svg", { class: "bars", width: "100%", height: ROW, "aria-hidden": "true" });
  bars.append(...row.shapes.map(shapeOf));
  for (const shape of bars.children) place(shape);
  let expand;
  if (row.expand) {
    expand = node("a", { class: "expand", href: row.expand, "data-row": true, "aria-expanded": String(row.expanded), "aria-label": `${row.expanded ? "Fold" : "Expand"} ${row.label}` });
    expand.append(icon("expand"));
  }
  const took = node("span", { class: "took" }, row.run && row.kind === "operation" ? node("a", { class: "id", href: row.run[0] }, row.run[1]) : row.took);
  return node("li", { id: row.key, class: `row k-${row.kind}${row.skipped ? " skipped" : ""}`, "data-depth": row.depth, "data-status": row.open ? "open" : undefined, "data-failed": row.failed, "aria-current": isCurrent ? "true" : undefined }, expand, label, bars, took);
}
async function load(number) {
  if (blocks.has(number)) return blocks.get(number);
  const box = timeline(), mine = generation;
  const loading = fetch(`${box.dataset.blocks}${box.dataset.blocks.endsWith("?") ? "" : "&"}row=${number * BLOCK}`, { headers: { accept: "application/json" } })
    .then((response) => (response.ok ? response.json() : Promise.reject(response.status)))
    .then((block) => {
      if (mine !== generation) return [];
      box.dataset.total = block.total;
      box.dataset.axis = block.axis;
      if (block.now !== null) box.dataset.now = block.now;
      else delete box.dataset.now;
      return block.rows;
    });
  blocks.set(number, loading);
  loading.catch(() => blocks.delete(number));
  return loading;
}
const rowAt = async (index) => (await load(Math.floor(index / BLOCK)))[index % BLOCK];
async function drawRows() {
  const box = timeline(), rows = list();
  if (!box || !rows) return;
  const mine = generation, total = Number(box.dataset.total);
  const above = Math.floor(-rows.getBoundingClientRect().top / ROW);
  const first = Math.max(0, Math.min(total - 1, above - 20));
  const last = Math.min(total, first + Math.min(DRAWN_MAX, Math.ceil(innerHeight / ROW) + 40));
  const wanted = [];
  for (let index = first; index < last; index += 1) wanted.push(await rowAt(index));
  if (mine !== generation || rows !== list()) return;
  makeAxis();
  const keys = new Set(wanted.filter(Boolean).map((row) => row.key));
  for (const child of [...rows.children]) if (!keys.has(child.id)) child.remove();
  let at = rows.firstElementChild;
  for (const row of wanted.filter(Boolean)) {
    const known = at?.id === row.key ? at : undefined;
    if (known && drawn.get(row.key) === row) { at = at.nextElementSibling; continue; }
    const made = makeRow(row);
    if (known) { at = at.nextElementSibling; morph(known, made); } else rows.insertBefore(made, at);
    drawn.set(row.key, row);
  }
  for (const key of drawn.keys()) if (!keys.has(key)) drawn.delete(key);
  rows.style.paddingTop = `${first * ROW}px`;
  rows.style.paddingBottom = `${(total - first - wanted.length) * ROW}px`;
  box.dataset.drawn = `${first}-${last}`;
}
let isScrolling = false;
addEventListener("scroll", () => {
  if (!isLong || isScrolling) return;
  isScrolling = true;
  requestAnimationFrame(() => { isScrolling = false; drawRows(); });
}, { passive: true });

/** Prepares the timeline that is in the page now. */
function begin() {
  const box = timeline();
  const text = new URL(location.href).searchParams.get("zoom");
  zoom = text?.split("-").map(Number);
  generation += 1;
  blocks = new Map();
  drawn = new Map();
  isLong = Boolean(box) && Number(box.dataset.total) > list().children.length && Number(box.dataset.first) === 0;
  document.getElementById("lines")?.classList.toggle("is-long", isLong);
  if (isLong) drawRows();
}

/** A patch of a long timeline loads the blocks near the window again; others are drawn with the current zoom. */
onPatch("lines", (known, fresh) => {
  if (!isLong) {
    morph(known, fresh);
    if (zoom) relayout();
    return;
  }
  const controls = fresh.querySelector(".controls");
  if (controls) morph(known.querySelector(".controls"), controls);
  generation += 1;
  blocks = new Map();
  drawRows().then(relayout);
});

/** The next row that fits, also if it is not loaded yet. */
async function next(isWanted, selector) {
  if (!isLong) return move(1, (row) => row === document.activeElement || row.parentElement.matches(selector));
  const total = Number(timeline().dataset.total), key = document.activeElement?.closest("li.row")?.id;
  let index = 0;
  while (key && index < total && (await rowAt(index))?.key !== key) index += 1;
  for (index = key && index < total ? index + 1 : 0; index < total; index += 1) {
    const row = await rowAt(index);
    if (!row || !isWanted(row)) continue;
    const top = list().getBoundingClientRect().top + scrollY + index * ROW;
    scrollTo({ top: top - innerHeight / 2 });
    await drawRows();
    return document.getElementById(row.key)?.querySelector("a.label")?.focus({ preventScroll: true });
  }
}

async function open(address, isNew) {
  const target = new URL(address, location.href);
  if (isNew && zoom) target.searchParams.set("zoom", zoom.join("-"));
  const response = await fetch(target, { headers: { accept: "text/html" } });
  if (!response.ok) return location.assign(target);
  const page = parsePage(await response.text());
  const isSameRows = isLong && page.getElementById("timeline")?.dataset.blocks === timeline()?.dataset.blocks;
  for (const id of ["lines", "panel"]) {
    const [known, fresh] = [document.getElementById(id), page.getElementById(id)];
    if (!known || !fresh) return location.assign(target);
    if (id === "panel" || !isSameRows) morph(known, document.adoptNode(fresh));
  }
  if (isNew) history.pushState(null, "", target);
  document.body.dataset.rev = page.body.dataset.rev ?? "";
  const { live } = page.body.dataset;
  if (live) document.body.dataset.live = live;
  else delete document.body.dataset.live;
  if (isSameRows) { drawn = new Map(); drawRows(); } else begin();
  connect();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-row], a[data-linear], a[data-zoom-by], #lines .segmented a, #lines .controls a.quiet");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  if (link.dataset.zoomBy !== undefined) zoomBy(Number(link.dataset.zoomBy));
  else open(link.href, true);
});
addEventListener("popstate", () => open(location.href, false));

/** The position of the pointer on the axis, from 0 to 1. */
function pointAt(event) {
  const box = timeline().querySelector(".axis svg").getBoundingClientRect();
  return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
}
addEventListener("wheel", (event) => {
  if (!event.ctrlKey || !event.target.closest?.("#timeline")) return;
  event.preventDefault();
  zoomBy(event.deltaY > 0 ? 1.25 : 0.8, pointAt(event));
}, { passive: false });
let dragFrom;
document.addEventListener("pointerdown", (event) => { if (!event.button && event.target.closest?.(".axis, .density")) dragFrom = pointAt(event); });
document.addEventListener("pointerup", (event) => {
  if (dragFrom === undefined) return;
  const [from, to] = [dragFrom, pointAt(event)].sort((one, other) => one - other);
  dragFrom = undefined;
  makeAxis();
  if (to - from > 0.01) setZoom([timeAt(from * 100), timeAt(to * 100)]);
});

document.addEventListener("keydown", (event) => {
  if (!areKeysOn(event) || !timeline()) return;
  const isRow = event.target.matches("a.label");
  const { key } = event;
  if (key === "f") next((row) => row.failed, "[data-failed]");
  else if (key === "n") next((row) => row.open, "[data-status=open]");
  else if (key === "i") document.querySelector("[data-linear]")?.click();
  else if (key === "+" || key === "=") zoomBy(0.5);
  else if (key === "-") zoomBy(2);
  else if (key === "0") zoomBy(0);
  else if (key === "ArrowLeft") pan(-0.25);
  else if (key === "ArrowRight") pan(0.25);
  else if (isRow && key === "ArrowDown") { event.preventDefault(); move(1); }
  else if (isRow && key === "ArrowUp") { event.preventDefault(); move(-1); }
  else if (key === "Escape" && new URL(location.href).searchParams.has("op")) {
    const address = new URL(location.href);
    address.searchParams.delete("op");
    open(address, true);
  }
});
begin();
