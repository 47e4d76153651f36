"use strict";
// The table of configurations: filtered, sorted, and one of them selected and copied. Its rows are what the views of
// speed and of hyperparameters show.

const ROWS_AT_ONCE = 100;
let rowsShown = ROWS_AT_ONCE;

function columns() {
  const { metric, unit } = reading();
  const names = new Set(
    ROWS.filter((row) => !choice.hidden.has(row.label)).flatMap((row) => Object.keys(row.hyperparameters)),
  );
  return [
    { name: "method", value: (row) => LABELS[row.label].name },
    { name: "configuration", value: (row) => row.configuration },
    { name: "seeds", value: (row) => row.seeds },
    {
      name: "settles",
      title: `settles at (${unit})`,
      value: (row) => measured(row).settles,
      text: (row) => ((found) => banded(found.settles, found.settlesLow, found.settlesHigh))(measured(row)),
    },
    {
      name: "ends",
      title: `ends at ${metric}`,
      value: (row) => measured(row).ends,
      text: (row) => ((found) => banded(found.ends, found.endsLow, found.endsHigh))(measured(row)),
    },
    { name: "use", value: usedFor },
    ...[...names].sort().map((name) => ({
      name,
      value: (row) => (name in row.hyperparameters && !(name in row.active) ? "any" : row.active[name]),
    })),
    ...(ROWS.some((row) => deltaRate(row) !== undefined) ? [{ name: "delta_lr", value: deltaRate }] : []),
  ];
}

// The first cell of a row: a method with its colour.
function methodCell(label, ...content) {
  return html(
    "th",
    { scope: "row" },
    html("span", { class: `dot ${LABELS[label].class}` }),
    ...(content.length ? content : [safe(LABELS[label].name)]),
  );
}

// A head row; columns hold numbers unless they are named in `words`.
function headRow(names, words) {
  return html(
    "thead",
    {},
    html(
      "tr",
      {},
      ...names.map((name) => html("th", { scope: "col", class: words.includes(name) ? null : "n" }, safe(name))),
    ),
  );
}

function usedFor(row) {
  const words = [];
  if (recommendedRows.has(row.index)) words.push("recommended");
  if (measured(row).pareto) words.push("pareto");
  if (row.diverged) words.push(row.diverged < row.seeds ? `diverged on ${row.diverged}` : "diverged");
  if (row.stopped) words.push(`stopped at round ${row.stopped}`);
  if (row.phase === "search" && ONLY_SEARCHED) words.push("search only");
  return words.join(", ");
}
let recommendedRows = new Set();

// A filter is words and comparisons, all of which must hold: pareto client_lr<0.1 local_steps=10.
function filterOf(text, all) {
  const byName = new Map(all.map((column) => [column.name, column]));
  const tests = [],
    unknown = [];
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const [, name, sign, given] = word.match(/^([^<>=]+)(<=|>=|<|>|=)(.+)$/) || [];
    if (!name) {
      tests.push((row) =>
        all.some(
          (column) =>
            typeof column.value(row) === "string" && column.value(row).toLowerCase().includes(word.toLowerCase()),
        ),
      );
    } else if (!byName.has(name)) {
      unknown.push(name);
    } else {
      const { value } = byName.get(name);
      const compared = { "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b };
      tests.push(
        sign === "="
          ? (row) => String(value(row)) === given || (typeof value(row) === "number" && value(row) === Number(given))
          : (row) => typeof value(row) === "number" && compared[sign](value(row), Number(given)),
      );
    }
  }
  return { keeps: (row) => tests.every((test) => test(row)), unknown };
}

// The rows that the filter, the methods and "all" leave, in the order of the table.
function filteredRows(all, filter) {
  const rows = ROWS.filter(
    (row) =>
      !choice.hidden.has(row.label) &&
      (choice.all || !ONLY_SEARCHED || row.phase === "confirmation") &&
      filter.keeps(row),
  );
  const column = all.find((one) => one.name === choice.sort) || all.find((one) => one.name === "ends");
  const turn = (choice.sort ? choice.down : reading().rising) ? -1 : 1;
  const values = new Map(rows.map((row) => [row, column.value(row)]));
  return rows.sort((one, other) => {
    const a = values.get(one),
      b = values.get(other);
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    if (typeof a === "number" && typeof b === "number") return turn * (a - b);
    return turn * String(a).localeCompare(String(b));
  });
}

function drawTable() {
  recommendedRows = recommended();
  const all = columns(),
    filter = filterOf(choice.filter, all),
    rows = filteredRows(all, filter);
  const heads = all.map((column) => {
    const sorted = choice.sort === column.name ? (choice.down ? "descending" : "ascending") : null;
    const click = () => change({ sort: column.name, down: choice.sort === column.name && !choice.down });
    const arrow = { ascending: " ▲", descending: " ▼" }[sorted] || "";
    return html(
      "th",
      { scope: "col", "aria-sort": sorted, class: ["method", "use"].includes(column.name) ? null : "n" },
      html(
        "button",
        { type: "button", "data-focus": `sort ${column.name}`, onclick: click },
        safe(column.title || column.name) + arrow,
      ),
    );
  });
  const body = html("tbody");
  for (const row of rows.slice(0, rowsShown)) {
    const cells = all.slice(1).map((column) => {
      const value = column.value(row);
      const text = value === undefined ? "" : column.text ? column.text(row) : plain(value);
      return html("td", { class: typeof value === "string" ? null : "n" }, text);
    });
    const name = safe(LABELS[row.label].name);
    body.append(
      html(
        "tr",
        { "data-row": row.index, class: row === choice.row ? "selected" : null, onclick: () => change({ row }) },
        methodCell(
          row.label,
          html(
            "button",
            { type: "button", "aria-label": `select ${name}, configuration ${row.configuration}` },
            name,
          ),
        ),
        ...cells,
      ),
    );
  }
  document.getElementById("configurations").replaceChildren(html("thead", {}, html("tr", {}, ...heads)), body);
  const listed = rows.length > rowsShown ? `, the first ${rowsShown} listed` : "";
  const count = `${rows.length} of ${ROWS.length} configurations${listed}`;
  document.getElementById("count").textContent = filter.unknown.length
    ? `no column ${filter.unknown.map(safe).join(", ")}`
    : count;
  document.getElementById("more").hidden = rows.length <= rowsShown;
  return rows;
}

function markSelected() {
  for (const row of document.querySelectorAll("#configurations tr.selected")) row.classList.remove("selected");
  if (choice.row)
    document.querySelector(`#configurations tr[data-row="${choice.row.index}"]`)?.classList.add("selected");
}

function drawDetail() {
  const host = document.getElementById("detail"),
    row = choice.row;
  if (!row) {
    host.replaceChildren(html("p", { class: "quiet" }, "Select a configuration, here or in a chart, to copy it."));
    return;
  }
  const [head, ...facts] = about(row),
    stop = stopOf(row);
  if (stop) facts.push(`recommended for ${amount(budget())}, to stop at round ${stop}`);
  const box = html("div", {}, html("b", {}, head), html("p", {}, facts.join(", ")));
  if (DATA.copies?.[LABELS[row.label].name]) {
    const text = COPIES[choice.copy].text(row),
      pre = html("pre", { tabindex: 0, id: "copied-text" }, text);
    const select = html(
      "select",
      { "aria-label": "Copy as", "data-focus": "copy", onchange: (event) => change({ copy: event.target.value }) },
      ...Object.entries(COPIES).map(([name, { title }]) =>
        html("option", { value: name, selected: name === choice.copy }, title),
      ),
    );
    const button = html("button", { type: "button", onclick: () => copyText(pre, button) }, "Copy");
    box.append(html("p", {}, "Copy as ", select, " ", button), pre);
  }
  host.replaceChildren(box);
}

// Copies the text; where the browser forbids it, the text is selected instead.
async function copyText(pre, button) {
  try {
    await navigator.clipboard.writeText(pre.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(pre);
    button.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl+C";
  }
  setTimeout(() => {
    button.textContent = "Copy";
  }, 2000);
}
