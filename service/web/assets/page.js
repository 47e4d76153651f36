// Keeps a page up to date: fetches it again, and replaces the parts that are marked data-live.
"use strict";

const FRAME_MS = 60000; // the frontier is large: load it anew once a minute at most
let failures = 0;
let framed = { at: Date.now(), version: version() };

function version() {
  const text = document.getElementById("version");
  return text ? text.textContent : "";
}

// Whether the reader has scrolled up in the part's log, or selects text in it.
function beingRead(part) {
  const log = part.querySelector(".log");
  const selection = getSelection();
  return (log && log.scrollTop < 0) || (!selection.isCollapsed && part.contains(selection.anchorNode));
}

async function refresh() {
  const answer = await fetch(location.href, { signal: AbortSignal.timeout(20000) });
  if (answer.status === 401) {
    location.reload(); // shows the form to sign in
    return;
  }
  if (!answer.ok) throw new Error(answer.statusText);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  document.body.dataset.refresh = fresh.body.dataset.refresh;
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    if (other && other.innerHTML !== part.innerHTML && !beingRead(part)) {
      part.replaceChildren(...document.adoptNode(other).childNodes);
    }
  }
  const frame = document.querySelector("iframe");
  if (frame && version() !== framed.version && Date.now() - framed.at > FRAME_MS && !frame.matches(":hover")) {
    framed = { at: Date.now(), version: version() };
    frame.src = frame.getAttribute("src");
  }
}

async function again() {
  if (!document.hidden) {
    try {
      await refresh();
      failures = 0;
    } catch {
      failures += 1;
    }
    document.getElementById("stale").hidden = failures < 2;
  }
  later();
}

function later() {
  setTimeout(again, 1000 * Number(document.body.dataset.refresh) * Math.min(2 ** failures, 12));
}

later();
