// Charts as SVG and bars. Colors come from style.css, by class.

import { h, svg } from "./dom.js";

// A bar of parts {value, tone, label} of a whole. label: for screen readers.
export function bar(parts, whole, label) {
  const element = h("div", { class: "bar", role: "img", "aria-label": label });
  for (const part of parts) {
    if (!(part.value > 0) || !(whole > 0)) continue;
    const piece = h("span", { class: part.tone, title: part.label });
    piece.style.width = `${Math.min(100, (100 * part.value) / whole)}%`;
    element.append(piece);
  }
  return element;
}

export function legend(parts) {
  return h("ul", { class: "legend" }, ...parts.map((part) =>
    h("li", {}, h("span", { class: `swatch ${part.tone}` }), part.label)));
}

// A line with filled area for points {at (ms), value} of the last spanMs; gaps are not bridged.
export function lineChart(points, spanMs, now, most, label) {
  const width = 600;
  const height = 120;
  const x = (at) => width - ((now - at) / spanMs) * width;
  const y = (value) => height - 2 - (value / most) * (height - 8);
  const runs = [[]];
  for (const point of points) {
    if (point.value === null) runs.push([]);
    else runs.at(-1).push(`${x(point.at).toFixed(1)},${y(point.value).toFixed(1)}`);
  }
  const lines = [];
  for (const run of runs.filter((list) => list.length > 1)) {
    const first = run[0].split(",")[0];
    const last = run.at(-1).split(",")[0];
    lines.push(
      svg("polygon", { class: "area",
        points: `${first},${height} ${run.join(" ")} ${last},${height}` }),
      svg("polyline", { class: "line", points: run.join(" ") }));
  }
  const grid = [0.25, 0.5, 0.75].map((part) =>
    svg("line", { class: "grid", x1: 0, x2: width, y1: y(part * most), y2: y(part * most) }));
  return svg("svg", { class: "line-chart", viewBox: `0 0 ${width} ${height}`, role: "img",
    preserveAspectRatio: "none", "aria-label": label }, ...grid, ...lines);
}

const microseconds = (value) =>
  value >= 1e6 ? `${value / 1e6} s` : value >= 1000 ? `${value / 1000} ms` : `${value} µs`;

// counts[i]: values up to bounds[i]; the last count: values above the last bound.
export function histogram(bounds, counts) {
  const all = counts.reduce((sum, value) => sum + value, 0);
  let begin = counts.findIndex((value) => value > 0);
  let end = counts.length - 1;
  while (end > 0 && !(counts[end] > 0)) --end;
  begin = Math.max(0, begin - 1);
  end = Math.min(counts.length - 1, end + 1);
  const most = Math.max(...counts);
  const columns = [];
  for (let i = begin; i <= end; ++i) {
    const last = i >= bounds.length;
    const bound = microseconds(bounds[Math.min(i, bounds.length - 1)]);
    const share = (100 * counts[i]) / all;
    const block = h("span", { class: "block" });
    block.style.height = `${(100 * counts[i]) / most}%`;
    columns.push(h("li", { title: `${last ? "above" : "up to"} ${bound}: ${share.toFixed(1)} %` },
      h("span", { class: "column" }, block), h("span", { class: "label" }, last ? "more" : bound)));
  }
  return h("ol", { class: "histogram", "aria-label": "Synchronization times" }, ...columns);
}

const BOX_W = 140;
const BOX_H = 54;
const GAP_Y = 22;
const GAP_X = 56;
const PAD = 12;
const HEAD = 24;

const isUp = ({ state }) => state === undefined || state === "up";

const short = (text, letters) =>
  text.length > letters ? `${text.slice(0, letters - 1)}…` : text;

function rankBox(rank, x, y) {
  const up = isUp(rank);
  return svg("g", { class: up ? "rank" : `rank ${rank.state}` },
    svg("title", {}, `rank ${rank.rank} on ${rank.host ?? "?"}: ${rank.share ?? ""}`),
    svg("rect", { x, y, width: BOX_W, height: BOX_H, rx: 6 }),
    svg("text", { x: x + 10, y: y + 22, class: "strong" },
      `rank ${rank.rank}${up || rank.state === "unknown" ? "" : ` · ${rank.state}`}`),
    svg("text", { x: x + 10, y: y + 41 }, short(rank.host ?? "", 16)));
}

// Layout of the ranks: one column per stage, with its tensor ranks below each other.
export function layoutPicture(ranks, transport) {
  const stages = new Map();
  for (const rank of ranks) {
    const stage = rank.stage ?? 0;
    if (!stages.has(stage)) stages.set(stage, []);
    stages.get(stage).push(rank);
  }
  const columns = [...stages.entries()].sort((a, b) => a[0] - b[0]);
  const rows = Math.max(...columns.map(([, list]) => list.length));
  const columnW = BOX_W + 2 * PAD;
  const columnH = HEAD + rows * BOX_H + (rows - 1) * GAP_Y + PAD;
  const width = columns.length * columnW + (columns.length - 1) * GAP_X;
  const parts = [];
  columns.forEach(([stage, list], column) => {
    const x = column * (columnW + GAP_X) + 1;
    parts.push(svg("rect", { class: "stage", x, y: 1, width: columnW, height: columnH, rx: 9 }));
    parts.push(svg("text", { class: "dim", x: x + PAD, y: 18 },
      columns.length > 1 ? `stage ${stage}` : "all layers"));
    list.sort((a, b) => a.rank - b.rank).forEach((rank, row) => {
      const y = HEAD + row * (BOX_H + GAP_Y) + 1;
      if (row > 0) {
        const middle = x + columnW / 2;
        const whole = isUp(rank) && isUp(list[row - 1]);
        parts.push(svg("line", { class: whole ? "link" : "link broken", x1: middle, x2: middle,
          y1: y - GAP_Y, y2: y }));
        if (whole) parts.push(svg("text", { class: "dim", x: middle + 6, y: y - 6 }, transport));
      }
      parts.push(rankBox(rank, x + PAD, y));
    });
    if (column === 0) return;
    const y = 1 + columnH / 2;
    parts.push(svg("path", { class: "link", d: `M${x - GAP_X} ${y}H${x - 3}m-7 -5l7 5l-7 5` }));
    parts.push(svg("text", { class: "dim middle", x: x - GAP_X / 2, y: y - 8 }, transport));
  });
  return svg("svg", { class: "layout", width: width + 2, height: columnH + 2, role: "img",
    viewBox: `0 0 ${width + 2} ${columnH + 2}`,
    "aria-label": `${ranks.length} ranks in ${columns.length} stages` }, ...parts);
}
