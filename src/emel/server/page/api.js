// What both views share: elements by id, requests with the key, events of a stream, tabs and theme.
"use strict";

const byId = (id) => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function headers() {
  const key = byId("key").value;
  return key ? { authorization: `Bearer ${key}` } : {};
}

const counted = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

async function failure(response) {
  const told = await response.json().catch(() => null);
  const error = new Error(told?.error?.message ?? `the server answered ${response.status}`);
  return Object.assign(error, { status: response.status });
}

let afterKey = null; // what waits for a key

// Whether the error was the want of a key: then the field for it is shown, and `goOn` called once one is entered.
function asksForKey(error, goOn) {
  if (error.status !== 401) return false;
  const field = byId("key");
  byId("notice").textContent = field.value
    ? "This is not a key of this server: enter this server's key below."
    : "An API key is needed: enter this server's key below.";
  afterKey = goOn;
  show("chat");
  byId("settings").open = true;
  field.focus();
  field.select();
  return true;
}

// Calls `hear` with the data of each event, until the stream ends or `signal` aborts it.
async function readEvents(path, options, hear) {
  const response = await fetch(path, options);
  if (!response.ok) throw await failure(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      const line = event.split("\n").find((each) => each.startsWith("data: "));
      if (line && line !== "data: [DONE]") hear(JSON.parse(line.slice(6)));
    }
  }
}

const tabs = ["chat", "wave"];

function show(name) {
  for (const each of tabs) {
    byId(each).hidden = each !== name;
    byId(`tab-${each}`).setAttribute("aria-selected", each === name);
    byId(`tab-${each}`).tabIndex = each === name ? 0 : -1;
  }
  document.dispatchEvent(new CustomEvent("shown", { detail: name }));
}

for (const [index, name] of tabs.entries()) {
  const tab = byId(`tab-${name}`);
  tab.addEventListener("click", () => show(name));
  tab.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    const other = tabs[(index + 1) % tabs.length];
    show(other);
    byId(`tab-${other}`).focus();
  });
}

byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = isDark ? "light" : "dark";
});

// Whether the server told its models.
async function loadModels() {
  const response = await fetch("v1/models", { headers: headers() });
  if (!response.ok) {
    const error = await failure(response);
    if (!asksForKey(error, afterKey)) byId("notice").textContent = error.message;
    return false;
  }
  byId("notice").textContent = "";
  const models = (await response.json()).data;
  byId("model").replaceChildren(...models.map((each) => element("option", { textContent: each.id })));
  return true;
}

byId("key").addEventListener("change", async () => {
  if (!(await loadModels())) return;
  const goOn = afterKey ?? (() => byId("text").focus());
  afterKey = null;
  goOn();
});
