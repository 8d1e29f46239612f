"use strict";
const $ = (id) => document.getElementById(id);
const SVG = ["svg", "g", "path", "circle", "text", "title"];
const made = (name, attributes, ...children) => {
  const element = SVG.includes(name) ? document.createElementNS("http:" + "//www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

// Hovering: the nearest point of a chart says its series, axes and values beside the pointer.
const tip = made("div", { class: "tip", hidden: "" });
document.body.append(tip);
document.addEventListener("pointermove", (event) => {
  const chart = event.target.closest?.("figure svg");
  let near = null, least = 40 ** 2;
  for (const point of chart ? chart.querySelectorAll("g:not(.off) > circle.hover") : []) {
    const box = point.getBoundingClientRect();
    const gap = (box.x + box.width / 2 - event.clientX) ** 2 + (box.y + box.height / 2 - event.clientY) ** 2;
    if (gap < least) [near, least] = [point, gap];
  }
  document.querySelector("circle.near")?.classList.remove("near");
  tip.hidden = !near;
  if (!near) return;
  near.classList.add("near");
  tip.textContent = near.querySelector("title").textContent;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${event.clientY + 18}px`;
});

// Filters: what belongs to another model or method is hidden; a table or figure that has nothing left is hidden with it.
function filter() {
  const wanted = { model: $("model").value, method: $("method").value };
  for (const element of document.querySelectorAll("[data-model], [data-method]")) {
    const other = ["model", "method"].some((tag) => wanted[tag] && element.dataset[tag] && !element.dataset[tag].split("|").includes(wanted[tag]));
    element.classList.toggle("off", other);
  }
  const gone = (found) => found.length > 0 && found.every((element) => element.classList.contains("off"));
  for (const box of document.querySelectorAll(".table")) box.classList.toggle("off", gone([...box.querySelectorAll("th[data-model]")]) || gone([...box.querySelectorAll("tbody tr")]));
  for (const figure of document.querySelectorAll("section:not(#runs) figure")) {
    const left = gone([...figure.querySelectorAll("g[data-method]:not([data-method=''])")]);
    if (left || !figure.dataset.model) figure.classList.toggle("off", left);
  }
}

// Single runs: a search narrows the list, the chosen one is drawn.
const short = (value) => (typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(5))) : String(value));

function chart(name, { step, y }) {
  const points = y.map((value, index) => [index * step + 1, value]).filter((point) => point[1] !== null);
  if (!points.length) return "";
  const [low, high] = [Math.min, Math.max].map((extreme) => extreme(...points.map((point) => point[1])));
  const last = points[points.length - 1][0];
  const px = (x) => 56 + ((x - 1) / Math.max(1, last - 1)) * 370;
  const py = (value) => 220 - (high > low ? (value - low) / (high - low) : 0.5) * 205;
  const text = (x, y, anchor, words) => made("text", { x, y, "text-anchor": anchor }, words);
  const levels = high > low ? [low, (low + high) / 2, high] : [low];
  const frame = levels.flatMap((value) => [made("path", { class: "grid", d: `M56 ${py(value)}H426` }), text(50, py(value) + 3.5, "end", String(Number(value.toPrecision(3))))]);
  const path = made("path", { class: "curve", d: "M" + points.map(([x, value]) => `${px(x).toFixed(1)} ${py(value).toFixed(1)}`).join("L") });
  const label = name.replaceAll("_", " ");
  const dots = points.map(([x, value]) => made("circle", { class: "hover", cx: px(x), cy: py(value), r: 6 }, made("title", {}, `${x}: ${label} ${short(value)}`)));
  const curve = made("g", { style: "--role: var(--eoi)" }, path, ...dots);
  return made("figure", {}, made("h3", {}, label), made("svg", { viewBox: "0 0 440 240", role: "img", "aria-label": label }, ...frame, text(56, 236, "start", "1"), text(426, 236, "end", String(last)), curve));
}

function grid(entries, columns) {
  const d = entries.map((entry, at) => (entry ? `M${at % columns} ${Math.floor(at / columns)}h1v1h-1z` : "")).join("");
  const box = `0 0 ${columns} ${Math.ceil(entries.length / columns)}`;
  return made("figure", {}, made("h3", {}, "mask"), made("svg", { viewBox: box, role: "img", "aria-label": "mask" }, made("path", { class: "entries", d })));
}

function list(runs) {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = runs.map((run, index) => [`${run.name} seed ${run.seed}`, index]).filter(([name]) => words.every((word) => name.toLowerCase().includes(word)));
  $("run").replaceChildren(...found.map(([name, index]) => made("option", { value: index }, name)));
  show(runs);
}

function show(runs) {
  const run = $("run").value === "" ? null : runs[$("run").value];
  if (!run) return $("shown").replaceChildren(made("p", {}, runs.length ? "No run has these words." : "No runs yet."));
  const facts = made("dl", {}, ...Object.entries(run.metrics).map(([name, value]) => made("div", {}, made("dt", {}, name.replaceAll("_", " ")), made("dd", {}, short(value)))));
  const side = run.metrics.columns || (run.metrics.side ? run.metrics.side * run.metrics.side : 0);
  const charts = Object.entries(run.curves).map(([name, curve]) => (name === "mask" && side ? grid(curve.y, side) : chart(name, curve)));
  $("shown").replaceChildren(made("p", { class: "small" }, run.about), facts, made("div", { class: "charts" }, ...charts));
}

if ($("model")) for (const id of ["model", "method"]) $(id).addEventListener("change", filter);
if ($("rows")) {
  const runs = JSON.parse($("rows").textContent);
  $("search").addEventListener("input", () => list(runs));
  $("run").addEventListener("change", () => show(runs));
  list(runs);
}
