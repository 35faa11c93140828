// Asks for a page's live part again while somebody looks at it, and goes to the search field at "/".
"use strict";

const EVERY_MS = 5000;
const PASSING = [503, 504]; // refusals of an agent that has no place or no time now
let paused = false;
let asking = false;

function held(section) {
  // Whoever has marked text there, or moves through it by keyboard, is not disturbed.
  const marked = getSelection();
  return section.contains(document.activeElement) || (marked && !marked.isCollapsed && section.contains(marked.anchorNode));
}

function old(section, why) {
  let said = document.getElementById("lost");
  if (!said) {
    said = document.createElement("p");
    said.id = "lost";
    said.className = "bad";
    said.setAttribute("role", "status");
    section.prepend(said);
  }
  said.textContent = `${why}; what is shown is old.`;
}

async function refresh() {
  const section = document.getElementById("live");
  if (paused || asking || document.hidden || !section || !("refreshes" in section.dataset) || held(section)) return;
  asking = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Floe-Live": "1" }, cache: "no-store" });
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
    if (!found) throw new Error(`status ${answer.status}`);
    if (PASSING.includes(answer.status)) old(section, found.querySelector("p.bad:not([role])")?.textContent ?? `status ${answer.status}`);
    else if (!held(section)) section.replaceWith(document.adoptNode(found));
  } catch {
    old(section, "The agent does not show this any more");
  } finally {
    asking = false;
  }
}

function offerPause() {
  const button = document.createElement("button");
  button.id = "pause";
  button.textContent = "Pause updates";
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
  });
  document.body.append(button);
}

document.addEventListener("keydown", (event) => {
  const field = document.getElementById("search");
  const writes = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "/" && field && !writes && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    field.focus();
  }
});

if ("refreshes" in (document.getElementById("live")?.dataset ?? {})) {
  offerPause();
  setInterval(refresh, EVERY_MS);
}
