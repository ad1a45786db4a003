// The timeline: a row opens in the panel without leaving the page.
import { connect, morph, move, parsePage } from "./page.js";

async function open(address, isNew) {
  const response = await fetch(address, { headers: { accept: "text/html" } });
  if (!response.ok) return location.assign(address);
  const page = parsePage(await response.text());
  for (const id of ["lines", "panel"]) {
    const [known, fresh] = [document.getElementById(id), page.getElementById(id)];
    if (!known || !fresh) return location.assign(address);
    morph(known, document.adoptNode(fresh));
  }
  if (isNew) history.pushState(null, "", address);
  const { live } = page.body.dataset;
  if (live) document.body.dataset.live = live;
  else delete document.body.dataset.live;
  connect();
}

document.addEventListener("click", (event) => {
  const row = event.target.closest?.("a[data-row], a[data-linear]");
  if (!row || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  open(row.href, true);
});
addEventListener("popstate", () => open(location.href, false));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || localStorage.getItem("outlast-keys") === "off") return;
  if (event.target.matches("input, textarea, select") || document.querySelector("dialog[open]")) return;
  const isRow = event.target.matches("a.label");
  if (event.key === "f") move(1, (row) => row === document.activeElement || row.parentElement.hasAttribute("data-failed"));
  else if (event.key === "n") move(1, (row) => row === document.activeElement || row.parentElement.dataset.status === "open");
  else if (event.key === "i") document.querySelector("[data-linear]")?.click();
  else if (isRow && event.key === "ArrowDown") { event.preventDefault(); move(1); }
  else if (isRow && event.key === "ArrowUp") { event.preventDefault(); move(-1); }
});
