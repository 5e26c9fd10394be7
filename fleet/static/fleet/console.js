/* Reads the live part of a page anew every few seconds. A failure is said, with the age of what is still shown. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const live = document.getElementById("fc-live");
  const notice = document.getElementById("fc-connection");
  if (!live) return;
  let every = Number(live.dataset.every) * 1000;
  let wait = every;
  let read = Date.now();

  const written = () => [...live.querySelectorAll("textarea")].some((field) => field.value !== "");
  const busy = () =>
    document.hidden || live.contains(document.activeElement) || String(window.getSelection()).length > 0 || written();

  async function refresh() {
    const begun = Date.now();
    const response = await fetch(window.location.href, { cache: "no-store", signal: AbortSignal.timeout(4000) });
    if (response.redirected) return window.location.reload();
    if (!response.ok) throw new Error(String(response.status));
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const fresh = page.getElementById("fc-live");
    every = Number(fresh.dataset.every) * 1000;
    live.replaceChildren(...fresh.childNodes);
    read = Date.now();
    notice.hidden = true;
    wait = Math.max(every, 4 * (read - begun));
  }

  async function tick() {
    if (!busy()) {
      try {
        await refresh();
      } catch {
        const age = Math.round((Date.now() - read) / 1000);
        notice.textContent = `No answer from the server. What you see was read ${age} s ago.`;
        notice.hidden = false;
        wait = Math.min(60000, wait * 2);
      }
    }
    setTimeout(tick, wait);
  }

  setTimeout(tick, every);
});
