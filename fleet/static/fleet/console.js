/* The one clock of the console: reads the live parts of a page anew, and follows output. A failure is said, with the age
   of what is still shown. Nothing is asked for while the page is hidden, something is chosen or written, or refresh is off. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const regions = [...document.querySelectorAll(".fc-live")];
  const notice = document.getElementById("fc-connection");
  const age = document.getElementById("fc-read");
  const menu = document.getElementById("fc-every");
  const output = document.getElementById("fc-output");
  const told = document.getElementById("fc-output-note");
  const list = document.querySelector(".fc-clock[data-every]");
  if (!regions.length && !list) return;
  const PATIENCE = 4000;
  const KEPT = 1000000; // characters of output on a page that stays open
  const usual = () => Number((regions[0] ?? list).dataset.every) * 1000;
  menu.value = localStorage.getItem("fc-every") ?? "";
  const every = () => (menu.value === "" ? usual() : Number(menu.value) * 1000);
  const isOff = () => menu.value === "off";
  let wait = isOff() ? usual() : every();
  let read = Date.now();
  let due = Date.now() + wait;
  let asking = false;
  const parts = () => (list ? [...document.querySelectorAll("#changelist")] : regions);
  const written = () =>
    parts().some((part) => [...part.querySelectorAll("textarea, input[type=text]")].some((field) => field.value !== field.defaultValue));
  const chosen = () => document.querySelector("input.action-select:checked, dialog[open]") !== null;
  const onLaterPage = () => list && Number(new URLSearchParams(window.location.search).get("p") ?? 1) > 1;
  const busy = () =>
    document.hidden ||
    (list ? [document.getElementById("result_list")] : regions).some((part) => part?.contains(document.activeElement)) ||
    String(window.getSelection()).length > 0 ||
    chosen() ||
    onLaterPage() ||
    written();

  async function ask(address) {
    const response = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (response.redirected || response.status === 403) {
      window.location.reload(); // signed out: the sign-in takes the whole page
      return null;
    }
    if (!response.ok) throw new Error(String(response.status));
    return response;
  }

  function swap(fresh) {
    regions.forEach((part, place) => {
      const next = fresh[place];
      for (const open of part.querySelectorAll("details[open][data-open]")) {
        next.querySelector(`details[data-open="${open.dataset.open}"]`)?.setAttribute("open", "");
      }
      part.dataset.every = next.dataset.every;
      part.replaceChildren(...next.childNodes);
    });
  }

  /* Rows keep their elements, which scripts of the page know; their cells are those of the fresh list. */
  function swapList(page) {
    const rowsOf = (place) => [...place.querySelectorAll("#result_list .data-row")];
    const [shown, fresh] = [rowsOf(document), rowsOf(page)];
    if (shown.length !== fresh.length) {
      window.location.reload();
      return;
    }
    shown.forEach((row, place) => {
      [...row.children].forEach((cell, column) => {
        const next = fresh[place].children[column];
        const [box, nextBox] = [cell, next].map((one) => one.querySelector("input.action-select"));
        if (box && nextBox) {
          for (const name of ["value", "aria-label"]) {
            if (nextBox.hasAttribute(name)) box.setAttribute(name, nextBox.getAttribute(name));
          }
        } else {
          cell.replaceChildren(...next.childNodes);
        }
      });
    });
  }

  async function refresh() {
    const response = await ask(window.location.href);
    if (!response) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (list && !busy()) swapList(page);
    const fresh = page.querySelectorAll(".fc-live");
    if (fresh.length === regions.length) swap(fresh);
  }

  /* Appends what came after the last piece shown: text nodes alone, whatever an agent wrote. */
  async function follow() {
    for (let more = true; more; ) {
      const response = await ask(`${output.dataset.src}?after=${output.dataset.last}`);
      if (!response) return;
      const news = await response.json();
      const atEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 8;
      if (news.text) output.append(news.text);
      if (output.textContent.length > KEPT) {
        output.textContent = `[earlier output left out]\n${output.textContent.slice(-KEPT / 2)}`;
      }
      output.dataset.last = news.last;
      output.hidden = output.textContent === "";
      if (told.textContent !== news.note) told.textContent = news.note; // a reader of screens is told of changes alone
      if (atEnd) output.scrollTop = output.scrollHeight;
      more = news.more;
    }
  }

  async function look() {
    const begun = Date.now();
    asking = true;
    try {
      await refresh();
      if (output) await follow();
      read = Date.now();
      notice.hidden = true;
      wait = Math.max(every(), 4 * (read - begun)) * (document.hasFocus() ? 1 : 4);
    } catch {
      notice.hidden = false;
      wait = Math.min(60000, Math.max(wait, every()) * 2);
    }
    asking = false;
    due = Date.now() + wait;
  }

  function tell() {
    const seconds = Math.round((Date.now() - read) / 1000);
    age.textContent = seconds < 1 ? "read just now" : `read ${seconds} s ago`;
    notice.textContent = `No answer from the server. What you see was read ${seconds} s ago.`;
    if (!asking && !isOff() && Date.now() >= due && !busy()) look();
  }

  menu.addEventListener("change", () => {
    localStorage.setItem("fc-every", menu.value);
    due = Date.now() + (isOff() ? 0 : every());
    menu.blur();
  });
  document.addEventListener("fc:refresh", () => asking || look());
  document.addEventListener("fc:pause", () => {
    menu.value = isOff() ? "" : "off";
    menu.dispatchEvent(new Event("change"));
  });
  if (output) output.scrollTop = output.scrollHeight;
  setInterval(tell, 500);
});
