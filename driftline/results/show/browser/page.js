"use strict";
// Draws the page and redraws what a choice changes.

let speedView = null;
let tableRows = [];

// ---- speed against final quality

function drawSpeed(rows) {
  const { scale: kind, costTitle, qualityTitle, predicted } = reading();
  const some = rows.filter((row) => measured(row).ends !== undefined);
  const theory = predicted.filter(([index]) => rows.includes(ROWS[index]));
  document.getElementById("predicted").hidden = !theory.length;
  if (!some.length) {
    speedView = null;
    document.getElementById("speed").replaceChildren(html("p", { class: "quiet" }, "No configuration to show."));
    return;
  }
  const view = (speedView = chart(document.getElementById("speed"), {
    height: 380,
    xTitle: `settles at (${costTitle})`,
    yTitle: `ends at: ${qualityTitle}`,
    name: "Speed against final quality",
    x: (from, to) =>
      scale("log", [...some.map((row) => measured(row).settles), ...theory.map(([, settles]) => settles)], from, to),
    y: (from, to) =>
      scale(kind, [...some.map((row) => measured(row).ends), ...theory.map(([, , ends]) => ends)], from, to),
  }));
  for (const label of shownLabels()) {
    const front = some
      .filter((row) => row.label === label && measured(row).pareto)
      .map((row) => [measured(row).settles, measured(row).ends]);
    const corners = stairs(
      front.sort((a, b) => a[0] - b[0]).map(([settles, ends]) => [view.x.at(settles), view.y.at(ends)]),
    );
    view.content.append(svg("path", { class: `curve thin ${LABELS[label].class}`, d: line(corners) }));
  }
  scatter(
    view,
    some,
    (row) => view.x.at(measured(row).settles),
    (row) => view.y.at(measured(row).ends),
  );
  for (const label of shownLabels()) {
    const own = theory
      .filter(([index]) => ROWS[index].label === label)
      .map(([, settles, ends]) => ({ x: view.x.at(settles), y: view.y.at(ends) }));
    view.content.append(svg("path", { class: `rings ${LABELS[label].class}`, d: marks(own, "circle", 7) }));
  }
}

// ---- learning curves

function drawLearning() {
  const host = document.getElementById("learning"),
    { metric, cost, costTitle, qualityTitle, scale: kind } = reading();
  const known = (row) => DATA.curves[row.index]?.[metric];
  const rows = [...recommended()].map((index) => ROWS[index]).filter((row) => known(row) && row !== choice.row);
  if (choice.row && known(choice.row)) rows.push(choice.row);
  if (!rows.length) {
    host.replaceChildren(html("p", { class: "quiet" }, "No learning curve is kept for these configurations."));
    return;
  }
  const columnsOf = (row) => DATA.curves[row.index];
  const view = chart(host, {
    height: 380,
    xTitle: costTitle,
    yTitle: qualityTitle,
    name: "Learning curves",
    x: (from, to) =>
      scale(
        "log",
        rows.flatMap((row) => columnsOf(row)[cost]),
        from,
        to,
        0,
      ),
    y: (from, to) => scale(kind, rows.flatMap(known), from, to),
  });
  for (const row of rows) {
    const curve = columnsOf(row),
      chosen = row === choice.row,
      name = LABELS[row.label].class;
    const place = (values) =>
      curve[cost].map((x, at) => [view.x.at(x), view.y.at(values[at])]).filter(([, y]) => Number.isFinite(y));
    if (curve[`${metric}.low`]) {
      view.content.prepend(
        svg("path", {
          class: `band ${chosen ? "" : "faint "}${name}`,
          d: area(place(curve[`${metric}.low`]), place(curve[`${metric}.high`])),
        }),
      );
    }
    const points = place(curve[metric]);
    view.content.append(
      svg("path", {
        class: `curve ${chosen ? "thick" : "thin"} ${name}`,
        d: line(points),
        "stroke-dasharray": LABELS[row.label].dash || null,
      }),
    );
    curve[metric].forEach((value, at) =>
      view.points.push({
        row,
        x: view.x.at(curve[cost][at]),
        y: view.y.at(value),
        text: () => [`${safe(metric)} ${number(value)} after ${amount(curve[cost][at])}`, ...about(row)],
      }),
    );
    const found = measured(row);
    if (found.settles === undefined) continue;
    const at = curve[cost].findIndex((x) => x >= found.settles);
    if (at >= 0)
      view.content.append(
        svg("path", {
          class: `marks ${name}`,
          d: marks([{ x: view.x.at(curve[cost][at]), y: view.y.at(curve[metric][at]) }], LABELS[row.label].symbol),
        }),
      );
  }
  pointer(view, { pick: (point) => change({ row: point.row }) });
}

// ---- choices

function markInCharts() {
  const row = choice.row;
  for (const view of [...(speedView ? [speedView] : []), ...slices]) {
    const point = row && view.points.find((one) => one.row === row);
    view.overlay.replaceChildren(
      ...(point ? [svg("circle", { class: "chosen", r: 8, cx: px(point.x), cy: px(point.y) })] : []),
    );
  }
  if (parallel) {
    const point = row && parallel.points.find((one) => one.row === row);
    parallel.overlay.replaceChildren(
      ...(point ? [svg("path", { class: `curve thick ${LABELS[row.label].class}`, d: line(point.corners) })] : []),
    );
  }
}

function drawMethods() {
  document.getElementById("methods").replaceChildren(
    ...LABELS.map((label, index) =>
      html(
        "label",
        {},
        html("input", {
          type: "checkbox",
          checked: !choice.hidden.has(index),
          onchange: (event) => {
            const hidden = new Set(choice.hidden);
            if (event.target.checked) hidden.delete(index);
            else hidden.add(index);
            change({ hidden });
          },
        }),
        " ",
        svg(
          "svg",
          { viewBox: "0 0 34 14", "aria-hidden": true },
          svg("path", { class: `curve ${label.class}`, d: "M0,7h34", "stroke-dasharray": label.dash || null }),
          svg("path", { class: `marks ${label.class}`, d: marks([{ x: 17, y: 7 }], label.symbol) }),
        ),
        safe(label.name),
      ),
    ),
  );
}

function drawConfigurations() {
  tableRows = drawTable();
  drawSpeed(tableRows);
  drawParallel(tableRows);
  drawSlices(tableRows);
  drawCorrelations(tableRows);
  markInCharts();
}

function drawAll() {
  for (const part of document.querySelectorAll("[data-reading]"))
    part.hidden = Number(part.dataset.reading) !== choice.reading;
  drawFrontier();
  drawConfigurations();
  drawDetail();
  drawLearning();
  drawEfforts();
}

// Changes what is chosen and redraws what depends on it. The keyboard stays where it was, also where that is drawn anew.
function change(changes) {
  Object.assign(choice, changes);
  const focus = document.activeElement?.dataset?.focus;
  const changed = (...names) => names.some((name) => name in changes);
  if (changed("reading")) choice.budget = null;
  if (changed("filter", "all", "reading")) rowsShown = ROWS_AT_ONCE;
  if (changed("reading", "hidden")) drawAll();
  else {
    if (changed("filter", "all")) drawConfigurations();
    if (changed("sort")) {
      tableRows = drawTable();
      drawParallel(tableRows);
      markInCharts();
    }
    if (changed("budget")) drawBudget();
    if (changed("row")) {
      markSelected();
      markInCharts();
      drawLearning();
    }
    if (changed("row", "copy", "budget")) drawDetail();
  }
  if (focus) document.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus();
  writeChoice();
}

// Takes over what the address says, at the start and when it changes.
function restore() {
  readChoice();
  choice.row ||=
    shownLabels()
      .map((label) => offer(label, reading().last))
      .filter((one) => one?.row)
      .sort(bestFirst)[0]?.row || null; // what to run for the largest budget
  document.getElementById("reading").value = choice.reading;
  document.getElementById("filter").value = choice.filter;
  document.getElementById("all").checked = choice.all;
  drawMethods();
  drawAll();
}

function start() {
  const on = (id, event, action) =>
    document.getElementById(id).addEventListener(event, ({ target }) => action(target));
  if (!ROWS.length && DATA.readings.every(({ frontiers }) => frontiers.every(({ cost }) => !cost.length))) return;
  for (const part of document.querySelectorAll(".needs-script")) part.hidden = false;
  document
    .getElementById("reading")
    .append(
      ...DATA.readings.map(({ metric, cost }, index) =>
        html("option", { value: index }, safe(`${metric} against ${cost.replaceAll("_", " ")}`)),
      ),
    );
  document.getElementById("reading-label").hidden = DATA.readings.length < 2;
  document.getElementById("all-label").hidden = !ONLY_SEARCHED;
  on("reading", "change", (select) => change({ reading: Number(select.value) }));
  on("budget", "input", (slider) =>
    change({ budget: short(reading().first * (reading().last / reading().first) ** (slider.value / 1000)) }),
  );
  on("filter", "input", (field) => change({ filter: field.value }));
  on("all", "change", (box) => change({ all: box.checked }));
  on("more", "click", () => {
    rowsShown += ROWS_AT_ONCE;
    tableRows = drawTable();
  });
  restore();
  window.addEventListener("hashchange", restore);
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) {
      width = window.innerWidth;
      drawAll();
    }
  });
}

start();
