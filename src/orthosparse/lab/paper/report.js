"use strict";
const $ = (id) => document.getElementById(id);

// Filters: what belongs to another model or method is hidden; a table that has nothing left is hidden with it.
function filter() {
  const wanted = { model: $("model").value, method: $("method").value };
  for (const element of document.querySelectorAll("[data-model], [data-method]")) {
    const other = ["model", "method"].some((tag) => wanted[tag] && element.dataset[tag] && !element.dataset[tag].split("|").includes(wanted[tag]));
    element.classList.toggle("off", other);
  }
  const gone = (found) => found.length > 0 && found.every((element) => element.classList.contains("off"));
  for (const box of document.querySelectorAll(".compared")) {
    const columns = [...box.querySelectorAll("thead tr:first-child th[data-model]")];
    box.classList.toggle("off", gone(columns) || gone([...box.querySelectorAll("tbody tr")]));
  }
  for (const figure of document.querySelectorAll("section > .charts > figure")) {
    const curves = [...figure.querySelectorAll("g[data-method]")].filter((curve) => curve.dataset.method);
    if (gone(curves)) figure.classList.add("off");
    else if (!figure.dataset.model) figure.classList.remove("off");
  }
}

const made = (name, attributes, ...children) => {
  const svg = ["svg", "g", "path", "circle", "rect", "text", "title"].includes(name);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

const short = (value) => (typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(5))) : String(value));

function chart(name, { step, y }) {
  const points = y.map((value, index) => [index * step + 1, value]).filter((point) => point[1] !== null);
  if (!points.length) return "";
  const low = Math.min(...points.map((point) => point[1]));
  const high = Math.max(...points.map((point) => point[1]));
  const last = points[points.length - 1][0];
  const px = (x) => 56 + ((x - 1) / Math.max(1, last - 1)) * 370;
  const py = (value) => 220 - (high > low ? (value - low) / (high - low) : 0.5) * 205;
  const svg = made("svg", { viewBox: "0 0 440 260", role: "img", "aria-label": name });
  for (const value of high > low ? [low, (low + high) / 2, high] : [low]) {
    svg.append(made("path", { class: "grid", d: `M56 ${py(value)}H426` }), made("text", { x: 50, y: py(value) + 3.5, "text-anchor": "end" }, String(Number(value.toPrecision(3)))));
  }
  svg.append(made("text", { x: 56, y: 236 }, "1"), made("text", { x: 426, y: 236, "text-anchor": "end" }, String(last)));
  const group = made("g", { style: "--role: var(--eoi)" });
  group.append(made("path", { class: "curve", d: "M" + points.map(([x, value]) => `${px(x).toFixed(1)} ${py(value).toFixed(1)}`).join("L") }));
  for (const [x, value] of points) {
    group.append(made("circle", { class: "hover", cx: px(x), cy: py(value), r: 5 }, made("title", {}, `${x}: ${short(value)}`)));
  }
  svg.append(group);
  return made("figure", {}, made("h3", {}, name.replaceAll("_", " ")), svg);
}

function grid(entries, columns) {
  const rows = Math.ceil(entries.length / columns);
  const d = entries.map((entry, at) => (entry ? `M${at % columns} ${Math.floor(at / columns)}h1v1h-1z` : "")).join("");
  const svg = made("svg", { class: "entries", viewBox: `0 0 ${columns} ${rows}`, role: "img", "aria-label": "mask" });
  svg.append(made("path", { class: "full", d }));
  return made("figure", {}, made("h3", {}, "mask"), svg);
}

// Single runs: a search narrows the list, the chosen one is drawn.
const runs = JSON.parse($("rows").textContent);

function list() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = runs.map((run, index) => [`${run.name} seed ${run.seed}`, index]).filter(([name]) => words.every((word) => name.toLowerCase().includes(word)));
  $("run").replaceChildren(...found.map(([name, index]) => made("option", { value: index }, name)));
  show();
}

function show() {
  const run = runs[$("run").value];
  if ($("run").value === "" || !run) {
    $("shown").replaceChildren(made("p", {}, runs.length ? "No run has these words." : "No runs yet."));
    return;
  }
  const facts = made("dl", {}, ...Object.entries(run.metrics).map(([name, value]) => made("div", {}, made("dt", {}, name.replaceAll("_", " ")), made("dd", {}, short(value)))));
  const charts = made("div", { class: "charts" });
  for (const [name, curve] of Object.entries(run.curves)) {
    const side = run.metrics.columns || (run.metrics.side ? run.metrics.side * run.metrics.side : 0);
    charts.append(name === "mask" && side ? grid(curve.y, side) : chart(name, curve));
  }
  $("shown").replaceChildren(made("p", { class: "state" }, run.about), facts, charts);
}

for (const id of ["model", "method"]) $(id).addEventListener("change", filter);
$("search").addEventListener("input", list);
$("run").addEventListener("change", show);
filter();
list();
