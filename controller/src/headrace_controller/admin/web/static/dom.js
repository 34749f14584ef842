// Elements without markup in strings: text is always text, and the page's policy forbids inline styles.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** An HTML element; attributes named `on…` are listeners. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Set an element's text where it differs; what stays the same costs no layout. */
export function setText(element, text) {
  if (element.shown === text) return;
  element.shown = text;
  element.textContent = text;
}

/** Set an attribute where it differs; null takes it away. */
export function setAttribute(element, name, value) {
  if (value === null) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/**
 * Make `parent` hold one element for each item, in order, keeping those it has.
 * `make(item)` gives an element with a method `show(item)`.
 */
export function keyed(parent, items, key, make) {
  const kept = (parent.kept ??= new Map());
  const wanted = new Set();
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    wanted.add(name);
    let element = kept.get(name);
    if (!element) {
      element = make(item);
      kept.set(name, element);
    }
    element.show?.(item);
    if (element === at) at = at.nextElementSibling;
    else parent.insertBefore(element, at);
  }
  for (const [name, element] of kept) {
    if (!wanted.has(name)) {
      element.remove();
      kept.delete(name);
    }
  }
}

/** An element that knows how to show an item. */
export function shown(element, show) {
  element.show = show;
  return element;
}

/** A panel with a heading and, where given, a line that says how to read it. */
export function panel(title, howto, ...children) {
  const id = `h-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return h(
    "section",
    { class: "panel", "aria-labelledby": id },
    h("h2", { id }, title),
    howto ? h("p", { class: "howto" }, howto) : null,
    ...children,
  );
}
