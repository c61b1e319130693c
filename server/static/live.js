// Keeps #live as the server has it: after each event of the task, or every so many seconds. The server makes the HTML,
// so nothing is made of data here. What a person is writing in stays, as long as the server's part is the same.
"use strict";

const live = document.getElementById("live"), acts = document.getElementById("acts");
// After an answer that was refused, the address is that of the form.
const place = live?.dataset.page ?? location.pathname + location.search;
let timer = 0, isRunning = false, isWanted = false, isSending = false;

function same(before, after) {
  const copy = before.cloneNode(true);
  const parts = new Map([...after.querySelectorAll("details[id]")].map((part) => [part.id, part]));
  for (const part of copy.querySelectorAll("details[id]")) {
    if (!parts.get(part.id)?.hasAttribute("open")) part.removeAttribute("open");
  }
  // The age of a request changes; it is no reason to take a form away that somebody is writing in.
  const bare = (element) => element.outerHTML.replace(/open for \d+[smhd]/g, "");
  return bare(copy) === bare(after);
}

function replace(fresh) {
  const known = new Map([...live.children].filter((child) => child.id).map((child) => [child.id, child]));
  const children = [...fresh.children].map((child) => {
    const before = known.get(child.id);
    return before && same(before, child) ? before : child;
  });
  // What has gone is removed first: an element that is moved, even past one of these, loses the focus.
  for (const child of [...live.children]) if (!children.includes(child)) child.remove();
  children.forEach((child, place) => {
    if (live.children[place] !== child) live.insertBefore(child, live.children[place] ?? null);
  });
}

async function refresh() {
  if (isRunning) { isWanted = true; return; }
  isRunning = true;
  try {
    const reply = await fetch(place, { headers: { accept: "text/html" } });
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    const fresh = page.getElementById("live");
    if (!reply.ok || !fresh) return;
    if (isSending) return; // to go elsewhere now would take away the response to a form
    const isOther = (fresh.dataset.events ?? "") !== (live.dataset.events ?? "") || fresh.dataset.poll !== live.dataset.poll;
    // It has ended, or a worker answers again: other buttons. Why an answer was refused is read first.
    if (isOther && !document.querySelector("[role=alert]")) {
      location.assign(place);
      return;
    }
    replace(fresh);
    if (isOther) acts?.replaceWith(page.getElementById("acts") ?? "");
  } catch {
    // The server does not answer: the next event, or the next time, tells.
  } finally {
    isRunning = false;
    if (isWanted) { isWanted = false; soon(); }
  }
}

function soon() {
  if (!timer) timer = setTimeout(() => { timer = 0; refresh(); }, 300);
}

// What follows "#" reaches no server: the address that the form is sent to keeps it for the page after the sign-in.
const signIn = document.querySelector("form[action='/login']");
if (signIn) signIn.action += location.hash;
addEventListener("submit", () => { isSending = true; });
if (live?.dataset.events) {
  const events = new EventSource(live.dataset.events);
  const names = ["task", "plan", "step", "fault", "failover", "wait", "pause", "request", "answer", "compaction",
    "rejection", "worker", "workflow_task", "busy", "thinking", "working"];
  for (const name of names) events.addEventListener(name, soon);
  events.addEventListener("end", () => { events.close(); soon(); });
  events.addEventListener("error", (event) => { if (event.data) { events.close(); soon(); } });
}
if (live?.dataset.poll) {
  setInterval(() => { if (!document.hidden) refresh(); }, 1000 * Number(live.dataset.poll));
}
