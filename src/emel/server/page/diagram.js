// A state machine as a picture: states in layers by their distance from the initial one, a row of the table an edge.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 150, HEIGHT = 34, ACROSS = 70, DOWN = 64;

function svg(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function layersOf(machine) {
  const depth = new Map([[machine.initial, 0]]);
  const reached = [machine.initial];
  for (const state of reached) {
    for (const row of machine.rows) {
      if (row.source === state && !depth.has(row.destination)) {
        depth.set(row.destination, depth.get(state) + 1);
        reached.push(row.destination);
      }
    }
  }
  const layers = [];
  for (const state of machine.states) (layers[depth.get(state) ?? 0] ??= []).push(state);
  return layers.filter(Boolean);
}

function placesOf(layers) {
  const widest = Math.max(...layers.map((layer) => layer.length));
  const places = new Map();
  layers.forEach((layer, y) => {
    const left = ((widest - layer.length) * (WIDTH + ACROSS)) / 2;
    layer.forEach((state, x) => places.set(state, { x: 20 + left + x * (WIDTH + ACROSS), y: 20 + y * (HEIGHT + DOWN) }));
  });
  return { places, width: 40 + widest * (WIDTH + ACROSS), height: 40 + layers.length * (HEIGHT + DOWN) };
}

function edgePath(from, to) {
  const a = { x: from.x + WIDTH / 2, y: from.y + HEIGHT }, b = { x: to.x + WIDTH / 2, y: to.y };
  if (from === to) {
    const right = from.x + WIDTH, y = from.y + HEIGHT / 2;
    return `M ${right} ${y - 8} C ${right + 36} ${y - 24}, ${right + 36} ${y + 24}, ${right} ${y + 8}`;
  }
  if (to.y > from.y) return `M ${a.x} ${a.y} C ${a.x} ${a.y + DOWN / 2}, ${b.x} ${b.y - DOWN / 2}, ${b.x} ${b.y}`;
  const side = from.x + (to.x >= from.x ? WIDTH : 0), bend = to.x >= from.x ? 60 : -60;
  const end = to.x + (to.x >= from.x ? WIDTH : 0);
  return `M ${side} ${from.y + HEIGHT / 2} C ${side + bend} ${from.y}, ${end + bend} ${to.y + HEIGHT}, ${end} ${to.y + HEIGHT / 2}`;
}

function labelOf(row) {
  return [row.event, row.guard && `[${row.guard}]`, row.effect && `/ ${row.effect}`].filter(Boolean).join(" ");
}

function drawMachine(machine, into) {
  const { places, width, height } = placesOf(layersOf(machine));
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": machine.name });
  const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" });
  arrow.append(svg("path", { d: "M 0 0 L 8 4 L 0 8 z", fill: "currentColor" }));
  const definitions = svg("defs", {});
  definitions.append(arrow);
  picture.append(definitions);
  const pairs = new Map();
  for (const row of machine.rows) {
    const pair = `${row.source} ${row.destination}`;
    pairs.set(pair, [...(pairs.get(pair) || []), row]);
  }
  for (const rows of pairs.values()) {
    const edge = svg("path", {
      class: "edge", d: edgePath(places.get(rows[0].source), places.get(rows[0].destination)), "marker-end": "url(#arrow)",
    });
    edge.append(svg("title", {}, rows.map(labelOf).join("\n")));
    picture.append(edge);
  }
  for (const [state, { x, y }] of places) {
    const group = svg("g", { class: "state", "data-state": state });
    group.classList.toggle("initial", state === machine.initial);
    group.classList.toggle("terminal", machine.terminal.includes(state));
    group.append(svg("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 8 }));
    group.append(svg("text", { x: x + WIDTH / 2, y: y + HEIGHT / 2 + 4, "text-anchor": "middle" }, state));
    picture.append(group);
  }
  into.replaceChildren(picture);
}

function light(into, states) {
  for (const each of into.querySelectorAll(".state")) each.classList.toggle("lit", states.has(each.dataset.state));
}
