// Runs before the first paint, so that the page never flashes in the other theme.
"use strict";
try {
  const chosen = localStorage.getItem("headrace.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be switched off; the system's choice holds then.
}
