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

async function failure(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered ${response.status}`;
  }
}

// Calls `hear` with the data of each event, until the stream ends or `signal` aborts it.
async function readEvents(path, options, hear) {
  const response = await fetch(path, options);
  if (!response.ok) throw new Error(await failure(response));
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

async function loadModels() {
  const response = await fetch("v1/models", { headers: headers() });
  if (!response.ok) {
    byId("notice").textContent = await failure(response);
    return;
  }
  byId("notice").textContent = "";
  const models = (await response.json()).data;
  byId("model").replaceChildren(...models.map((each) => element("option", { textContent: each.id })));
}

byId("key").addEventListener("change", loadModels);
