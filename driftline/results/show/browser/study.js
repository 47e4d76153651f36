"use strict";
// The study's data and what the reader has chosen. The choice is kept in the address, so that it can be linked to.

const DATA = JSON.parse(document.getElementById("data").textContent);
const LABELS = DATA.labels;

const ROWS = DATA.rows.map(([label, phase, configuration, seeds, diverged, shape, values], index) => {
  const held = (value) => (Array.isArray(value) ? DATA.lists[value[0]] : value),
    pairs = DATA.shapes[shape].map((name, at) => [name, held(values[at])]),
    inactive = new Set(DATA.inactive[index]);
  return {
    index,
    label,
    phase,
    configuration,
    seeds,
    diverged,
    hyperparameters: Object.fromEntries(pairs),
    active: Object.fromEntries(pairs.filter(([name]) => !inactive.has(name))), // without what changes nothing
    stopped: DATA.stopped[index],
    last: DATA.lasts[index],
    key: `${LABELS[label].name}/${phase}/${configuration}`,
  };
});
const ONLY_SEARCHED = ROWS.some((row) => row.phase === "confirmation") && ROWS.some((row) => row.phase === "search");

const choice = {
  reading: 0,
  budget: null,
  row: null,
  filter: "",
  all: false,
  sort: "",
  down: false,
  copy: "trial",
  hidden: new Set(),
};

function readChoice() {
  const given = new URLSearchParams(location.hash.slice(1));
  choice.reading = DATA.readings[Number(given.get("reading"))] ? Number(given.get("reading")) : 0;
  choice.budget = Number(given.get("budget")) > 0 ? Number(given.get("budget")) : null;
  choice.row = ROWS.find((row) => row.key === given.get("row")) || null;
  choice.filter = given.get("filter") || "";
  choice.all = given.has("all");
  choice.sort = given.get("sort") || "";
  choice.down = given.has("down");
  choice.copy = Object.hasOwn(COPIES, given.get("copy")) ? given.get("copy") : "trial";
  choice.hidden = new Set(given.getAll("hide").map((name) => LABELS.findIndex((label) => label.name === name)));
}

function writeChoice() {
  const given = new URLSearchParams();
  if (choice.reading) given.set("reading", choice.reading);
  if (choice.budget !== null) given.set("budget", choice.budget);
  if (choice.row) given.set("row", choice.row.key);
  if (choice.filter) given.set("filter", choice.filter);
  if (choice.all) given.set("all", "");
  if (choice.sort) given.set("sort", choice.sort);
  if (choice.down) given.set("down", "");
  if (choice.copy !== "trial") given.set("copy", choice.copy);
  for (const label of choice.hidden) if (LABELS[label]) given.append("hide", LABELS[label].name);
  try {
    history.replaceState(null, "", `#${given}`);
  } catch {
    /* an embedded page has no address of its own */
  }
}

const reading = () => DATA.readings[choice.reading];
const shownLabels = () => LABELS.map((_, index) => index).filter((index) => !choice.hidden.has(index));

// What a row says under the chosen quality and cost: settles, ends, whether it is in the Pareto set, and bands.
function measured(row) {
  const [settles, ends, pareto, settlesLow, settlesHigh, endsLow, endsHigh] = reading().values[row.index];
  return { settles, ends, pareto: pareto === 1, settlesLow, settlesHigh, endsLow, endsHigh };
}

function banded(value, low, high) {
  if (low === undefined || low === high) return number(value);
  return `${number(value)} (${number(low, 3)}${Math.min(low, high) < 0 ? " to " : "–"}${number(high, 3)})`;
}

// What to run of a label within a budget: the last recommendation that costs no more, with what to expect; null below
// its first cost.
function offer(label, budget) {
  const frontier = reading().frontiers[label];
  let at = -1;
  while (at + 1 < frontier.cost.length && frontier.cost[at + 1] <= budget) at += 1;
  if (at < 0) return null;
  return {
    label,
    quality: frontier.quality[at],
    low: frontier.low[at],
    high: frontier.high[at],
    row: ROWS[frontier.row[at]] || null,
    round: frontier.round[at],
  };
}

const amount = (value) => `${number(value, 15)} ${value === 1 ? reading().unit.replace(/s$/, "") : reading().unit}`;
const bestFirst = (one, other) => (reading().rising ? -1 : 1) * (one.quality - other.quality);
const recommended = () =>
  new Set(
    shownLabels()
      .flatMap((label) => reading().frontiers[label].row || [])
      .filter((row) => row >= 0),
  );

// A value as tables show it: any other gives the same curve where it changes nothing.
const valueText = (row, name) => (name in row.active ? plain(row.active[name]) : "any");
const valueLines = (row) => Object.keys(row.hyperparameters).map((name) => `${safe(name)}: ${valueText(row, name)}`);

function hyperparametersText(row) {
  return Object.keys(row.hyperparameters)
    .map((name) => `${safe(name)} ${valueText(row, name)}${name === "server_lr" ? stepText(row) : ""}`)
    .join(", ");
}

// server_lr multiplies a sum of gradients; delta_lr = server_lr / client_lr is the step of other frameworks.
function deltaRate(row) {
  const { server_lr: server, client_lr: client, delta_lr: own } = row.active;
  return own === undefined && typeof server === "number" && client > 0 ? server / client : undefined;
}
const stepText = (row) => (deltaRate(row) === undefined ? "" : ` (delta_lr ${plain(deltaRate(row))})`);

// The lines of a tip about a configuration.
function about(row) {
  const found = measured(row);
  const diverged = row.diverged ? `, diverged on ${row.diverged} of ${row.seeds} seeds` : "";
  const stopped = row.stopped ? `, stopped at round ${row.stopped}` : "";
  const lines = [
    `${safe(LABELS[row.label].name)}, configuration ${row.configuration} (${row.phase})${diverged}${stopped}`,
  ];
  if (found.ends !== undefined) {
    lines.push(`settles at ${banded(found.settles, found.settlesLow, found.settlesHigh)} ${reading().unit}`);
    lines.push(`ends at ${safe(reading().metric)} ${banded(found.ends, found.endsLow, found.endsHigh)}`);
  }
  return [...lines, ...valueLines(row)];
}

// ---- copies: a configuration as something to run

// of a trial as a whole, if an entry searches them
const SIZES = ["clients_per_round", "batch_size"];

function filled(row, part) {
  const document = structuredClone(DATA.copies[LABELS[row.label].name][part]);
  const places = part === "trial" ? document : document.methods[0];
  for (const [dotted, value] of Object.entries(row.hyperparameters)) {
    const dot = dotted.indexOf("."),
      kind = dot < 0 ? "" : dotted.slice(0, dot),
      name = dotted.slice(dot + 1);
    const size = part === "trial" && SIZES.includes(dotted);
    const place = size ? places : part === "trial" ? places[kind || "method"] : (kind ? places[kind] : places).space;
    // in a study, lists and mappings are spaces: a choice of one stands for a value
    place[name] = part === "study" && typeof value === "object" && value !== null ? { choice: [value] } : value;
  }
  if (part === "trial") {
    const whole = row.last || document.rounds;
    if (row.last && document.schedule && "rounds" in document.schedule && !("schedule.rounds" in row.hyperparameters))
      document.schedule.rounds = whole; // the rates are those of the whole trial
    document.rounds = stopOf(row) || whole;
  }
  return document;
}

// The round to stop at, if the chosen budget recommends the row.
function stopOf(row) {
  const found = offer(row.label, budget());
  return found && found.row === row ? found.round : null;
}

function yaml(value, indent = "") {
  const key = (name) => (/^[A-Za-z_][\w.-]*$/.test(name) ? name : JSON.stringify(name));
  const flat = (part) =>
    part === null ||
    typeof part !== "object" ||
    !Object.keys(part).length ||
    (Array.isArray(part) && part.every((item) => item === null || typeof item !== "object"));
  const below = (part) => (flat(part) ? ` ${JSON.stringify(part)}\n` : `\n${yaml(part, `${indent}  `)}`);
  if (Array.isArray(value)) {
    return value
      .map((item) =>
        flat(item) ? `${indent}- ${JSON.stringify(item)}\n` : `${indent}- ${yaml(item, `${indent}  `).trimStart()}`,
      )
      .join("");
  }
  return Object.entries(value)
    .map(([name, part]) => `${indent}${key(name)}:${below(part)}`)
    .join("");
}

function python(value, indent = "    ") {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const parts = Array.isArray(value)
    ? value.map((part) => python(part, `${indent}    `))
    : Object.entries(value).map(([name, part]) => `${JSON.stringify(name)}: ${python(part, `${indent}    `)}`);
  const short = open + parts.join(", ") + close;
  if (short.length + indent.length <= 88 && !short.includes("\n")) return short;
  return `${open}\n${parts.map((part) => `${indent}    ${part},\n`).join("")}${indent}${close}`;
}

const COPIES = {
  trial: { title: "trial JSON", text: (row) => `${JSON.stringify(filled(row, "trial"), null, 2)}\n` },
  yaml: { title: "study YAML", text: (row) => yaml(filled(row, "study")) },
  python: {
    title: "Python",
    text: (row) => {
      const keys = Object.entries(filled(row, "study"))
        .map(([name, part]) => `    ${name}=${python(part)},\n`)
        .join("");
      return (
        `from driftline import Client, Study\n\nstudy = Study(\n${keys})\n` +
        "frontier = Client().submit(study).wait(progress=True).frontier()\nprint(frontier.table())\n"
      );
    },
  },
};
