// What the page asks: a token, and whether a drain is meant.

import { cellPath, post, setToken } from "./api.js";
import { h } from "./dom.js";
import { percent, plural } from "./format.js";

function dialog(title, ...content) {
  const id = `d-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  const made = h("dialog", { "aria-labelledby": id }, h("h2", { id }, title), ...content);
  made.addEventListener("close", () => made.remove());
  document.body.append(made);
  return made;
}

/** Ask for a token, saying why; resolves when one is given. */
export function askToken(reason) {
  return new Promise((resolve) => {
    const input = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true });
    const made = dialog(
      "This controller asks for a token",
      h("p", { class: "why", role: "alert" }, reason),
      h(
        "form",
        {
          onsubmit: (event) => {
            event.preventDefault();
            setToken(input.value.trim());
            made.close();
            resolve();
          },
        },
        h("label", { for: "token" }, "Token"),
        input,
        h("p", { class: "howto" }, "It is kept in this tab alone, and goes when the tab is closed. A viewer's may look; an operator's may also drain."),
        h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary" }, "Go on")),
      ),
    );
    made.addEventListener("cancel", (event) => event.preventDefault());
    made.showModal();
  });
}

/** What a drain of the cell would move, and what is left. */
function consequences(store, cell) {
  return cell.models.map((model) => {
    const others = store.list.filter((each) => each !== cell && each.state === "READY" && each.models.includes(model));
    if (!others.length) return h("p", { class: "warning" }, `It is the last READY cell of ${model}: requests for it will be answered 503.`);
    return h("p", {}, `${model}: ${plural(others.length, "other READY cell")} ${others.length === 1 ? "takes" : "take"} its part over.`);
  });
}

/** Ask whether to drain (or take a drain back), do it, and say what the controller said. */
export function askDrain(store, cell, undrain) {
  const verb = undrain ? "Undrain" : "Drain";
  const cause = h("input", { id: "cause", maxlength: "500", autocomplete: "off", placeholder: undrain ? "repaired" : "new driver" });
  const deadline = h("input", { id: "deadline", type: "number", min: "0", max: "86400", step: "1", inputmode: "numeric", placeholder: "as configured" });
  const said = h("p", { class: "warning", role: "alert", hidden: true });
  const confirm = h("button", { type: "submit", class: undrain ? "primary" : "danger" }, `${verb} ${cell.id}`);
  const cancel = h("button", { type: "button", onclick: () => made.close() }, "Cancel");
  const act = async (event) => {
    event.preventDefault();
    confirm.disabled = true;
    const body = { cause: cause.value.trim() || "asked on the page" };
    if (!undrain && deadline.value) body.deadline_s = Number(deadline.value);
    try {
      await post(cellPath(cell.id, undrain ? "/undrain" : "/drain"), body);
      made.close();
    } catch (error) {
      said.textContent = error.message;
      said.hidden = false;
      confirm.disabled = false;
    }
  };
  const made = dialog(
    `${verb} ${cell.id}?`,
    undrain
      ? h("p", {}, "It gets requests again as soon as its engine answers.")
      : h("p", {}, `It gets no new requests; those in flight finish. Now it has ${percent(cell.share[store.gateway] ?? 0, 1)} of its pool's requests.`),
    ...(undrain ? [] : consequences(store, cell)),
    h(
      "form",
      { onsubmit: act },
      h("label", { for: "cause" }, "Why (it stands in the events and in the account)"),
      cause,
      ...(undrain ? [] : [h("label", { for: "deadline" }, "Deadline, s: the drain ends then, whatever is in flight"), deadline]),
      said,
      h("div", { class: "buttons" }, cancel, confirm),
    ),
  );
  made.showModal();
  cause.focus();
}
