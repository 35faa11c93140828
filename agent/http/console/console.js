// Asks for a page's live part again while somebody looks at it, and goes to the search field at "/".
"use strict";

const EVERY_MS = 5000;
let paused = false;
let asking = false;

function held(section) {
  // Whoever has marked text there, or moves through it by keyboard, is not disturbed.
  const marked = getSelection();
  return section.contains(document.activeElement) || (marked && !marked.isCollapsed && section.contains(marked.anchorNode));
}

async function refresh() {
  const section = document.getElementById("live");
  if (paused || asking || document.hidden || !section || !("refreshes" in section.dataset) || held(section)) return;
  asking = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Floe-Live": "1" }, cache: "no-store" });
    const found = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
    if (!found) throw new Error(`status ${answer.status}`);
    if (!held(section)) section.replaceWith(document.adoptNode(found));
  } catch {
    let said = document.getElementById("lost");
    if (!said) {
      said = document.createElement("p");
      said.id = "lost";
      said.className = "bad";
      said.setAttribute("role", "status");
      said.textContent = "The agent does not show this any more; what is shown is old.";
      section.prepend(said);
    }
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
