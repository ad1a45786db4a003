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
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
function tick(from = document) {
  const now = Date.now();
  for (const time of $$("time[datetime]", from)) {
    const at = Date.parse(time.dateTime);
    const seconds = (now - at) / 1000;
    if (time.hasAttribute("data-ago")) set(time, seconds < 0 ? `in ${rough(-seconds)}` : `${rough(seconds)} ago`);
    else if (time.hasAttribute("data-since")) set(time, span(Math.max(0, seconds)));
    else if (time.hasAttribute("data-at")) set(time, full.format(at));
    if (time.title && !time.title.includes("\n")) time.title = `${full.format(at)}\n${time.title}`;
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

/** New rows wait behind a button while the list is scrolled or has the focus. */
function patchList(list, html) {
  const fresh = parse(html).firstElementChild;
  const isRead = scrollY > 120 || list.contains(document.activeElement);
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
  button.textContent = `${added.length} new`;
}

function patch(html) {
  const fresh = parse(html).firstElementChild;
  const known = fresh && document.getElementById(fresh.id);
  if (!known || known.querySelector("dialog[open]")) return;
  if (known.hasAttribute("data-list")) patchList(known, html);
  else morph(known, fresh);
  tick(known);
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
  source.addEventListener("trouble", () => lost());
  source.addEventListener("end", () => { source.close(); showState("off", "ended"); });
  source.onopen = () => showState("on", "live");
  source.onerror = lost;
}
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
function lost() {
  if ($("#live")?.dataset.state !== "lost") showState("lost", `not live since ${clock.format(Date.now())}`);
}
document.addEventListener("visibilitychange", connect);
connect();

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
  else if (on("[data-new-rows]") && waiting) {
    const html = waiting;
    waiting = undefined;
    morph($("[data-list]"), parse(html).firstElementChild);
    tick();
    scrollTo({ top: 0 });
  }
  for (const menu of $$("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("animationend", (event) => event.target.classList.remove("changed"));

// Forms: JSON is checked while it is typed; the server checks it again.
document.addEventListener("input", (event) => {
  if (!event.target.matches("[data-json]")) return;
  let message = "";
  try { if (event.target.value.trim()) JSON.parse(event.target.value); } catch (error) { message = error.message; }
  event.target.setCustomValidity(message);
});

// Keys. No key acts on a run.
const keys = $("[data-keys]");
if (keys) {
  keys.checked = localStorage.getItem("outlast-keys") !== "off";
  keys.addEventListener("change", () => localStorage.setItem("outlast-keys", keys.checked ? "on" : "off"));
}
/** Moves the focus to another row. */
export function move(step, isWanted = () => true) {
  const rows = $$("[data-rows] a.label, [data-list] tbody a.id, main tbody tr > td:first-child a").filter(isWanted);
  const at = rows.indexOf(document.activeElement);
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}
let isGoing = false;
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") for (const menu of $$("details.menu[open]")) menu.open = false;
  if (event.ctrlKey || event.metaKey || event.altKey || localStorage.getItem("outlast-keys") === "off") return;
  if (event.target.matches("input, textarea, select") || $("dialog[open]")) return;
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
  else if (tab) tab.click();
});
