// Keeps #live as the server has it: after each event of the task, and every so many seconds. The server makes the HTML,
// so nothing is made of data here. What a person is writing in stays, as long as the server's part is the same.
"use strict";

const live = document.getElementById("live"), acts = document.getElementById("acts");
const link = document.getElementById("link"), notify = document.getElementById("notify");
// After an answer that was refused, the address is that of the form.
const place = live?.dataset.page ?? location.pathname + location.search;
const FOUND_MS = 8000;
let timer = 0, isRunning = false, isWanted = false, isSending = false, isLost = false;

// Times: as the reader's clock shows them, with the exact one of the server in the title.
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const steps = [[60, "second"], [3600, "minute"], [86400, "hour"], [Infinity, "day"]];
function age(then) {
  const seconds = Math.round((then - Date.now()) / 1000), [, unit] = steps.find(([most]) => Math.abs(seconds) < most);
  const size = { second: 1, minute: 60, hour: 3600, day: 86400 }[unit];
  return new Intl.RelativeTimeFormat(undefined, { style: "short" }).format(Math.trunc(seconds / size), unit);
}
function local(then) {
  const today = then.toDateString() === new Date().toDateString();
  return today ? clock.format(then) : `${day.format(then)}, ${clock.format(then)}`;
}
function showTimes() {
  for (const time of document.querySelectorAll("time[data-as]")) {
    const then = new Date(time.dateTime), words = local(then);
    time.textContent = time.dataset.as === "ago" ? `${words} (${age(then)})` : words;
  }
}

function bare(element) {
  const copy = element.cloneNode(true);
  // What changes by itself is no reason to take a form away that somebody is writing in.
  for (const time of copy.querySelectorAll("time")) time.textContent = "";
  for (const part of [copy, ...copy.querySelectorAll("details[id]")]) part.removeAttribute("open");
  return copy.outerHTML;
}

// A form that was refused has what was typed, which the server shows once: it stays as long as the same is asked.
function isKept(before, child) {
  if (bare(before) === bare(child)) return true;
  return "refused" in before.dataset && before.dataset.call === child.dataset.call && !child.classList.contains("answered");
}

function replace(fresh) {
  const known = new Map([...live.children].filter((child) => child.id).map((child) => [child.id, child]));
  const children = [...fresh.children].map((child) => {
    const before = known.get(child.id);
    return before && isKept(before, child) ? before : child;
  });
  // A card whose request is no longer open stays where it is: else the next one would move under a pointer or a finger.
  const ids = new Set(children.map((child) => child.id));
  for (const child of live.dataset.count ? live.querySelectorAll(":scope > .request, :scope > .entry") : []) {
    if (ids.has(child.id)) continue;
    if (!child.inert) {
      child.inert = true;
      child.classList.add("gone");
      const part = child.querySelector(":scope > summary") ?? child;
      part.appendChild(document.createElement("p")).textContent = "This is answered, or waits no longer.";
    }
    children.splice(children.indexOf(child.previousElementSibling) + 1, 0, child);
  }
  // What has gone is removed first: an element that is moved, even past one of these, loses the focus.
  for (const child of [...live.children]) if (!children.includes(child)) child.remove();
  children.forEach((child, place) => {
    if (live.children[place] !== child) live.insertBefore(child, live.children[place] ?? null);
  });
  showTimes();
}

function say(words, isGood) {
  if (!link) return;
  link.hidden = !words;
  link.className = isGood ? "banner good" : "banner";
  link.textContent = words;
}

function lost() {
  if (!isLost) say("The server does not answer. This page goes on by itself when it is back.", false);
  isLost = true;
}

function found() {
  if (isLost) {
    sessionStorage.setItem("found", String(Date.now())); // the page may be loaded anew at once
    sayFound();
  }
  isLost = false;
}

function sayFound() {
  say("The server answers again, and this page is up to date.", true);
  setTimeout(() => { if (!isLost) say("", true); }, FOUND_MS);
}

async function refresh() {
  if (isRunning) { isWanted = true; return; }
  isRunning = true;
  try {
    const reply = await fetch(place, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(10000) });
    if (reply.status >= 502) { lost(); return; }
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    const fresh = page.getElementById("live");
    if (!reply.ok || !fresh) return;
    found();
    if (isSending) return; // to go elsewhere now would take away the response to a form
    const isOther = (fresh.dataset.events ?? "") !== (live.dataset.events ?? "") || fresh.dataset.poll !== live.dataset.poll;
    // It has ended, or a worker answers again: other buttons. Why an answer was refused is read first.
    if (isOther && !document.querySelector("[role=alert]")) {
      location.assign(place);
      return;
    }
    document.title = page.title;
    tell(Number(live.dataset.count ?? 0), Number(fresh.dataset.count ?? 0));
    if (fresh.dataset.count) live.dataset.count = fresh.dataset.count;
    replace(fresh);
    if (isOther) acts?.replaceWith(page.getElementById("acts") ?? "");
  } catch {
    lost();
  } finally {
    isRunning = false;
    if (isWanted) { isWanted = false; soon(); }
  }
}

function soon() {
  if (!timer) timer = setTimeout(() => { timer = 0; refresh(); }, 300);
}

// Notifications of the browser: off until a person turns them on, and only by the inbox.
function isOn() {
  return "Notification" in window && Notification.permission === "granted" && localStorage.getItem("notify") === "on";
}
function tell(before, now) {
  if (notify && now > before && document.hidden && isOn()) {
    new Notification("Replan", { body: now === 1 ? "1 request waits for a person" : `${now} requests wait for a person`, tag: "inbox" });
  }
}
function label() {
  notify.hidden = !("Notification" in window) || Notification.permission === "denied";
  notify.textContent = isOn() ? "Stop notifying me" : "Notify me in this browser";
  notify.setAttribute("aria-pressed", String(isOn()));
}
if (notify) {
  label();
  notify.addEventListener("click", async () => {
    const wanted = !isOn();
    if (wanted) await Notification.requestPermission();
    localStorage.setItem("notify", wanted ? "on" : "off");
    label();
  });
}

// What follows "#" reaches no server: the address that the form is sent to keeps it for the page after the sign-in.
const signIn = document.querySelector("form[action='/login']");
if (signIn) signIn.action += location.hash;
addEventListener("submit", () => { isSending = true; });
addEventListener("pageshow", (event) => { if (event.persisted) { isSending = false; soon(); } });

// What a model says while it replies: shown as text only, bounded, and gone when the reply is over.
const MAX_SAID = 8000, replies = new Map(), said = document.getElementById("words");
function hear(words) {
  if (!said) return;
  let reply = replies.get(words.activity);
  if (reply && (words.over || reply.id !== words.reply)) { reply.element.remove(); replies.delete(words.activity); reply = null; }
  if (!words.over) {
    if (!reply) {
      reply = { id: words.reply, element: said.appendChild(document.createElement("p")) };
      reply.element.className = "line said-now";
      reply.element.dir = "auto";
      replies.set(words.activity, reply);
    }
    const shown = words.text.replace(/[\p{Cc}\p{Cf}]/gu, (sign) => "\n\t".includes(sign) ? sign : "");
    reply.element.textContent = (reply.element.textContent + shown).slice(-MAX_SAID);
  }
  said.hidden = !replies.size;
}

// A stream that the server refuses is closed by the browser for good: it is opened again.
function listen() {
  const events = new EventSource(live.dataset.events);
  const names = ["task", "plan", "step", "fault", "failover", "wait", "pause", "request", "endorsement", "answer",
    "compaction", "rejection", "worker", "workflow_task", "busy", "thinking", "working"];
  for (const name of names) events.addEventListener(name, soon);
  events.addEventListener("open", () => { // whoever connects again gets them from their start
    for (const reply of replies.values()) reply.element.remove();
    replies.clear();
    if (said) said.hidden = true;
  });
  events.addEventListener("words", (event) => hear(JSON.parse(event.data)));
  events.addEventListener("end", () => { events.close(); soon(); });
  events.addEventListener("error", (event) => {
    if (event.data) { events.close(); soon(); return; }
    soon();
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  });
}
if (live?.dataset.events) listen();
if (live?.dataset.poll) {
  setInterval(() => { if (!document.hidden || isOn()) refresh(); }, 1000 * Number(live.dataset.poll));
  // While the server is away, the page looks more often.
  setInterval(() => { if (isLost) refresh(); }, 2000);
}
if (Date.now() - Number(sessionStorage.getItem("found")) < FOUND_MS) sayFound();
showTimes();
setInterval(showTimes, 15000);
