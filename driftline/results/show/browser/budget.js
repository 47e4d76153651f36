"use strict";
// Best quality within a budget: the frontiers, and what to run for the chosen budget.

let frontierView = null;

function drawFrontier() {
  const { scale: kind, first, last, frontiers, ends, theory, costTitle, qualityTitle, metric, unit } = reading();
  const labels = shownLabels();
  const qualities = labels.flatMap((label) => [
    ...["quality", "low", "high"].flatMap((name) => frontiers[label][name] || []),
    ...theory[label].map(([, quality]) => quality),
  ]);
  const view = (frontierView = chart(document.getElementById("frontier"), {
    height: 420,
    xTitle: costTitle,
    yTitle: qualityTitle,
    name: "Best quality within a budget",
    x: (from, to) => scale("log", [first, Math.max(last, Number.isInteger(first) ? first + 1 : first * 1.1)], from, to, 0),
    y: (from, to) => scale(kind, qualities, from, to),
  }));
  const place = (costs, values) => stairs(costs.map((cost, at) => [view.x.at(cost), view.y.at(values[at])]));
  for (const label of labels) {
    const { cost, quality, low, high, row, round } = frontiers[label];
    const { class: name, symbol, dash } = LABELS[label];
    if (!cost.length) continue;
    view.content.prepend(svg("path", { class: `band ${name}`, d: area(place(cost, low), place(cost, high)) }));
    view.content.append(
      svg("path", { class: `curve ${name}`, d: line(place(cost, quality)), "stroke-dasharray": dash || null }),
    );
    const predicted = theory[label];
    if (predicted.length) {
      view.content.append(
        svg("path", {
          class: `curve dotted ${name}`,
          d: line(
            place(
              predicted.map(([x]) => x),
              predicted.map(([, y]) => y),
            ),
          ),
        }),
      );
    }
    const given = (at) => banded(quality[at], low[at], high[at]);
    const changes = cost.map((_, at) => at).filter((at) => row[at] >= 0 && (!at || row[at] !== row[at - 1]));
    const points = changes.map((at, index) => {
      const closing = (changes[index + 1] === undefined ? cost.length : changes[index + 1]) - 1;
      return {
        x: view.x.at(cost[at]),
        y: view.y.at(quality[at]),
        row: ROWS[row[at]],
        budget: cost[at],
        text: () => [
          `${safe(LABELS[label].name)}, configuration ${ROWS[row[at]].configuration}: ` +
            `from ${number(cost[at], 15)} to ${ends[label].find(([start]) => start === cost[at])[1]} ${unit}`,
          `gives ${safe(metric)} ${given(at)}${closing > at ? `, later ${given(closing)}` : ""}`,
          `stop at round ${round[at] === round[closing] ? round[at] : `${round[at]} to ${round[closing]}`}`,
          ...valueLines(ROWS[row[at]]),
        ],
      };
    });
    view.content.append(svg("path", { class: `marks ${name}`, d: marks(points, symbol) }));
    view.points.push(...points);
  }
  pointer(view, {
    reach: 14,
    pick: (point) => change({ row: point.row, budget: point.budget }),
    pickNothing: (x) => change({ budget: short(view.x.value(Math.max(view.left, Math.min(x, view.width - 14)))) }),
  });
  drawBudget();
}

// The budget as chosen, within the costs of the reading.
function budget() {
  const { first, last } = reading();
  return Math.max(first, Math.min(choice.budget ?? last, last));
}

// A cost to four digits, whole where costs are counted: what is printed is what is answered.
function short(cost) {
  const rounded = Number(cost.toPrecision(4));
  return reading().whole ? Math.round(rounded) : rounded;
}

// In how many seeds and searches the best offer is better than the others, as the table of `driftline frontier --at` says.
function betterThan(best, offers, budget) {
  const texts = [];
  let least = Infinity;
  for (const { label, row } of offers) {
    const first = Math.min(label, best.label),
      found = row && label !== best.label ? reading().wins[`${first},${Math.max(label, best.label)}`] : null;
    if (!found) continue;
    const counts = found.rows.filter(([cost]) => cost <= budget).at(-1) || found.rows[0];
    const of = first === best.label ? 0 : 1,
      [seeds, searches] = found.of;
    const among = searches === 1 ? "of one search" : `and ${counts[3 + of]} of ${searches} searches`;
    const equal = seeds - counts[1] - counts[2],
      both = searches === 1 ? equal : `${equal} and ${searches - counts[3] - counts[4]}`;
    texts.push(
      `better than ${safe(LABELS[label].name)} in ${counts[1 + of]} of ${seeds} seeds ${among}` +
        (equal ? `, equal in ${both}` : ""),
    );
    least = Math.min(least, searches);
  }
  if (!texts.length) return "";
  const few = least === 1 ? "One search does" : `${least} searches do`;
  const undecided = least < 6 ? ` ${few} not decide which method is better (needs 6).` : "";
  return ` B${texts.join(", ").slice(1)}.${undecided}`;
}

function drawBudget() {
  const { first, last, metric } = reading(),
    chosen = budget(),
    slider = document.getElementById("budget");
  const text = amount(chosen);
  slider.value = last > first ? Math.round((1000 * Math.log(chosen / first)) / Math.log(last / first)) : 1000;
  slider.setAttribute("aria-valuetext", text);
  document.getElementById("budget-text").textContent = text;
  const at = px(frontierView.x.at(chosen));
  frontierView.overlay.replaceChildren(
    svg("line", { class: "rule", x1: at, x2: at, y1: 12, y2: frontierView.bottom }),
  );
  const offers = shownLabels()
    .map((label) => offer(label, chosen))
    .filter(Boolean)
    .sort(bestFirst);
  for (const one of offers) {
    frontierView.overlay.append(
      svg("circle", { class: "chosen", r: 5, cx: at, cy: px(frontierView.y.at(one.quality)) }),
    );
  }
  const best = offers.find((one) => one.row);
  const better = best ? betterThan(best, offers, chosen) : "";
  document.getElementById("advice").textContent = best
    ? `For up to ${text}: ${safe(LABELS[best.label].name)}, configuration ${best.row.configuration}, ` +
      `stopped at round ${best.round}; expect ${safe(metric)} ${banded(best.quality, best.low, best.high)}.${better}`
    : `Nothing to recommend for ${text}.`;
  document
    .getElementById("choices")
    .replaceChildren(
      headRow(["method", metric, "stop at round", "configuration", "run"], ["method", "run"]),
      html(
        "tbody",
        {},
        ...offers.map((one) =>
          html(
            "tr",
            {},
            methodCell(one.label),
            html("td", { class: "n" }, banded(one.quality, one.low, one.high)),
            html("td", { class: "n" }, one.round ? String(one.round) : "–"),
            html(
              "td",
              { class: "n" },
              one.row
                ? html(
                    "button",
                    { type: "button", onclick: () => change({ row: one.row }) },
                    String(one.row.configuration),
                  )
                : "–",
            ),
            html(
              "td",
              { class: "run" },
              one.row
                ? hyperparametersText(one.row)
                : one.round
                  ? "a configuration that diverged later on every seed"
                  : "nothing pays yet: the untrained model",
            ),
          ),
        ),
      ),
    );
}
