"use strict";
// Quality against tuning effort: the area that a method's search reaches after some trials, with its interval.

function drawEfforts() {
  const { efforts, cost } = reading();
  const labels = shownLabels().filter((label) => efforts[label].length);
  document.getElementById("efforts-section").hidden = !efforts.some((rows) => rows.length);
  if (!labels.length) {
    document.getElementById("efforts").replaceChildren(html("p", { class: "quiet" }, "No method to show."));
    return;
  }
  const all = labels.flatMap((label) => efforts[label]);
  const view = chart(document.getElementById("efforts"), {
    height: 300,
    xTitle: "trials of a search",
    yTitle: `area over log10 ${safe(cost.replaceAll("_", " "))}`,
    name: "Quality against tuning effort",
    x: (from, to) => {
      const counts = [...new Set(all.map(([trials]) => trials))];
      return { ...scale("log", counts, from, to), ticks: () => counts.map((trials) => [trials, String(trials)]) };
    },
    y: (from, to) =>
      scale(
        "linear",
        all.flatMap(([, area, low, high]) => [area, low, high]),
        from,
        to,
      ),
  });
  for (const label of labels) {
    const { class: name, symbol, dash } = LABELS[label],
      rows = efforts[label];
    const place = (column) => rows.map((row) => [view.x.at(row[0]), view.y.at(row[column])]);
    view.content.prepend(svg("path", { class: `band ${name}`, d: area(place(2), place(3)) }));
    const points = rows.map(([trials, mean, low, high]) => ({
      x: view.x.at(trials),
      y: view.y.at(mean),
      text: () => [
        safe(LABELS[label].name),
        `area ${mean.toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)}) after ${trials} ${trials === 1 ? "trial" : "trials"}`,
      ],
    }));
    view.content.append(
      svg("path", { class: `curve ${name}`, d: line(place(1)), "stroke-dasharray": dash || null }),
      svg("path", { class: `marks ${name}`, d: marks(points, symbol) }),
    );
    view.points.push(...points);
  }
  pointer(view, {});
}
