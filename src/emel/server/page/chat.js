// The chat: a conversation that streams, stops, is edited and tried again.
"use strict";

const numbers = ["temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed", "max_tokens"];
let conversation = []; // {role, content, reasoning}
let running = null; // AbortController of the answer that comes

function settings() {
  const given = {};
  for (const name of numbers) if (byId(name).value !== "") given[name] = Number(byId(name).value);
  return given;
}

// Text with its fenced blocks as code; never as HTML.
function withCode(text) {
  return text.split(/^```/m).map((part, index) => {
    if (index % 2 === 0) return document.createTextNode(part);
    return element("pre", {}, element("code", { textContent: part.replace(/^[^\n]*\n/, "") }));
  });
}

function drawMessage(message, index) {
  const edit = element("button", { type: "button", textContent: "Edit", ariaLabel: `Edit message ${index + 1}` });
  edit.addEventListener("click", () => editFrom(index));
  const role = element("div", { className: "role quiet" }, element("span", { textContent: message.role }));
  if (message.role === "user") role.append(edit);
  const body = element("div", { className: "body" }, ...withCode(message.content));
  const parts = [role];
  if (message.reasoning) parts.push(element("div", { className: "reasoning", textContent: message.reasoning }));
  return element("article", { className: `message ${message.role}` }, ...parts, body);
}

function draw() {
  byId("log").replaceChildren(...conversation.map(drawMessage));
  byId("retry").disabled = running !== null || !conversation.some((each) => each.role === "assistant");
  byId("stop").disabled = running === null;
  byId("send").disabled = running !== null;
}

function drawLast() {
  const log = byId("log");
  const drawn = drawMessage(conversation.at(-1), conversation.length - 1);
  if (log.children.length === conversation.length) log.lastChild.replaceWith(drawn);
  else log.append(drawn);
  if (innerHeight + scrollY > document.body.scrollHeight - 200) drawn.scrollIntoView({ block: "end" });
}

// Takes a message of the user back into the field, with all that came after it.
function editFrom(index) {
  if (running) return;
  byId("text").value = conversation[index].content;
  conversation = conversation.slice(0, index);
  draw();
  byId("text").focus();
}

function hear(answer, told, event) {
  if (event.error) throw new Error(event.error.message);
  const choice = event.choices[0];
  if (choice) {
    answer.content += choice.delta.content || "";
    answer.reasoning += choice.delta.reasoning_content || "";
    for (const call of choice.delta.tool_calls || []) answer.content += `${call.function.name}(${call.function.arguments})`;
    if (choice.delta.content || choice.delta.reasoning_content) told.first ??= performance.now();
  }
  if (event.timings) {
    const { ttft_ms, predicted_n, predicted_per_second, cache_n } = event.timings;
    byId("figures").textContent =
      `first token ${Math.round(ttft_ms)} ms · ${counted(predicted_n, "token")} · ${predicted_per_second.toFixed(1)} tokens/s · ` +
      `${counted(cache_n, "prompt token")} reused · seed ${event.generation_settings.seed}`;
  }
  drawLast();
}

async function answerNow() {
  const system = byId("system").value.trim();
  const messages = [...(system ? [{ role: "system", content: system }] : []), ...conversation];
  const answer = { role: "assistant", content: "", reasoning: "" };
  const told = {};
  let failed = null;
  conversation.push(answer);
  running = new AbortController();
  byId("notice").textContent = "";
  draw();
  try {
    const body = {
      model: byId("model").value || undefined,
      messages: messages.map(({ role, content }) => ({ role, content })),
      stream: true,
      ...settings(),
    };
    const options = { method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal };
    await readEvents("v1/chat/completions", options, (event) => hear(answer, told, event));
  } catch (error) {
    if (!answer.content && !answer.reasoning) conversation.pop();
    failed = error.name === "AbortError" ? null : error;
  }
  running = null;
  draw();
  if (failed && asksForKey(failed, retry)) return;
  if (failed) byId("notice").textContent = failed.message;
  byId("text").focus();
}

function send() {
  const text = byId("text").value.trim();
  if (!text || running) return;
  conversation.push({ role: "user", content: text });
  byId("text").value = "";
  answerNow();
}

function retry() {
  if (running) return;
  while (conversation.length && conversation.at(-1).role === "assistant") conversation.pop();
  if (conversation.length) answerNow();
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running) running.abort();
});
byId("stop").addEventListener("click", () => running?.abort());
byId("retry").addEventListener("click", retry);
byId("clear").addEventListener("click", () => {
  running?.abort();
  conversation = [];
  byId("figures").textContent = "";
  draw();
});

// What a request will ask for, beside the heading: the fields are folded away, and one of them begins with a value.
function drawSettings() {
  const given = Object.entries(settings()).map(([name, value]) => `${name} ${value}`);
  byId("given").textContent = given.join(" · ") || "the server's own values";
}

byId("settings").addEventListener("input", drawSettings);
byId("defaults").addEventListener("click", () => {
  for (const name of numbers) byId(name).value = "";
  drawSettings();
});

drawSettings();
byId("text").focus();
loadModels();
