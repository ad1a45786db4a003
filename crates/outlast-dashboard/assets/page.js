// What every page has: live updates, local times, theme, copy, keys. All handlers are delegated from the document, so
// that a patch cannot remove them.
const root = document.documentElement;
root.classList.add("has-js");
const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

// The only place that turns text into elements.
const policy = globalThis.trustedTypes?.createPolicy("outlast", { createHTML: (html) => html });
const trusted = (html) => (policy ? policy.createHTML(html) : html);

/** The elements of a patch. */
export function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = trusted(html);
  return template.content;
}

/** The document of a page. */
export const parsePage = (html) => new DOMParser().parseFromString(trusted(html), "text/html");

/** Makes an element equal to another one, and keeps focus, scroll positions, open details and typed text. */
export function morph(from, to) {
  if (from.nodeName !== to.nodeName) return from.replaceWith(to);
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  const isChanged = from.dataset?.status !== undefined && from.dataset.status !== to.dataset.status;
  for (const { name, value } of [...to.attributes]) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && !(name === "open" && from.nodeName === "DETAILS")) from.removeAttribute(name);
  }
  if (isChanged) from.classList.add("changed");
  if (from === document.activeElement && /INPUT|TEXTAREA|SELECT/.test(from.nodeName)) return;
  const byId = new Map([...from.children].filter((child) => child.id).map((child) => [child.id, child]));
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const known = wanted.id && byId.get(wanted.id);
    if (known) {
      if (known === at) at = at.nextSibling;
      else from.insertBefore(known, at);
      morph(known, wanted);
    } else if (at && !at.id && !wanted.id && at.nodeName === wanted.nodeName) {
      const next = at.nextSibling;
      morph(at, wanted);
      at = next;
    } else from.insertBefore(wanted, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// Times. The server sends its own, and scripts keep them current in the browser's zone.
const units = [[86400, "d", "h", 3600], [3600, "h", "m", 60], [60, "m", "s", 1]];
function span(seconds) {
  for (const [size, unit, smaller, part] of units) {
    if (seconds < size) continue;
    const rest = Math.floor((seconds % size) / part);
    return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${smaller}` : ""}`;
  }
  return `${Math.floor(seconds)} s`;
}
const rough = (s) => (s < 60 ? `${Math.floor(s)} s` : s < 3600 ? `${Math.floor(s / 60)} min` : s < 86400 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`);
const set = (element, text) => { if (element.textContent !== text) element.textContent = text; };
// How times are shown is a choice of the browser: relative, local or utc.
const times = localStorage.getItem("outlast-times") ?? "relative";
const zone = times === "utc" ? { timeZone: "UTC" } : {};
const format = (options) => new Intl.DateTimeFormat(undefined, { ...zone, ...options });
const full = format({ dateStyle: "medium", timeStyle: "medium" });
const withOffset = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const timeOfDay = format({ timeStyle: "medium" });
const dayAndTime = format({ month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
const day = format({ dateStyle: "short" });
const short = (at, now) => (day.format(at) === day.format(now) ? timeOfDay : dayAndTime).format(at);
const relative = (s) => (Math.abs(s) < 1 ? "now" : s < 0 ? `in ${rough(-s)}` : `${rough(s)} ago`);
function tick(from = document) {
  const now = Date.now();
  for (const time of $$("time[datetime]", from)) {
    const at = Date.parse(time.dateTime);
    const seconds = (now - at) / 1000;
    if (time.hasAttribute("data-ago")) set(time, times === "relative" ? relative(seconds) : short(at, now));
    else if (time.hasAttribute("data-since")) set(time, span(Math.max(0, seconds)));
    else if (time.hasAttribute("data-at")) set(time, full.format(at));
    else if (time.hasAttribute("data-short")) set(time, short(at, now));
    // The title has all three: local with its offset, UTC from the server, and relative.
    if (!time.title) continue;
    const title = `${withOffset.format(at)}\n${time.title.split("\n").at(-2) ?? time.title}\n${relative(seconds)}`;
    if (time.title !== title) time.title = title;
  }
}
tick();
setInterval(tick, 1000);

let toastTimer;
function toast(text) {
  const box = $("#toast");
  box.textContent = text;
  box.classList.add("on");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => box.classList.remove("on"), 6000);
}

// Live updates.
let source, waiting;
const isPaused = () => localStorage.getItem("outlast-live") === "off";
function showState(state, word) {
  const button = $("#live");
  if (!button) return;
  button.dataset.state = state;
  button.setAttribute("aria-pressed", String(state === "off"));
  $(".word", button).textContent = word;
}

/** New rows wait behind a button while the list is scrolled, has the focus or a selection. */
function patchList(list, html) {
  const fresh = parse(html).firstElementChild;
  const isRead = scrollY > 120 || list.contains(document.activeElement) || Boolean($("input[name=run]:checked", list));
  const added = $$("tr[id]", fresh).filter((row) => !document.getElementById(row.id));
  if (!isRead || !added.length || !$("tbody", list)) {
    waiting = undefined;
    return morph(list, fresh);
  }
  for (const row of $$("tr[id]", fresh)) {
    const known = document.getElementById(row.id);
    if (known) morph(known, row);
  }
  waiting = html;
  let button = $(".new-rows", list);
  if (!button) {
    button = document.createElement("button");
    button.className = "button new-rows";
    button.dataset.newRows = "";
    list.prepend(button);
  }
  button.type = "button";
  button.textContent = `${added.length} new`;
}

const patchers = {};
/** Lets a module decide what a patch of an element does. */
export const onPatch = (id, patcher) => { patchers[id] = patcher; };
function patch(html) {
  const fresh = parse(html).firstElementChild;
  const known = fresh && document.getElementById(fresh.id);
  if (!known || known.querySelector("dialog[open]")) return;
  if (patchers[known.id]) patchers[known.id](known, fresh);
  else if (known.hasAttribute("data-list")) patchList(known, html);
  else morph(known, fresh);
  tick(known);
  showSelection();
}

/** Opens the stream of the page, unless it is paused or hidden. */
export function connect() {
  source?.close();
  source = undefined;
  const address = document.body.dataset.live;
  if (!address) return;
  if (isPaused()) return showState("off", "paused");
  if (document.hidden) return;
  source = new EventSource(address);
  source.addEventListener("patch", (event) => { showState("on", "live"); patch(JSON.parse(event.data)); });
  source.addEventListener("rev", (event) => { showState("on", "live"); document.body.dataset.rev = JSON.parse(event.data); });
  source.addEventListener("trouble", () => lost());
  source.addEventListener("end", () => { source.close(); showState("ended", "ended"); });
  source.addEventListener("bye", () => { source.close(); lost(); location.reload(); });
  source.onopen = () => showState("on", "live");
  source.onerror = () => {
    lost();
    // A refused stream is not opened again by the browser.
    if (source?.readyState !== EventSource.CLOSED) return;
    // An expired session leads to the login; then the page does, too.
    fetch(location.href, { redirect: "manual" }).then((response) => (response.type === "opaqueredirect" ? location.reload() : setTimeout(connect, 2000)), () => setTimeout(connect, 2000));
  };
}
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
function lost() {
  if (["lost", "ended"].includes($("#live")?.dataset.state)) return;
  showState("lost", `not live since ${clock.format(Date.now())}`);
}
document.addEventListener("visibilitychange", connect);
connect();

// Selection of rows, for actions on several runs.
function showSelection() {
  const bar = $("#selection");
  if (!bar) return;
  const boxes = $$("input[name=run]"), count = boxes.filter((box) => box.checked).length;
  for (const box of boxes) box.closest("tr").setAttribute("aria-selected", String(box.checked));
  bar.hidden = !count;
  $("[data-count]", bar).textContent = `${count} selected`;
  const all = $("[data-all]");
  if (all) { all.checked = count > 0 && count === boxes.length; all.indeterminate = count > 0 && count < boxes.length; }
}
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-all]")) for (const box of $$("input[name=run]")) box.checked = event.target.checked;
  showSelection();
});
showSelection();

// Theme.
function switchTheme() {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  const path = root.dataset.base.replace(/\/$/, "") || "/";
  document.cookie = `outlast_theme=${root.dataset.theme}; Path=${path}; Max-Age=31536000; SameSite=Strict`;
}

function toggleLive() {
  localStorage.setItem("outlast-live", isPaused() ? "on" : "off");
  connect();
}

document.addEventListener("click", (event) => {
  const on = (selector) => event.target.closest?.(selector);
  const copied = on("[data-copy]");
  if (copied) navigator.clipboard.writeText(copied.dataset.copy).then(() => toast("Copied"), () => toast("The browser does not allow copying"));
  else if (on("[data-theme-toggle]")) switchTheme();
  else if (on("[data-live-toggle]")) toggleLive();
  else if (on("[data-help]")) $("#help").showModal();
  else if (on("[data-clear]")) for (const box of $$("input[name=run]:checked")) box.checked = false;
  else if (on("[data-new-rows]") && waiting) {
    const html = waiting;
    waiting = undefined;
    morph($("[data-list]"), parse(html).firstElementChild);
    tick();
    scrollTo({ top: 0 });
  }
  for (const menu of $$("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  showSelection();
});
document.addEventListener("animationend", (event) => event.target.classList.remove("changed"));

// Forms: JSON is checked while it is typed; the server checks it again.
document.addEventListener("input", (event) => {
  if (!event.target.matches("[data-json]")) return;
  let message = "";
  try { if (event.target.value.trim()) JSON.parse(event.target.value); } catch (error) { message = error.message; }
  event.target.setCustomValidity(message);
  const hint = document.getElementById(event.target.getAttribute("aria-describedby"))?.querySelector("[data-json-state]");
  if (hint) hint.textContent = message ? `Not JSON yet: ${message}` : "";
});
document.addEventListener("change", (event) => { if (event.target.matches("[data-reload]")) event.target.form.requestSubmit($("[data-reload-button]", event.target.form)); });
// A form is sent once, however often its button is pressed.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "1";
  for (const button of $$("button", form)) button.setAttribute("aria-busy", "true");
});
addEventListener("pageshow", () => { for (const form of $$("form[data-sent]")) { delete form.dataset.sent; for (const button of $$("button", form)) button.removeAttribute("aria-busy"); } });

// Keys. No key acts on a run.
const choice = $("[data-times]");
if (choice) {
  choice.value = times;
  choice.addEventListener("change", () => { localStorage.setItem("outlast-times", choice.value); location.reload(); });
}
const keys = $("[data-keys]");
if (keys) {
  keys.checked = localStorage.getItem("outlast-keys") !== "off";
  keys.addEventListener("change", () => localStorage.setItem("outlast-keys", keys.checked ? "on" : "off"));
}
/** Moves the focus to another row. */
export function move(step, isWanted = () => true) {
  const rows = $$("[data-rows] a.label, [data-list] tbody a.id, main tbody tr > td:first-child a").filter(isWanted);
  const at = rows.indexOf($("a.id, a.label", document.activeElement?.closest("tr, li.row") ?? document.createElement("i")) ?? document.activeElement);
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}
/** Whether a key is a shortcut, and not typed into a field. */
export const areKeysOn = (event) => !(event.ctrlKey || event.metaKey || event.altKey || localStorage.getItem("outlast-keys") === "off"
  || event.target.matches("input:not([type=checkbox]), textarea, select") || $("dialog[open]"));
let isGoing = false;
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") for (const menu of $$("details.menu[open]")) menu.open = false;
  if (!areKeysOn(event)) return;
  const { key } = event;
  if (isGoing) {
    isGoing = false;
    $$("[data-go]").find((link) => link.dataset.go === key)?.click();
    return;
  }
  const tab = $(`[data-tab="${CSS.escape(key)}"]`);
  if (key === "/") { event.preventDefault(); $("[data-search]").focus(); }
  else if (key === "?") $("#help").showModal();
  else if (key === "g") isGoing = true;
  else if (key === "j") move(1);
  else if (key === "k") move(-1);
  else if (key === "p" && $("#live")) toggleLive();
  else if (key === "t") switchTheme();
  else if (key === "c") $("[data-run-id] + [data-copy]")?.click();
  else if (key === "x") {
    const box = $("input[name=run]", document.activeElement?.closest("tr") ?? document.createElement("i"));
    if (box) { box.checked = !box.checked; showSelection(); }
  }
  else if (tab) tab.click();
});
