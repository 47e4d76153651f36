"use strict";
// What hyperparameters do: parallel coordinates, slices, and rank correlations. All show the rows of the table.

// Names of the hyperparameters that differ between these rows.
function varied(rows) {
  const values = new Map();
  for (const row of rows) {
    for (const [name, value] of Object.entries(row.active)) {
      if (!values.has(name)) values.set(name, new Set());
      values.get(name).add(value); // equal lists are one
    }
  }
  return [...values.keys()].filter((name) => values.get(name).size > 1).sort();
}

const MOST_LINES = 300;
let parallel = null;

function drawParallel(rows) {
  const host = document.getElementById("parallel"),
    { scale: kind } = reading();
  const some = rows.filter((row) => measured(row).ends !== undefined).slice(0, MOST_LINES),
    names = varied(some);
  if (!some.length || !names.length) {
    host.replaceChildren(html("p", { class: "quiet" }, "Nothing differs between these configurations."));
    parallel = null;
    return;
  }
  const height = 320,
    top = 40,
    bottom = height - 12;
  const axes = names.map((name) => ({ name, value: (row) => row.active[name] }));
  axes.push(
    { name: "settles", value: (row) => measured(row).settles, type: "log" },
    { name: kind === "error" ? "1 − ends" : "ends", value: (row) => measured(row).ends, type: kind },
  );
  const width = Math.max(document.getElementById("speed").clientWidth, axes.length * 105),
    gap = (width - 90) / (axes.length - 1);
  host.style.width = `${width}px`;
  const root = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    role: "group",
    tabindex: 0,
    "aria-label": "Parallel coordinates: arrow keys move between configurations, Enter selects",
  });
  const content = svg("g"),
    overlay = svg("g"),
    front = svg("g");
  axes.forEach((axis, index) => {
    const values = some.map(axis.value);
    axis.x = 45 + index * gap;
    axis.scale = axis.type ? scale(axis.type, values, bottom, top) : valueScale(values, bottom, top);
    front.append(
      svg("line", { class: "grid", x1: axis.x, x2: axis.x, y1: top, y2: bottom }),
      svg("text", { class: "title", x: axis.x, y: index % 2 ? 13 : 28, "text-anchor": "middle" }, safe(axis.name)),
    );
    for (const [value, text] of axis.scale.ticks(6)) {
      front.append(
        svg("text", { class: "halo", x: axis.x - 5, y: axis.scale.at(value) + 4, "text-anchor": "end" }, text),
      );
    }
  });
  const points = some.map((row) => {
    const corners = axes
      .filter((axis) => axis.value(row) !== undefined)
      .map((axis) => [axis.x, axis.scale.at(axis.value(row))]);
    return { row, corners, x: corners.at(-1)[0], y: corners.at(-1)[1], text: () => about(row) };
  });
  for (const point of points) {
    content.append(
      svg("path", {
        class: `curve thin ${points.length > 60 ? "faint " : ""}${LABELS[point.row.label].class}`,
        d: line(point.corners),
      }),
    );
  }
  root.append(content, front, overlay);
  host.replaceChildren(root);
  parallel = { root, overlay, width, height, points };
  pointer(parallel, { reach: 8, distance: fromLine, pick: (point) => change({ row: point.row }) });
}

// Pixels between a pointer and a configuration's line, measured upright.
function fromLine(point, x, y) {
  const after = point.corners.findIndex(([corner]) => corner >= x);
  if (after < 1) return Infinity;
  const [[x0, y0], [x1, y1]] = point.corners.slice(after - 1, after + 1);
  return Math.abs(y - (y0 + ((x - x0) / (x1 - x0)) * (y1 - y0)));
}

let slices = [];

function drawSlices(rows) {
  const host = document.getElementById("slices"),
    { scale: kind, qualityTitle } = reading();
  const some = rows.filter((row) => measured(row).ends !== undefined);
  host.replaceChildren();
  slices = varied(some).map((name) => {
    const cell = html("div", { class: "chart" });
    host.append(cell);
    const having = some.filter((row) => row.active[name] !== undefined);
    const view = chart(cell, {
      height: 190,
      left: 46,
      xTitle: safe(name),
      name: `Final quality by ${safe(name)}`,
      x: (from, to) =>
        valueScale(
          having.map((row) => row.active[name]),
          from,
          to,
        ),
      y: (from, to) =>
        scale(
          kind,
          having.map((row) => measured(row).ends),
          from,
          to,
        ),
    });
    scatter(
      view,
      having,
      (row) => view.x.at(row.active[name]),
      (row) => view.y.at(measured(row).ends),
    );
    return view;
  });
  document.getElementById("slices-quality").textContent = slices.length
    ? `Vertical: ${qualityTitle}, at the end.`
    : "Nothing differs between these configurations.";
}

// Configurations as points: the Pareto set as large markers, the other reported ones as faint ones, those that only the
// search has run as dots.
function scatter(view, rows, x, y) {
  view.points = rows.map((row) => ({ row, x: x(row), y: y(row), text: () => about(row) }));
  const height = (row) => (row.phase === "confirmation") + measured(row).pareto;
  view.points.sort((a, b) => height(a.row) - height(b.row)); // as drawn, the highest last
  for (const label of shownLabels()) {
    const own = view.points.filter((point) => point.row.label === label),
      { symbol, class: name } = LABELS[label];
    const judged = own.filter(({ row }) => row.phase === "confirmation" || !ONLY_SEARCHED);
    const pareto = judged.filter(({ row }) => measured(row).pareto),
      others = judged.filter(({ row }) => !measured(row).pareto);
    const searched = own.filter(({ row }) => row.phase === "search" && ONLY_SEARCHED);
    view.content.prepend(svg("path", { class: `dots ${name}`, d: dots(searched) }));
    view.content.append(
      svg("path", { class: `marks faint ${name}`, d: marks(others, symbol, 4) }),
      svg("path", { class: `marks ${name}`, d: marks(pareto, symbol, 5) }),
    );
  }
  pointer(view, { pick: (point) => change({ row: point.row }) });
}

// ---- rank correlation

function ranks(values) {
  const order = values.map((value, index) => [value, index]).sort((a, b) => a[0] - b[0]),
    found = new Array(values.length);
  for (let start = 0; start < order.length;) {
    let end = start;
    while (end < order.length && order[end][0] === order[start][0]) end += 1;
    for (let at = start; at < end; at += 1) found[order[at][1]] = (start + end - 1) / 2; // equal values share a rank
    start = end;
  }
  return found;
}

// Spearman's: Pearson's correlation of the ranks; null for fewer than three values, or equal ones.
function rankCorrelation(one, other) {
  if (one.length < 3) return null;
  const a = ranks(one),
    b = ranks(other),
    mean = (one.length - 1) / 2;
  let product = 0,
    left = 0,
    right = 0;
  a.forEach((rank, at) => {
    product += (rank - mean) * (b[at] - mean);
    left += (rank - mean) ** 2;
    right += (b[at] - mean) ** 2;
  });
  return left && right ? product / Math.sqrt(left * right) : null;
}

// Over these rows, between a hyperparameter and a result; rows without either are left out.
function correlation(rows, name, result) {
  const some = rows.filter((row) => typeof row.active[name] === "number" && result(row) !== undefined);
  return {
    count: some.length,
    value: rankCorrelation(
      some.map((row) => row.active[name]),
      some.map(result),
    ),
  };
}

function drawCorrelations(rows) {
  const { rising, frontiers } = reading();
  const settles = (row) => measured(row).settles;
  const quality = (row) => ((ends) => (ends === undefined ? ends : rising ? ends : -ends))(measured(row).ends);
  const cell = ({ count, value }) =>
    html("td", { class: "n" }, value === null ? "–" : `${value.toFixed(2)} (of ${count})`);
  const body = html("tbody");
  for (const label of shownLabels()) {
    const own = rows.filter((row) => row.label === label),
      frontier = frontiers[label];
    const from = new Map(); // the cost from which a configuration is first recommended
    (frontier.row || []).forEach((row, at) => {
      if (row >= 0 && !from.has(ROWS[row])) from.set(ROWS[row], frontier.cost[at]);
    });
    const onFrontier = [...from.keys()],
      pareto = ROWS.filter((row) => row.label === label && measured(row).pareto);
    for (const name of varied([...own, ...onFrontier, ...pareto])) {
      body.append(
        html(
          "tr",
          {},
          methodCell(label),
          html("td", {}, safe(name)),
          cell(correlation(onFrontier, name, (row) => from.get(row))),
          cell(correlation(pareto, name, settles)),
          cell(correlation(own, name, settles)),
          cell(correlation(own, name, quality)),
        ),
      );
    }
  }
  const heads = [
    "method",
    "hyperparameter",
    "along the frontier",
    "along the Pareto set",
    "with settling",
    "with quality",
  ];
  document.getElementById("correlations").replaceChildren(headRow(heads, heads.slice(0, 2)), body);
}
