/* Keys of the console: g and a letter goes to a page, r reads anew, p stops and starts that, / searches, ? tells them all.
   They can be switched off, and are left alone where somebody writes. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const PAGES = {
    f: "Fleet", q: "Queue", h: "Health evidence", w: "Workers", s: "Sessions", i: "Work items",
    o: "Goals", d: "Schedules", n: "Dispatch a task", a: "Audit log",
  };
  const GOING = 1500;
  let going = 0;

  const links = () => [...document.querySelectorAll("#nav-sidebar-inner a[href]")];
  const linkOf = (title) => links().find((link) => link.textContent.trim().endsWith(title));
  const writes = (part) => part.closest("input, textarea, select, [contenteditable]") !== null;
  const isOff = () => localStorage.getItem("fc-keys") === "off";

  function row(keys, words) {
    const line = document.createElement("li");
    const shown = document.createElement("kbd");
    shown.textContent = keys;
    line.append(shown, ` ${words}`);
    return line;
  }

  function help() {
    const dialog = document.createElement("dialog");
    dialog.className = "fc-help";
    dialog.setAttribute("aria-label", "Keys");
    const list = document.createElement("ul");
    for (const [key, title] of Object.entries(PAGES)) if (linkOf(title)) list.append(row(`g ${key}`, title));
    list.append(row("r", "read the page anew"), row("p", "stop or start refreshing"), row("/", "search in this list"));
    list.append(row("Ctrl K", "find a page or an exact id"), row("?", "this help"));
    const off = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = !isOff();
    box.addEventListener("change", () => localStorage.setItem("fc-keys", box.checked ? "on" : "off"));
    off.append(box, " single keys are on");
    const close = document.createElement("button");
    close.className = "fc-button";
    close.textContent = "Close";
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => dialog.remove());
    dialog.append(list, off, close);
    document.body.append(dialog);
    dialog.showModal();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || writes(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "?") return help();
    if (isOff()) return;
    if (Date.now() - going < GOING) {
      going = 0;
      linkOf(PAGES[event.key] ?? "\u0000")?.click();
      return;
    }
    if (event.key === "g") going = Date.now();
    if (event.key === "r") document.dispatchEvent(new Event("fc:refresh"));
    if (event.key === "p") document.dispatchEvent(new Event("fc:pause"));
    const search = document.getElementById("searchbar");
    if (event.key === "/" && search) {
      event.preventDefault();
      search.focus();
    }
  });
});
