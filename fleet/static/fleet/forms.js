/* A form that acts is sent once: a second click before the answer comes does nothing. */
"use strict";

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("form[data-once]")) return;
  if (form.dataset.sent) return event.preventDefault();
  form.dataset.sent = "yes";
});

window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

/* The browser's own autofocus waits for a frame, which a window in the background does not get. */
document.addEventListener("DOMContentLoaded", () => document.querySelector("#content-main [autofocus]")?.focus());
