// The wave as it goes: lanes and blocks, and the states of any machine.
"use strict";

let machines = [];
let watching = null; // AbortController of the live events
let following = null; // and of the transitions

function drawWave(waves) {
  const wave = waves[byId("model").value] || Object.values(waves)[0];
  if (!wave) return;
  byId("wave-figures").textContent =
    `${wave.lanes.length} of ${wave.n_lanes} lanes · ${wave.waiting.length} waiting · ${counted(wave.n_steps, "step")}, ` +
    `the last computed ${counted(wave.n_tokens_of_last_step, "token")}`;
  const share = (100 * wave.n_blocks_in_use) / Math.max(1, wave.n_blocks);
  const bar = element("div");
  bar.style.width = `${share}%`;
  byId("blocks").replaceChildren(bar);
  byId("blocks").title = `${wave.n_blocks_in_use} of ${wave.n_blocks} blocks`;
  byId("lanes").tBodies[0].replaceChildren(
    ...wave.lanes.map((lane, index) => laneRow(lane, index)), ...wave.waiting.map((lane) => laneRow(lane, "–")),
  );
  const machine = machines.find((each) => each.name === byId("machine").value);
  if (machine?.name === "GeneratorMachine" && !byId("follow").checked) {
    light(byId("diagram"), new Set([...wave.lanes, ...wave.waiting].map((lane) => lane.state.toUpperCase())));
  }
}

function laneRow(lane, index) {
  const total = lane.n_prompt + lane.n_tokens;
  const meter = element("meter", { min: 0, max: Math.max(1, total), value: lane.n_computed, textContent: `${lane.n_computed} of ${total}` });
  const cells = [index, lane.request_id, lane.state, lane.n_prompt, lane.n_computed, lane.n_tokens];
  const row = element("tr", {}, ...cells.map((each) => element("td", { textContent: each })));
  row.append(element("td", {}, meter));
  return row;
}

function chooseMachine() {
  const machine = machines.find((each) => each.name === byId("machine").value);
  if (!machine) return;
  const parts = machine.summary.split("`");  // every other one is code
  byId("doc").replaceChildren(...parts.map((each, index) => (index % 2 ? element("code", { textContent: each }) : each)));
  drawMachine(machine, byId("diagram"));
}

function hearTransitions(transitions) {
  const name = byId("machine").value;
  const own = transitions.filter((each) => each.machine === name);
  if (!own.length) return;
  light(byId("diagram"), new Set([own.at(-1).destination]));
  const told = own.slice(-20).reverse().map((each) => element("li", {
    textContent: `${each.source} ${each.event}${each.guard ? ` [${each.guard}]` : ""} → ${each.destination} ${(each.duration_ns / 1000).toFixed(1)} µs`,
  }));
  const steps = byId("steps");
  steps.prepend(...told);
  while (steps.children.length > 60) steps.lastChild.remove();
}

function follow() {
  following?.abort();
  following = null;
  if (!byId("follow").checked) return;
  following = new AbortController();
  readEvents("trace", { headers: headers(), signal: following.signal }, (event) => hearTransitions(event.transitions))
    .catch((error) => {
      if (error.name === "AbortError") return;
      byId("follow").checked = false;
      if (!asksForKey(error, () => show("wave"))) byId("doc").textContent = error.message;
    });
}

async function watch() {
  if (watching) return;
  watching = new AbortController();
  try {
    if (!machines.length) {
      const response = await fetch("machines", { headers: headers() });
      if (!response.ok) throw await failure(response);
      machines = await response.json();
      byId("machine").replaceChildren(...machines.map((each) => element("option", { textContent: each.name })));
      byId("machine").value = "GeneratorMachine";
      chooseMachine();
    }
    await readEvents("live", { headers: headers(), signal: watching.signal }, drawWave);
  } catch (error) {
    const goOn = () => show("wave");
    if (error.name !== "AbortError" && !asksForKey(error, goOn)) byId("doc").textContent = error.message;
  } finally {
    watching = null;
  }
}

byId("machine").addEventListener("change", chooseMachine);
byId("follow").addEventListener("change", follow);
document.addEventListener("shown", (event) => {
  if (event.detail === "wave") watch();
  else {
    watching?.abort();
    byId("follow").checked = false;
    follow();
  }
});
